"""The 10 corruptions of CIFAR-10-C̄ at 5 severities, applied to clean images (Mintun, Kirillov & Xie 2021).

They were selected for their dissimilarity to the corruptions of CIFAR-10-C. Hyper-parameters may therefore be chosen on
them without looking at a shift on which methods are compared. A set made here agrees with the published one in
distribution, not pixel by pixel, because the random numbers differ.
"""

from experiments.data.corruptions_bar.catalogue import CORRUPTIONS_BAR, corrupt_bar

__all__ = ["CORRUPTIONS_BAR", "corrupt_bar"]
