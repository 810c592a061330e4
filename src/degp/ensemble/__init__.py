"""② Ensembles: M members evaluated together: independent, heads on a backbone, or light members of one network."""

from degp.ensemble.light import lora, rank_one
from degp.ensemble.members import Ensemble
from degp.ensemble.parts import HasParts, Part

__all__ = ["Ensemble", "HasParts", "Part", "lora", "rank_one"]
