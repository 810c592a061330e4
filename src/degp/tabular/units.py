"""The units of a target: its own, and those of training, in which it is transformed and standardised."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from degp.data import Standardiser
from degp.predictive import RegressionPredictive, TransformedPredictive
from degp.transforms import Identity, Log, Transform

__all__ = ["Units", "candidate_transforms"]

NEARLY_LINEAR = 1.5  # times the smallest target: up to there the slope of the log varies too little to matter


@dataclass(frozen=True)
class Units:
    """z = (t(y) − mean) / std: targets as the networks see them.        theory/prediction.md (5)

    Attributes:
        transform: t.
        scaling: mean and std of t(y).
    """

    transform: Transform
    scaling: Standardiser

    @classmethod
    def fit(
        cls, transform: Transform, targets: Float[Tensor, "N C"], weights: Float[Tensor, "N"] | None = None
    ) -> "Units":
        """The units in which these transformed targets have mean 0 and standard deviation 1."""
        return cls(transform, Standardiser.fit(transform.forward(targets), weights))

    def apply(self, targets: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
        """z of targets y; raises ValueError where y has no transform."""
        values = self.transform.forward(targets)
        if not values.isfinite().all():
            raise ValueError(
                f"targets must be positive, since the model was fitted to the {self.transform.name} of targets that "
                f"all were, but one is {float(targets[~values.isfinite()][0]):g}; leave it out, or fit again with it"
            )
        return self.scaling.apply(values)

    def log_slope(self, standardised: Float[Tensor, "N C"]) -> Float[Tensor, "N"]:
        """log dy/dz per row, summed over its targets: −log p(y) is −log p(z) plus this."""
        slope = self.transform.log_slope(self.scaling.undo(standardised.double()))
        return (slope + slope.new_tensor(self.scaling.std).log()).sum(1)

    def crps(
        self, mean: Float[Tensor, "N C"], variance: Float[Tensor, "N C"], standardised: Float[Tensor, "N C"]
    ) -> float:
        """The CRPS of y, from the mean and variance of z and the true z."""
        means, values = (self.scaling.undo(each.double()) for each in (mean, standardised))
        variances = self.scaling.undo_std(variance.double().sqrt()).square()
        return self.transform.crps(means, variances, self.transform.inverse(values))

    def slope(self, targets: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
        """dy/dz at y: the size of one unit of z there."""
        return self.scaling.undo_std(self.transform.log_slope(self.transform.forward(targets)).exp())

    def predictive(self, served: RegressionPredictive) -> TransformedPredictive:
        """Of y, from that of z."""
        scale, offset = (served.mean.double().new_tensor(each) for each in (self.scaling.std, self.scaling.mean))
        return TransformedPredictive(served.rescaled(scale, offset), self.transform)


def candidate_transforms(targets: Float[Tensor, "N C"]) -> Sequence[Transform]:
    """The identity, and the log of a single target that is positive in every row and not nearly constant."""
    low, high = float(targets.min()), float(targets.max())
    is_candidate = targets.shape[1] == 1 and low > 0 and high > NEARLY_LINEAR * low
    return (Identity(), Log()) if is_candidate else (Identity(),)
