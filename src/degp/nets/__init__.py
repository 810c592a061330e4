"""Networks to start from; any `torch.nn.Module` that maps (N, …) to (N, C) will do as well."""

from degp.nets.mlp import mlp as mlp
from degp.nets.mlp import mlp_features as mlp_features
