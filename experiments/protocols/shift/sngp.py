"""SNGP (Liu et al., 2020): convolutions of bounded norm, and a Gaussian process on random features as output layer.

    g(x) = W φ(h(x)) / √(1 + c v(x)),   φ(h) = cos(h̄Ω + b),   v = φᵀ (rI + Σₙ φₙφₙᵀ)⁻¹ φ

h̄ is h with mean 0 and variance 1 over its features, and every convolution of h has a norm of at most 6. The settings
are those of the authors' experiments on CIFAR-10 (Uncertainty Baselines, Nado et al., 2021): 1024 orthogonal random
features, ridge r = 1, mean-field factor c = 25. The optimiser is that of the other methods, at the authors' rate of
0.05: at 0.1 the output layer, whose features have a squared norm of 512, is unstable.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from degp.vision import Trained
from experiments.protocols.random_features import RandomFeatures, precision_root, variances
from experiments.protocols.shift.sets import ShiftSets

__all__ = ["BoundedConvolution", "DistanceAware", "MeanField", "mean_field", "orthogonal_frequencies"]

BOUND, FEATURES, RIDGE, MEAN_FIELD = 6.0, 1024, 1.0, 25.0
FREQUENCY, LENGTH_SCALE = 0.05, math.sqrt(2)  # the initialiser's standard deviation, and the root of the kernel scale
SIZE = 500  # images at a time


class BoundedConvolution(nn.Conv2d):
    """A convolution with weights W min(1, c/‖W‖), ‖W‖ the operator norm on images of one size.

    One power iteration per training step estimates ‖W‖ (Gouk et al., 2021); it is a constant for back-propagation.

    Args:
        plain: the convolution.
        size: rows and columns of its inputs.
        bound: c.
    """

    direction: Tensor

    def __init__(self, plain: nn.Conv2d, size: tuple[int, int], bound: float = BOUND) -> None:
        super().__init__(
            plain.in_channels,
            plain.out_channels,
            plain.kernel_size,
            plain.stride,
            plain.padding,
            bias=plain.bias is not None,
        )
        self.bound = bound
        start = torch.randn(1, plain.in_channels, *size, generator=torch.Generator().manual_seed(0))
        self.register_buffer("direction", start / start.norm())

    def forward(self, x: Tensor) -> Tensor:
        factor = (self.bound / self.norm()).clamp_max(1).to(self.weight)
        return F.conv2d(x, self.weight * factor, self.bias, self.stride, self.padding)

    @torch.no_grad()
    def norm(self) -> Float[Tensor, ""]:
        """‖W v‖ for a unit vector v near the leading singular vector; in training v is moved towards it first."""
        weight = self.weight.detach().float()
        with torch.autocast(weight.device.type, enabled=False):
            image = F.conv2d(self.direction, weight, None, self.stride, self.padding)
            if self.training:
                back = torch.nn.grad.conv2d_input(self.direction.shape, weight, image, self.stride, self.padding)
                self.direction = back / back.norm()
                image = F.conv2d(self.direction, weight, None, self.stride, self.padding)
        return image.norm()


@dataclass(frozen=True)
class DistanceAware:
    """Makes an SNGP network of a network that ends in a linear layer.

    The random features are the same for all members: those of a fixed seed.
    """

    base: Callable[[], nn.Module]
    image: tuple[int, int, int] = (3, 32, 32)

    def __call__(self) -> nn.Sequential:
        *body, last = self.base().children()
        assert isinstance(last, nn.Linear)
        features = bounded(nn.Sequential(*body), torch.zeros(1, *self.image))
        generator = torch.Generator().manual_seed(0)
        frequencies = FREQUENCY / LENGTH_SCALE * orthogonal_frequencies(last.in_features, FEATURES, generator)
        return nn.Sequential(
            *features,
            nn.LayerNorm(last.in_features, elementwise_affine=False),
            RandomFeatures(frequencies, generator),
            nn.Linear(FEATURES, last.out_features, bias=False),
        )


def bounded(network: nn.Sequential, example: Tensor) -> nn.Sequential:
    """The network with a `BoundedConvolution` for each convolution, by the sizes of their inputs on an example."""
    sizes: dict[nn.Module, tuple[int, int]] = {}
    convolutions = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d)]
    hooks = [
        layer.register_forward_pre_hook(lambda layer, given: sizes.update({layer: tuple(given[0].shape[2:])}))
        for layer in convolutions
    ]
    with torch.no_grad():
        network.eval()(example)
    for hook in hooks:
        hook.remove()
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Conv2d):
                setattr(parent, name, BoundedConvolution(child, sizes[child]))
    return network.train()


def orthogonal_frequencies(
    dimensions: int, count: int, generator: torch.Generator | None = None
) -> Float[Tensor, "D K"]:
    """Columns of blocks of random rotations, with the lengths of normal vectors (Yu et al., 2016).

    Each column is a standard normal vector; those of a block are orthogonal.
    """
    blocks = [
        torch.linalg.qr(torch.randn(dimensions, dimensions, generator=generator)).Q
        for _ in range(-(-count // dimensions))
    ]
    lengths = torch.randn(dimensions, count, generator=generator).norm(dim=0)
    return torch.cat(blocks, dim=1)[:, :count] * lengths


@dataclass(frozen=True)
class MeanField(Trained):
    """Trained SNGP networks, each with its posterior of the output layer."""

    roots: tuple[Float[Tensor, "K K"], ...]

    @torch.no_grad()
    def outputs(
        self, images: UInt8[Tensor, "N channels H W"], *, batch_size: int | None = None, progress: bool | None = None
    ) -> Float[Tensor, "M N C"]:
        """The logits' mean-field approximation: W φ / √(1 + c v)."""
        members = zip(self.ensemble.to_modules(), self.roots, strict=True)
        return torch.stack([self._member(network.eval(), root, images) for network, root in members])

    def _member(self, network: nn.Module, root: Float[Tensor, "K K"], images: Tensor) -> Float[Tensor, "N C"]:
        assert isinstance(network, nn.Sequential)
        pieces = []
        for phi in _features(self, network, images):
            pieces.append(network[-1](phi) / (1 + MEAN_FIELD * variances(root, phi))[:, None].sqrt())
        return torch.cat(pieces)


def mean_field(trained: Trained, sets: ShiftSets) -> Trained:
    """Trained SNGP networks with their posterior given all training images."""
    with torch.no_grad():
        roots = [
            precision_root(torch.cat(_features(trained, network.eval(), sets.train.inputs)), RIDGE)
            for network in trained.ensemble.to_modules()
        ]
    return MeanField(**vars(trained), roots=tuple(roots))


def _features(trained: Trained, network: nn.Module, images: UInt8[Tensor, "N channels H W"]) -> list[Tensor]:
    """φ(h(x)) of the images, in pieces."""
    assert isinstance(network, nn.Sequential)
    normalise = trained.recipe.normalise(images.device)
    return [network[:-1](normalise(piece)) for piece in images.split(SIZE)]
