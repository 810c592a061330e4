"""② Ensembles: M members evaluated together, independent or on a shared backbone."""

from degp.ensemble.members import Ensemble
from degp.ensemble.parts import HasParts, Part

__all__ = ["Ensemble", "HasParts", "Part"]
