"""Predictions with their uncertainty: an ensemble in torch, and its exported graph in onnxruntime."""

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.timing import in_turns
from degp import Categorical, Ensemble, lora, methods, predict, priors, rank_one
from degp.graph import export_ensemble
from degp.nets import mlp


def run() -> list[dict[str, Any]]:
    """Milliseconds for the classes of 1 and 64 points under 1,000 draws; `ratio` is torch ÷ onnxruntime, in one run."""
    method = methods.degp(Categorical(), priors.NNGP(1))
    return [record for name, ensemble, inputs in _cases() for record in _compare(name, ensemble, method, inputs)]


def _cases() -> Iterator[tuple[str, Ensemble, Tensor]]:
    torch.manual_seed(0)
    rows, images = torch.randn(64, 32), torch.randn(64, 3, 32, 32)
    tokens = torch.randint(100, (64, 32))
    yield "ten MLPs 32-100-100-10", Ensemble(lambda: mlp(32, (100, 100), 10), 10), rows
    yield "ten BatchNorm CNNs", Ensemble(_cnn, 10), images
    yield "five Transformers", Ensemble(_Transformer, 5), tokens
    body = _cnn()[:-1].requires_grad_(False)
    yield "100 heads on a CNN", Ensemble(lambda: mlp(32, (64,), 10), 100, backbone=body), images
    yield "20 rank-one MLPs", rank_one(mlp(32, (100, 100), 10), 20), rows
    yield "ten LoRA Transformers", lora(_Transformer(), 10, layers="*linear?"), tokens


def _compare(name: str, ensemble: Ensemble, method: methods.Method, inputs: Tensor) -> Iterator[dict[str, Any]]:
    import onnxruntime

    ensemble(inputs)  # BatchNorm sees data
    ensemble.eval()
    with tempfile.TemporaryDirectory() as folder:
        path = export_ensemble(ensemble, method, inputs, Path(folder) / "model.onnx")
        size, session = path.stat().st_size / 2**20, onnxruntime.InferenceSession(str(path))
    for count in (1, len(inputs)):
        few = inputs[:count]
        work: dict[str, Callable[[], object]] = {
            "torch": partial(predict, ensemble, few, method),
            "onnxruntime": partial(session.run, None, {session.get_inputs()[0].name: few.numpy()}),
        }
        times = in_turns(work)
        milliseconds = {f"{key}, ms": value for key, value in times.items()}
        ratio = times["torch"] / times["onnxruntime"]
        yield {"ensemble": name, "points": count, **milliseconds, "ratio": ratio, "file, MiB": size}


def _cnn() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        nn.Linear(32, 10),
    )


class _Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.readout = nn.Embedding(100, 64), nn.Linear(64, 10)
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.readout(self.encoder(self.embedding(tokens)).mean(1))
