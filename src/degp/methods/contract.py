"""What a method is: the protocol, what a step prepares, and the loss on a batch."""

import copy
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from degp.ensemble import Ensemble, HasParts
from degp.gaussian import Coefficients, LowRankGaussian
from degp.likelihoods import Likelihood
from degp.points import Inputs, device_of, take_points
from degp.predictive import Predictive
from degp.typing import Batch, Loss

__all__ = ["Method", "Prepared", "as_module", "batch_loss", "require_likelihood", "require_method", "with_likelihood"]


@dataclass(frozen=True)
class Prepared:
    """What a step needs besides the members: measurement points, and the prior on the batch and these points.

    Attributes:
        measurement: X_ν, the measurement points.
        gram_root: L with LLᵀ = K_p on the points of the divergence, jitter included.
        gram_root_inverse: L⁻¹.

    Example:
        >>> prepared = method.prepare(batch.inputs)
        >>> prepared.gram_root.shape, len(prepared.measurement)
        (torch.Size([8, 8]), 0)
    """

    measurement: Inputs
    gram_root: Float[Tensor, "N N"]
    gram_root_inverse: Float[Tensor, "N N"]

    @classmethod
    def empty(cls, inputs: Inputs) -> "Prepared":
        """No measurement points and no prior."""
        nothing = torch.empty(0, 0, device=device_of(inputs))
        return cls(take_points(inputs, slice(0)), nothing, nothing)

    def tensors(self) -> list[Tensor]:
        """The fields in order; `Prepared(*tensors)` is the way back."""
        return [self.measurement, self.gram_root, self.gram_root_inverse]


@runtime_checkable
class Method(Protocol):
    """How an ensemble is trained, and its predictive distribution of new targets.

    The methods here are `nn.Module`s: the parameters of likelihood and prior train, move and are saved with them.

    Example:
        >>> prepared = method.prepare(batch.inputs)
        >>> outputs = ensemble.joint_outputs(batch.inputs, prepared.measurement)
        >>> method.loss(outputs, ensemble, batch, prepared).total.backward()
        >>> prediction = method.predictive(ensemble(data.inputs))
    """

    @property
    def likelihood(self) -> Likelihood:
        """p(y | f)."""
        ...

    @property
    def epsilon(self) -> float:
        """λ at a new point as a share of its mean variance; 0 for a mixture of members."""
        ...

    def prepare(self, inputs: Inputs, *, generator: torch.Generator | None = None) -> Prepared:
        """The part of a step that needs no member; a captured step computes it ahead, on a second stream."""
        ...

    def loss(
        self,
        outputs: Float[Tensor, "M N C"],
        weights: HasParts,
        batch: Batch,
        prepared: Prepared,
        *,
        generator: torch.Generator | None = None,
    ) -> Loss:
        """The loss, from the members' outputs on the batch and the measurement points and from their weights."""
        ...

    def posterior(self, outputs: Float[Tensor, "M N C"], coefficients: Coefficients | None = None) -> LowRankGaussian:
        """q(f) at new points, conditioned on the observations that `coefficients` summarise."""
        ...

    def predictive(
        self,
        outputs: Float[Tensor, "M N C"],
        *,
        coefficients: Coefficients | None = None,
        num_draws: int = 1000,
        generator: torch.Generator | None = None,
    ) -> Predictive:
        """The predictive distribution of new targets, independent of the other points in the call."""
        ...

    def draw(
        self, outputs: Float[Tensor, "M N C"], *, generator: torch.Generator | None = None
    ) -> Float[Tensor, "N C"]:
        """One function from the method's posterior, for Thompson sampling."""
        ...

    @classmethod
    def __subclasshook__(cls, other: type) -> bool:
        """By functions alone: from Python 3.12 on, isinstance does not see that a module has a likelihood."""
        functions = ("prepare", "loss", "posterior", "predictive", "draw")
        return all(hasattr(other, name) for name in functions) if cls is Method else NotImplemented


def require_method(method: object) -> None:
    """Raises TypeError for what is no method, such as its name.

    Example:
        >>> try:
        ...     require_method("DE-GP")
        ... except TypeError as error:
        ...     print(str(error).split(",")[0])
        a method must be a value such as degp.methods.de(degp.Gaussian())
    """
    if isinstance(method, type) or not isinstance(method, Method):
        raise TypeError(
            f"a method must be a value such as degp.methods.de(degp.Gaussian()), which knows its likelihood, but it is "
            f"{method!r}"
        )


def as_module(part: Method | Likelihood) -> nn.Module:
    """A method or likelihood as the module that it is; an empty one for a value without parameters and buffers."""
    return part if isinstance(part, nn.Module) else nn.Module()


def require_likelihood(likelihood: object) -> Likelihood:
    """The same likelihood; raises TypeError for what is none, such as its class."""
    if not isinstance(likelihood, Likelihood) or isinstance(likelihood, type):
        raise TypeError(
            f"a likelihood must be a value such as degp.Gaussian() or degp.Categorical(), but it is {likelihood!r}"
        )
    return likelihood


def batch_loss(ensemble: Ensemble, batch: Batch, method: Method, *, generator: torch.Generator | None = None) -> Loss:
    """The method's loss on a batch: prepare, evaluate the members, score. For training loops of your own.

        loss = batch_loss(ensemble, Batch(x, y, population=N), method)
        loss.total.backward()

    N is the size of the training set. Rows of a `Batch` of the whole set have it.
    """
    if not batch.stated:
        raise ValueError(
            f"a batch must state the size N of its training set, which scales the prior against the data, but this one "
            f"of {len(batch)} points does not; pass Batch(x, y, population=N), or rows of a Batch of the whole set"
        )
    prepared = method.prepare(batch.inputs, generator=generator)
    outputs = ensemble.joint_outputs(batch.inputs, prepared.measurement)
    return method.loss(outputs, ensemble, batch, prepared, generator=generator)


AnyMethod = TypeVar("AnyMethod", bound=Method)


def with_likelihood(method: AnyMethod, likelihood: Likelihood) -> AnyMethod:
    """The same method with another likelihood, for example at a fitted temperature; everything else is shared.

    Example:
        >>> with_likelihood(method, Gaussian(variance=0.5)).likelihood.variance.item()
        0.5
    """
    assert isinstance(method, nn.Module)
    other = copy.copy(method)
    other.__dict__["_modules"] = {**method._modules, "likelihood": likelihood}
    return other
