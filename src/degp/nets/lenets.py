"""A LeNet-5 with wider layers, for images of 28 × 28 pixels."""

from torch import nn

__all__ = ["lenet", "lenet_features"]

FEATURES = 256


def lenet(num_classes: int = 10, *, in_channels: int = 1) -> nn.Sequential:
    """Two convolutions with BatchNorm, a hidden layer of 256, and a linear read-out.

    Example:
        >>> lenet(10)(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """
    norms = (nn.BatchNorm2d(32), nn.BatchNorm2d(64))
    return nn.Sequential(*_layers(in_channels, norms), nn.Linear(FEATURES, num_classes))


def lenet_features(*, in_channels: int = 1) -> nn.Sequential:
    """The same network without BatchNorm and read-out: for the prior.

    Example:
        >>> lenet_features()(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 256])
    """
    return nn.Sequential(*_layers(in_channels, ()))


def _layers(in_channels: int, norms: tuple[nn.Module, ...]) -> list[nn.Module]:
    first, second = norms or (nn.Identity(), nn.Identity())
    return [
        *(nn.Conv2d(in_channels, 32, 3, padding=1), first, nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3), second, nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * 6 * 6, FEATURES), nn.ReLU()),
    ]
