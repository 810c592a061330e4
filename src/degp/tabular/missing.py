"""Missing cells as noise: what a filled cell hides is unknown in each row, and no function of the others."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from degp.predictive import RegressionPredictive
from degp.tabular.prior_search import PriorSearch, is_worthwhile
from degp.tabular.process import Process
from degp.typing import Batch

__all__ = ["MissingNoise", "noise_of_missing"]

FEWEST_ROWS = 5  # with a missing cell, from which its noise is estimated
ROUNDS = 3
SMALLEST = 1.5  # factor that matters: 1.2 × the standard deviation


@dataclass(frozen=True)
class MissingNoise:
    """How much larger the noise variance is in rows with missing cells.        theory/prediction.md (8)

    Var(y | f, x) = σ² c(x),   c(x) = max { c_j : cell j of x is missing },  or 1 if none is

    Attributes:
        places: of the indicators of missing cells among the inputs; standardised, they are positive where one is.
        factors: c_j, one per indicator, at least 1.
    """

    places: tuple[int, ...] = ()
    factors: tuple[float, ...] = ()

    def larger(self) -> "MissingNoise":
        """Without the indicators whose factor hardly differs from 1."""
        pairs = [(place, c) for place, c in zip(self.places, self.factors, strict=True) if c > SMALLEST]
        return MissingNoise(tuple(place for place, _ in pairs), tuple(c for _, c in pairs))

    def factor(self, inputs: Float[Tensor, "N D"]) -> Float[Tensor, "N"]:
        """c(x) of each row."""
        missing = inputs[:, list(self.places)] > 0
        factors = torch.where(missing, inputs.new_tensor(self.factors), 1.0)
        return torch.cat([factors, torch.ones_like(inputs[:, :1])], dim=1).amax(1)

    def weigh(self, rows: Batch) -> Batch:
        """Rows with weights that are lower by c(x)."""
        if not self.places:
            return rows
        return replace(rows, weights=rows.weigh(1 / self.factor(rows.inputs)))

    def widen(self, predictive: RegressionPredictive, inputs: Float[Tensor, "N D"]) -> RegressionPredictive:
        """A prediction for these inputs, with the noise that they have."""
        if not self.places:
            return predictive
        factor = self.factor(inputs).to(predictive.aleatoric)
        return replace(predictive, aleatoric=predictive.aleatoric * factor[:, None])


def noise_of_missing(search: PriorSearch, indicators: Sequence[int]) -> MissingNoise:
    """c_j by leave-one-out, or none where it does not lower the NLL by more than one standard error and 0.02.

    c_j is multiplied by the mean z² of the rows where cell j is missing, three times, since it changes the prior.

    Args:
        search: for the prior of the rows.
        indicators: of missing cells among the inputs.
    """
    missing = search.rows.inputs[:, list(indicators)] > 0
    places = tuple(j for j, count in zip(indicators, missing.sum(0).tolist(), strict=True) if count >= FEWEST_ROWS)
    if not places:
        return MissingNoise()
    noise = MissingNoise(places, (1.0,) * len(places))
    squares, before = _left_out(search)
    for _ in range(ROUNDS):
        own = [float(squares[search.rows.inputs[:, j] > 0].mean()) for j in places]
        factors = [max(1.0, c * square) for c, square in zip(noise.factors, own, strict=True)]
        noise = MissingNoise(places, tuple(factors))
        squares, after = _left_out(search.for_rows(noise.weigh(search.rows)))
    return noise.larger() if is_worthwhile(before - after) else MissingNoise()


def _left_out(search: PriorSearch) -> tuple[Float[Tensor, "N"], Float[Tensor, "N"]]:
    """z² of each row left out, the mean over its targets, and −log p(y), under the most likely prior."""
    rows = replace(search.rows, inputs=search.rows.inputs[:, : search.num_features])
    process = Process.fit(search.plain, rows)
    residual, variance = process.exact.leave_one_out()
    return (residual.square() / variance).mean(1), process.leave_one_out_nll()
