"""The Monte-Carlo NN-GP: a kernel estimated from random finite networks of any architecture."""

import copy
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from degp.ensemble.construction import require_initialised
from degp.points import Inputs, device_of
from degp.priors.kernel import Kernel
from degp.priors.weights import WeightPrior, Weights, as_buffers, as_weights
from degp.runtime.execution import Execution, prior_strategy

__all__ = ["MonteCarloBank", "MonteCarloNNGP"]


class MonteCarloNNGP(nn.Module):
    """k_p(x, x') = σ_w² (1/SĈ) Σₛ h(x, wₛ)ᵀh(x', wₛ) + σ_b², wₛ ~ p(w), resampled at every step.  theory/prior.md (1)

    Args:
        features: h, a network without its read-out, of any architecture: it need not be the members' and should
            have no BatchNorm. Only its architecture counts; its weights are drawn.
        num_draws: S.
        weight_prior: p(w) of the feature network.
        readout_weight_variance: σ_w²; the read-out's weights have variance σ_w²/Ĉ.
        readout_bias_variance: σ_b²; see `NNGP` for why not a small one.
        execution: the execution strategy of the S networks; by default that of `runtime.execution.prior_strategy`.

    Example:
        >>> prior = MonteCarloNNGP(mlp_features(3, [64, 64]))
        >>> prior.kernel()(torch.zeros(5, 3), torch.zeros(4, 3)).shape
        torch.Size([5, 4])
    """

    def __init__(
        self,
        features: nn.Module,
        *,
        num_draws: int = 10,
        weight_prior: WeightPrior = WeightPrior(),
        readout_weight_variance: float = 2.0,
        readout_bias_variance: float = 1.0,
        execution: Execution | None = None,
    ) -> None:
        super().__init__()
        if num_draws < 1:
            raise ValueError(f"num_draws must be at least 1, but it is {num_draws}")
        if readout_weight_variance < 0 or readout_bias_variance < 0:
            raise ValueError(
                f"the read-out's variances must not be negative, but they are {readout_weight_variance} (weights) "
                f"and {readout_bias_variance} (bias)"
            )
        require_initialised("the prior's feature network", features)
        _require_no_statistics(features)
        self.features = copy.deepcopy(features).requires_grad_(False)
        self.num_draws = num_draws
        self.weight_prior = weight_prior
        self.readout_weight_variance = readout_weight_variance
        self.readout_bias_variance = readout_bias_variance
        self.execution = execution

    def kernel(self, *, generator: torch.Generator | None = None) -> Kernel:
        """The kernel of S networks drawn now."""
        weights = self.weight_prior.draw(self.features, self.num_draws, generator=generator)
        return _EmpiricalKernel(self, weights)

    def fixed(self, *, generator: torch.Generator | None = None) -> "MonteCarloBank":
        """A prior that keeps the S networks drawn now: less noise between steps, and cheaper."""
        weights = self.weight_prior.draw(self.features, self.num_draws, generator=generator)
        return MonteCarloBank(self, weights)


class MonteCarloBank(nn.Module):
    """`MonteCarloNNGP` with the same S networks at every step; made by `MonteCarloNNGP.fixed`.

    Example:
        >>> bank = MonteCarloNNGP(mlp_features(3, [64])).fixed(generator=torch.Generator().manual_seed(0))
        >>> x = torch.ones(2, 3)
        >>> torch.equal(bank.kernel()(x, x), bank.kernel()(x, x))
        True
    """

    def __init__(self, prior: MonteCarloNNGP, weights: Weights) -> None:
        super().__init__()
        self.prior = prior
        self.weights = as_buffers(weights)

    def kernel(self, *, generator: torch.Generator | None = None) -> Kernel:
        """The kernel of the S networks in the bank."""
        return _EmpiricalKernel(self.prior, as_weights(self.weights))


@dataclass(frozen=True)
class _EmpiricalKernel:
    prior: MonteCarloNNGP
    weights: Weights

    @torch.no_grad()
    def __call__(self, left: Inputs, right: Inputs) -> Float[Tensor, "N K"]:
        h = self._features(left)
        h_right = h if right is left else self._features(right)  # k(x, x) runs the networks once
        scale = self.prior.readout_weight_variance / h.shape[1]
        return scale * (h @ h_right.mT).double() + self.prior.readout_bias_variance

    def _features(self, inputs: Inputs) -> Float[Tensor, "N SF"]:
        """The S networks' features concatenated, precise enough for a positive definite Gram matrix."""
        features = self._networks(inputs).transpose(0, 1).flatten(1)
        exact = torch.float64 if _float32_is_coarse(inputs) else torch.float32
        return features.to(torch.promote_types(features.dtype, exact))

    def _networks(self, inputs: Inputs) -> Float[Tensor, "S N F"]:
        if not self.weights:  # no weights to draw: a fixed feature map such as the identity
            return self.prior.features(inputs).flatten(1).expand(1, -1, -1)

        # parameters without a prior (none in `degp.nets`) keep their values, the same for every draw
        others = {
            name: value.expand(self.prior.num_draws, *value.shape)
            for name, value in self.prior.features.named_parameters()
            if name not in self.weights
        }
        features = self.prior.features
        execution = self.prior.execution or prior_strategy(features, device_of(inputs))
        return execution(features, self.weights | others, {}, inputs).flatten(2)


def _require_no_statistics(features: nn.Module) -> None:
    """BatchNorm makes k(x, x') depend on the other points of a batch, and has no statistics for networks just drawn."""
    named = ((name, layer) for name, layer in features.named_modules() if isinstance(layer, _BatchNorm))
    for name, layer in named:
        raise ValueError(
            f"the prior's feature network must have no BatchNorm, because its kernel would depend on the whole batch, "
            f"but {name or 'it'} is a {type(layer).__name__}; leave it out, or use nn.LayerNorm"
        )


def _float32_is_coarse(inputs: Inputs) -> bool:
    """Whether a float32 product may run in TF32 or bf16, under which a Gram matrix loses positive definiteness."""
    return (
        device_of(inputs).type != "cpu"
        or torch.is_autocast_enabled("cpu")
        or torch.get_float32_matmul_precision() != "highest"
    )
