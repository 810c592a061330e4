"""② Ensembles: M members evaluated together: independent, heads on a backbone, or light members of one network."""

from degp.ensemble.light import lora, rank_one
from degp.ensemble.members import Ensemble
from degp.ensemble.parts import HasParts, Part
from degp.ensemble.unpacking import Unpacked

__all__ = ["Ensemble", "HasParts", "Part", "Unpacked", "lora", "rank_one"]
