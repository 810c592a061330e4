"""Features of a frozen network, computed once: in memory, or in a file that later runs read."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from degp.data.batches import batches_of, count_of
from degp.ensemble.modes import evaluation
from degp.points import Inputs, count_points, take_points
from degp.runtime.execution import one_tensor
from degp.runtime.files import new_file
from degp.runtime.progress import BAR_AFTER, progress_bar
from degp.typing import Batch, joined

__all__ = ["cache_features", "features_of"]


@torch.no_grad()
def features_of(backbone: nn.Module, inputs: Inputs, *, batch_size: int = 512) -> Float[Tensor, "N ..."]:
    """The backbone's features in evaluation mode, `batch_size` points at a time; the backbone stays as it is.

    Example:
        >>> features_of(torch.nn.Linear(2, 5), data.inputs).shape
        torch.Size([24, 5])
    """
    if batch_size < 1:
        raise ValueError(f"batch_size is a number of points and must be at least 1, but it is {batch_size}")
    starts = range(0, max(count_points(inputs), 1), batch_size)  # a network of no points still has the shape
    with evaluation(backbone):
        return torch.cat([one_tensor(backbone(take_points(inputs, slice(i, i + batch_size)))) for i in starts])


def cache_features(
    backbone: nn.Module,
    data: Any,
    *,
    path: Path | str | None = None,
    batch_size: int = 512,
    total: int | None = None,
    progress: bool | None = None,
) -> Batch:
    """A training set of features instead of inputs: each point passes the backbone once.

        heads = Ensemble(make_head, 100, backbone=backbone)
        fit(heads.on_features(), cache_features(backbone, loader), method, epochs=50)

    Args:
        backbone: frozen, on the device where it is to run.
        data: a `Batch`, a Dataset, a DataLoader or an iterable of batches; random augmentation is drawn once per point.
        path: a safetensors file. If it exists, it is read and the backbone does not run; a file of another backbone is
            an error.
        batch_size: points at a time, where the data do not come in batches.
        total: number of points, for the progress bar.
        progress: a progress bar, after the first second; by default where the output is a terminal.

    Example:
        >>> features = cache_features(torch.nn.Linear(2, 5), data)
        >>> features.inputs.shape
        torch.Size([24, 5])
    """
    digest = _digest(backbone)
    device = next((tensor.device for tensor in (*backbone.parameters(), *backbone.buffers())), None)
    if path is not None and Path(path).exists():
        return _read(Path(path), digest, device)
    pieces = []
    with progress_bar(total or count_of(data), "point", progress, after=BAR_AFTER) as bar:
        for batch in batches_of(data, batch_size=batch_size, device=device):
            pieces.append(replace(batch, inputs=features_of(backbone, batch.inputs, batch_size=batch_size)))
            bar.update(len(batch))
    cached = joined(*pieces)
    if path is not None:
        with new_file(Path(path)) as draft:
            save_file(_tensors(cached), draft, {"backbone": digest})
    return cached


def _tensors(data: Batch) -> dict[str, Tensor]:
    weights = {} if data.weights is None else {"weights": data.weights.cpu()}
    return {"inputs": data.inputs.cpu(), "targets": data.targets.cpu(), **weights}


def _read(path: Path, digest: str, device: torch.device | None) -> Batch:
    with safe_open(path, framework="pt", device=str(device or "cpu")) as file:
        saved = (file.metadata() or {}).get("backbone")
        if saved != digest:
            raise ValueError(
                f"{path} must hold features of this backbone, but their checksum is {saved} and its own {digest}; "
                f"delete the file, or choose another"
            )
        return Batch(**{name: file.get_tensor(name) for name in file.keys()})


def _digest(backbone: nn.Module) -> str:
    """A checksum of the backbone's architecture, as it prints itself, and of its tensors."""
    digest = hashlib.sha256(str(backbone).encode())
    for name, tensor in backbone.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]
