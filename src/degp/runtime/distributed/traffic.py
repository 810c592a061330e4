"""The bytes that a rank sends per training step, from the sizes of what it trains."""

from dataclasses import dataclass

__all__ = ["StepSizes"]


@dataclass(frozen=True)
class StepSizes:
    """The sizes that a step's messages depend on.

    Attributes:
        members: M.
        batch: B, points per batch, of all replicas together.
        outputs: C.
        weights: P, trained numbers per member.
        measurement: measurement points per replica.
        shared: S, trained numbers of a backbone.
        learned: H, trained numbers of the method, such as a noise variance; float64.
        terms: T, of the loss.
        penalised: whether there is a penalty on the weights.
        width: b, bytes per number.
    """

    members: int
    batch: int
    outputs: int
    weights: int
    measurement: int = 0
    shared: int = 0
    learned: int = 0
    terms: int = 2
    penalised: bool = False
    width: int = 4

    def sent(self, *, replicas: int = 1, blocks: int = 1) -> float:
        """Bytes that the first rank sends per step, of D replicas in K blocks each.        theory/distributed.md (5)"""
        D, K, R, b = replicas, blocks, replicas * blocks, self.width
        largest = -(-self.members // K)
        points = -(-self.batch // D) + self.measurement
        outputs = (K - 1) * largest * points * self.outputs * b
        penalty = _summed(K) * b * self.penalised
        losses = _summed(D) * (self.terms + 2) * 8
        own = _summed(D) * (largest * self.weights + 1) * b
        shared = _summed(R) * (self.shared + 1) * b * (self.shared > 0)
        learned = _summed(R) * (self.learned + 1) * 8 * (self.learned > 0)
        return outputs + penalty + losses + own + shared + learned


def _summed(ranks: int) -> float:
    """How many times the size of a tensor each of these ranks sends to sum it."""
    return 2 * (ranks - 1) / ranks
