"""Predictive distributions in operations that a graph can hold: from the members' outputs to named numbers."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from degp.gaussian import Coefficients
from degp.likelihoods import Categorical, Gaussian, HeteroscedasticGaussian, Likelihood
from degp.methods import Method

__all__ = ["CLASSES", "NUMBERS", "Classes", "Draws", "Numbers", "graph_entropy", "normal_draws"]

NUMBERS = ("mean", "epistemic", "aleatoric", "total")
CLASSES = ("probabilities", "epistemic", "aleatoric", "total")
Draws = tuple[Float[Tensor, "S M"], Float[Tensor, "S 1 C"]]


class _Process(nn.Module):
    """q at each point: mean, rotated deviations and λ, conditioned on the labels of later updates.

    m + Aᵀμ,  R⁻¹A,  λ(x) = ε tr k(x, x) / C        theory/posterior.md (3), theory/conditioning.md (3)
    """

    def __init__(self, epsilon: float, coefficients: Coefficients | None) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.updated = coefficients is not None
        if coefficients is not None:
            root = coefficients.precision_root.cpu()
            self.shift = nn.Buffer(coefficients.mean.cpu())
            self.rotation = nn.Buffer(torch.linalg.inv(root))

    def forward(self, outputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean = outputs.mean(0)
        deviations = (outputs - mean) / len(outputs) ** 0.5
        variance = deviations.square().sum(0)
        nugget = (self.epsilon * variance.mean(1, keepdim=True)).expand_as(variance)
        if self.updated:
            mean = mean + torch.einsum("m,mnc->nc", self.shift, deviations)
            deviations = torch.einsum("km,mnc->knc", self.rotation, deviations)
        return mean, deviations, nugget


class Numbers(nn.Module):
    """The members' outputs (M, N, C) to mean, epistemic, aleatoric and total variance of real targets.

    Example:
        >>> mean, epistemic, aleatoric, total = Numbers(method, None)(torch.tensor([[[1.0]], [[3.0]]]))
        >>> round(mean.item(), 2), round(epistemic.item(), 2), round(aleatoric.item(), 2)
        (2.0, 1.05, 0.1)
    """

    def __init__(self, method: Method, coefficients: Coefficients | None) -> None:
        super().__init__()
        self.process = _Process(method.epsilon, coefficients)
        self.by_input = isinstance(method.likelihood, HeteroscedasticGaussian)
        self.mixture = method.epsilon == 0 and coefficients is None
        self.log_noise = nn.Buffer(_log_noise(method.likelihood))
        offset, unit = _units(method.likelihood)
        self.offset, self.unit = nn.Buffer(offset), nn.Buffer(unit)

    def forward(self, outputs: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        mean, deviations, nugget = self.process(outputs)
        C = outputs.shape[2] // 2 if self.by_input else outputs.shape[2]
        epistemic = (deviations.square().sum(0) + nugget)[:, :C]
        aleatoric = self._aleatoric(outputs[..., C:], nugget[:, C:]) + 0 * mean[:, :C]
        squared = self.unit.square()
        total = epistemic + aleatoric
        return self.offset + self.unit * mean[:, :C], squared * epistemic, squared * aleatoric, squared * total

    def _aleatoric(self, outputs: Tensor, nugget: Tensor) -> Tensor:
        """σ²; or E eˢ if the network predicts the noise, over the members or under q before any update."""
        if not self.by_input:
            return self.log_noise.exp()
        if self.mixture:
            return (outputs + self.log_noise).exp().mean(0)
        mean = outputs.mean(0)
        variance = (outputs - mean).square().mean(0) + nugget
        return (mean + self.log_noise + variance / 2).exp()


class Classes(nn.Module):
    """The members' outputs (M, N, C) to probabilities, and epistemic, aleatoric and total uncertainty in nats.

    Example:
        >>> from degp import methods
        >>> draws = normal_draws(1000, M=2, C=3, dtype=torch.float32, generator=None)
        >>> head = Classes(methods.degp(Categorical(), NNGP(depth=1)), draws, None)
        >>> probabilities, epistemic, aleatoric, total = head(torch.zeros(2, 5, 3))
    """

    def __init__(self, method: Method, draws: Draws, coefficients: Coefficients | None) -> None:
        super().__init__()
        assert isinstance(method.likelihood, Categorical)
        self.process = _Process(method.epsilon, coefficients)
        self.temperature = nn.Buffer(method.likelihood.temperature.detach().cpu())
        self.z, self.e = (nn.Buffer(part.cpu()) for part in draws)

    def forward(self, outputs: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        draws = outputs
        if self.process.epsilon or self.process.updated:
            mean, deviations, nugget = self.process(outputs)
            draws = mean + torch.einsum("sm,mnc->snc", self.z, deviations) + nugget.sqrt() * self.e
        each = torch.softmax(draws / self.temperature, dim=-1)
        probabilities = _mean(each)
        total, aleatoric = graph_entropy(probabilities), _mean(graph_entropy(each))
        return probabilities, total - aleatoric, aleatoric, total


def normal_draws(num_draws: int, M: int, C: int, *, dtype: torch.dtype, generator: torch.Generator | None) -> Draws:
    """The numbers that `average_over` draws in this precision: of z, and of the white part.

    Example:
        >>> z, e = normal_draws(1000, M=5, C=3, dtype=torch.float32, generator=torch.Generator().manual_seed(0))
        >>> z.shape, e.shape
        (torch.Size([1000, 5]), torch.Size([1000, 1, 3]))
    """
    device = torch.device("cpu") if generator is None else generator.device
    normal = torch.randn(num_draws, M + C, dtype=dtype, device=device, generator=generator)
    return normal[:, :M], normal[:, None, M:]


def graph_entropy(probabilities: Tensor) -> Tensor:
    """−Σ p log p with 0 log 0 = 0, in operations that ONNX supports.

    Example:
        >>> graph_entropy(torch.tensor([[0.25, 0.75], [0.5, 0.5]]))
        tensor([0.5623, 0.6931])
    """
    tiny = torch.finfo(probabilities.dtype).tiny
    return -(probabilities * probabilities.clamp_min(tiny).log()).sum(-1)


def _mean(draws: Float[Tensor, "S *rest"]) -> Float[Tensor, "*rest"]:
    """The mean, and that of what is left: onnxruntime adds up one draw after another, and loses digits."""
    mean = draws.mean(0)
    return mean + (draws - mean).mean(0)


def _log_noise(likelihood: Likelihood) -> Float[Tensor, "*C"]:
    if isinstance(likelihood, HeteroscedasticGaussian):
        return likelihood.log_base.detach().cpu()
    if isinstance(likelihood, Gaussian):
        return likelihood.variance.detach().log().cpu()
    raise TypeError(
        f"a graph can have a Gaussian, a HeteroscedasticGaussian or a Categorical likelihood, but this one is a "
        f"{type(likelihood).__name__}; export the members' outputs with torch.onnx.export(ensemble, …)"
    )


def _units(likelihood: Likelihood) -> tuple[Float[Tensor, "*C"], Float[Tensor, "*C"]]:
    if isinstance(likelihood, Gaussian) and likelihood.has_units:
        return likelihood.offset.detach().cpu(), likelihood.unit.detach().cpu()
    return torch.zeros(()), torch.ones(())
