"""Networks to start from; any `torch.nn.Module` that maps (N, …) to (N, C) will do as well."""

from degp.nets.lenet import lenet as lenet
from degp.nets.lenet import lenet_features as lenet_features
from degp.nets.mlp import mlp as mlp
from degp.nets.mlp import mlp_features as mlp_features
from degp.nets.resnet import lite_resnet_features as lite_resnet_features
from degp.nets.resnet import resnet as resnet
from degp.nets.resnet import resnet_features as resnet_features
