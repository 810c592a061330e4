"""Ready-made networks; an ensemble takes any `torch.nn.Module` that maps (N, …) to (N, C)."""

from degp.nets.dense import Erf, mlp, mlp_features
from degp.nets.lenets import lenet, lenet_features
from degp.nets.resnets import lite_resnet_features, resnet, resnet_features

__all__ = [
    "Erf",
    "lenet",
    "lenet_features",
    "lite_resnet_features",
    "mlp",
    "mlp_features",
    "resnet",
    "resnet_features",
]
