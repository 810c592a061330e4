"""Multilayer perceptrons, whole or without their read-out."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

__all__ = ["Erf", "mlp", "mlp_features"]


class Erf(nn.Module):
    """The error function, whose NN-GP is smooth (`priors.erf`).

    Example:
        >>> Erf()(torch.tensor([0.0, 3.0]))
        tensor([0.0000, 1.0000])
    """

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.erf(inputs)


def mlp(
    in_features: int,
    widths: Sequence[int],
    out_features: int,
    *,
    activation: Callable[[], nn.Module] = nn.ReLU,
    output_bias: bool = True,
) -> nn.Sequential:
    """Hidden layers of the given widths and a linear read-out; a linear model where there are none.

    Example:
        >>> mlp(3, [64, 64], 2)(torch.zeros(5, 3)).shape
        torch.Size([5, 2])
    """
    features = mlp_features(in_features, widths, activation=activation)
    last = widths[-1] if widths else in_features
    return nn.Sequential(*features, nn.Linear(last, out_features, bias=output_bias))


def mlp_features(
    in_features: int, widths: Sequence[int], *, activation: Callable[[], nn.Module] = nn.ReLU
) -> nn.Sequential:
    """The same network without its read-out; the identity where there are no hidden layers.

    Example:
        >>> mlp_features(3, [64, 32])(torch.zeros(5, 3)).shape
        torch.Size([5, 32])
    """
    layers: list[nn.Module] = []
    for fan_in, fan_out in zip((in_features, *widths), widths, strict=False):
        layers += [nn.Linear(fan_in, fan_out), activation()]
    return nn.Sequential(*layers)
