"""A trained network up to one of its layers, as a frozen backbone of heads."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from degp.ensemble.layers import with_layers
from degp.ensemble.stacking import replaced
from degp.ensemble.unpacking import Unpacked
from degp.points import Inputs

__all__ = ["Cut", "bare"]


@dataclass(frozen=True)
class Cut:
    """How a network becomes a backbone, to be done again to another network of its architecture.

    Attributes:
        layer: the name of the layer that heads replace, in `named_modules`.
        is_end: whether the network's outputs are the layer's. Else, as with a softmax, what follows is left out.
        in_single: whether features become float32: in half precision, Adam's squares and small updates are zero.
        output: of `Unpacked`, where the network is called through it.
    """

    layer: str
    is_end: bool = True
    in_single: bool = False
    output: str | int | None = None

    def called(self, network: nn.Module) -> nn.Module:
        """The network as it is called, with the layer in it."""
        known = bare(network)
        if self.output is not None and not isinstance(known, Unpacked):
            known = Unpacked(known, self.output)
        if self.layer not in dict(known.named_modules()):
            raise ValueError(
                f"the network must be the one that members were attached to, with a layer {self.layer!r}, but this "
                f"{type(network).__name__} has none; pass the same architecture as network=…"
            )
        return known

    def backbone(self, network: nn.Module) -> nn.Module:
        """The network without the layer: frozen, in evaluation mode, with the network's own weights."""
        known = self.called(network)
        copied = replaced(known, lambda tensors: tensors[0].detach(), [known]).requires_grad_(False)
        if self.is_end:
            body = with_layers(copied, lambda key, layer: nn.Identity() if key == self.layer else None)
        else:
            body = _UpTo(copied, self.layer)
        return (_InSingle(body) if self.in_single else body).eval()


class _UpTo(nn.Module):
    """What a layer of a network gets, whatever the network makes of its outputs; for a convolution the spatial mean.

    Args:
        network: is changed.
        name: of the layer, which is called once.
    """

    def __init__(self, network: nn.Module, name: str) -> None:
        super().__init__()
        self.tapped = (_Tap(network.get_submodule(name)),)  # in a tuple: the network has it as a submodule
        self.network = with_layers(network, lambda key, layer: self.tapped[0] if key == name else None)

    def forward(self, inputs: Inputs) -> Float[Tensor, "N D"]:
        taken = self.tapped[0].taken
        try:
            self.network(inputs)
            (features,) = taken
        finally:
            taken.clear()
        return features.flatten(2).mean(2) if features.ndim > 2 else features


class _InSingle(nn.Module):
    """A network's features in single precision."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Inputs) -> Float[Tensor, "N D"]:
        return self.network(inputs).float()


class _Tap(nn.Module):
    """A layer that keeps its inputs until they are taken; a graph cannot be left before its end."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.taken: list[Tensor] = []

    def forward(self, features: Tensor) -> Tensor:
        self.taken.append(features)
        return self.layer(features)


def bare(network: nn.Module) -> nn.Module:
    """The network inside the wrappers of torch.compile and DataParallel, whose layers have the network's own names."""
    network = getattr(network, "_orig_mod", network)
    if isinstance(network, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        return bare(network.module)
    return network
