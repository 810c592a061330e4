"""The 19 corruptions of CIFAR-10-C at 5 severities, applied to clean images (Hendrycks & Dietterich 2019).

The benchmark set no seed, so a set made here agrees with the published one in distribution, not pixel by pixel.
"""

from experiments.data.corruptions.catalogue import CORRUPTIONS, corrupt
from experiments.data.corruptions.overlays import frost_overlays

__all__ = [
    "CORRUPTIONS",
    "corrupt",
    "frost_overlays",
]
