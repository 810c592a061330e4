"""Methods by name, where users type one: estimators, command line, experiment tables."""

from collections.abc import Callable
from enum import StrEnum

import torch

from degp.ensemble import Ensemble
from degp.likelihoods import Likelihood
from degp.methods.functional import DEGP
from degp.methods.memberwise import Memberwise, de, rde, rms
from degp.priors.weights import WeightPrior

__all__ = ["Built", "Kind"]

Built = Memberwise | DEGP


class Kind(StrEnum):
    """A method by its name, where users type one: estimators, command line, experiment tables.

    Example:
        >>> Kind("degp").label, [kind.value for kind in Kind]
        ('DE-GP', ['de', 'rde', 'rms', 'degp'])
    """

    DE = "de"
    RDE = "rde"
    RMS = "rms"
    DEGP = "degp"

    @property
    def label(self) -> str:
        """The name in tables and figures."""
        return {Kind.DE: "DE", Kind.RDE: "rDE", Kind.RMS: "RMS", Kind.DEGP: "DE-GP"}[self]

    @classmethod
    def _missing_(cls, value: object) -> "Kind":
        raise ValueError(f"a method must be one of {', '.join(cls)}, but it is {value!r}")

    def build(
        self,
        likelihood: Likelihood,
        ensemble: Ensemble,
        weight_prior: WeightPrior,
        *,
        functional: Callable[[], Built],
        weight: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> Built:
        """The method of this name.

        Args:
            weight_prior: of the penalties of rDE and RMS.
            functional: makes DE-GP, whose prior the baselines do not need.
            weight: of these penalties.
            generator: of RMS's anchors.
        """
        match self:
            case Kind.DE:
                return de(likelihood)
            case Kind.RDE:
                return rde(likelihood, weight_prior, weight=weight)
            case Kind.RMS:
                return rms(likelihood, ensemble, weight_prior, weight=weight, generator=generator)
            case Kind.DEGP:
                return functional()
