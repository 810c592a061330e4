"""Light members on a trained network, in one call: cached features, prior scales by evidence, DE-GP heads."""

from degp.attached.attaching import attach
from degp.attached.predictor import Attached

__all__ = ["Attached", "attach"]
