"""Functions drawn from the posterior: each is one fixed function, to be called at any points, in any order."""

from typing import TYPE_CHECKING, Any

import torch
from botorch.sampling.pathwise.paths import SamplePath
from botorch.sampling.pathwise.posterior_samplers import DrawMatheronPaths
from jaxtyping import Float
from torch import Tensor, nn

if TYPE_CHECKING:
    from degp.botorch.model import DEGPModel


class FunctionDraws(nn.Module):
    """f(x) = m(x) + A(x)ᵀz with z drawn once: a batch of functions, differentiable in x.

    The white part √λ(x)·e of the posterior is left out: it belongs to a row that is asked for, not to a point, and a
    function has none. Draws therefore vary a little less than the posterior, by the share ε of the variance.

    Args:
        model: whose posterior they are drawn from.
        coefficients: z, M numbers for each draw.
    """

    coefficients: Tensor

    def __init__(self, model: "DEGPModel", coefficients: Float[Tensor, "*draws M"]) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("coefficients", coefficients)

    def forward(self, X: Float[Tensor, "*batch q D"]) -> Float[Tensor, "*joint n C"]:
        """Values in original units; the batch of X and the draws are joined by broadcasting, as a model's batch is."""
        return self.model.values_at(X, self.coefficients)


class Path(SamplePath):
    """`FunctionDraws` in the form of BoTorch's sample paths: outputs before points, and no axis for a single output."""

    def __init__(self, draws: FunctionDraws) -> None:
        super().__init__()
        self.draws = draws

    def forward(self, x: Float[Tensor, "*batch q D"], **kwargs: Any) -> Float[Tensor, "*joint n"]:
        if self.draws.model.num_outputs == 1:
            return self.draws(x).squeeze(-1)
        return self.draws(x.squeeze(-3)).mT

    def set_ensemble_as_batch(self, ensemble_as_batch: bool) -> None:
        """Nothing to do: the members are one Gaussian process here and no batch of models."""


def register(model_class: type) -> None:
    """Lets BoTorch draw paths of this model: for `PathwiseThompsonSampling`, `get_optimal_samples` and others."""

    @DrawMatheronPaths.register(model_class)
    def draw_paths(model: "DEGPModel", *, sample_shape: torch.Size, **kwargs: Any) -> Path:
        return Path(model.draw(sample_shape))
