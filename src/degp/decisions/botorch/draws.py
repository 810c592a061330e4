"""Functions drawn from the posterior: each is fixed, and can be evaluated at any points in any order."""

from typing import TYPE_CHECKING, Any

import torch
from botorch.sampling.pathwise.paths import SamplePath
from botorch.sampling.pathwise.posterior_samplers import DrawMatheronPaths
from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["FunctionDraws"]

if TYPE_CHECKING:
    from degp.decisions.botorch.model import DEGPModel


class FunctionDraws(nn.Module):
    """f(x) = m(x) + A(x)ᵀz with z drawn once: a batch of functions, differentiable in x.

    The white part √λ(x)·e of the posterior is left out: it is independent for every row, so no function has it. Draws
    therefore vary less than the posterior, by the share ε of the variance.

    Args:
        model: its posterior is drawn from.
        coefficients: z, M numbers per draw.

    Example:
        >>> from degp.decisions.botorch import DEGPModel
        >>> functions = DEGPModel.fit(X, Y, bounds=bounds).draw(torch.Size([5]))
        >>> functions(X).shape
        torch.Size([5, 24, 1])
    """

    coefficients: Tensor

    def __init__(self, model: "DEGPModel", coefficients: Float[Tensor, "*draws M"]) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("coefficients", coefficients)

    def forward(self, X: Float[Tensor, "*batch q D"]) -> Float[Tensor, "*joint n C"]:
        """Values in original units; the batch of X and the draws broadcast."""
        return self.model.values_at(X, self.coefficients)


class FunctionPath(SamplePath):
    """`FunctionDraws` as a BoTorch sample path: outputs before points, and no axis for a single output."""

    def __init__(self, draws: FunctionDraws) -> None:
        super().__init__()
        self.draws = draws

    def forward(self, x: Float[Tensor, "*batch q D"], **kwargs: Any) -> Float[Tensor, "*joint n"]:
        if self.draws.model.num_outputs == 1:
            return self.draws(x).squeeze(-1)
        return self.draws(x.squeeze(-3)).mT

    def set_ensemble_as_batch(self, ensemble_as_batch: bool) -> None:
        """Nothing to do: the members are one Gaussian process, not a batch of models."""


def register(model_class: type) -> None:
    """Registers the model with BoTorch's path sampling, for `PathwiseThompsonSampling` and others."""

    @DrawMatheronPaths.register(model_class)
    def draw_paths(model: "DEGPModel", *, sample_shape: torch.Size, **kwargs: Any) -> FunctionPath:
        return FunctionPath(model.draw(sample_shape))
