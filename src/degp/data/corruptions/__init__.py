"""The 19 corruptions of CIFAR-10-C at 5 severities, made anew from clean images (Hendrycks & Dietterich 2019).

The benchmark set no seed, so a set made here agrees with the published one in distribution, not pixel by pixel.
"""

from degp.data.corruptions.catalogue import CORRUPTIONS as CORRUPTIONS
from degp.data.corruptions.catalogue import corrupt as corrupt
from degp.data.corruptions.overlays import frost_overlays as frost_overlays
