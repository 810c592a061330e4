"""Narrow convolutions of ten ResNet-20s, members and prior, on 128 images in bf16: our kernels against cuDNN's."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.images import BANDWIDTH, B
from benchmarks.timing import in_turns
from degp.execution import chains, narrow

NETWORKS = 10
STAGES = ((6, 16, 32), (5, 32, 16))  # convolutions, channels, pixels of a row
BURST = 20


def run() -> list[dict[str, Any]]:
    """Milliseconds of one convolution, its two gradients, and of a prior's whole stage; how much faster ours is."""
    if not torch.cuda.is_available():
        return [{"work": "needs a GPU"}]
    torch.backends.cudnn.benchmark = True
    return [row for stage in STAGES for row in _stage(*stage)]


def _stage(layers: int, channels: int, size: int) -> list[dict[str, Any]]:
    from degp.execution import triton_convolutions as ours

    generator = torch.Generator("cuda").manual_seed(0)
    x, dy = torch.randn(2, B, size, size, NETWORKS * channels, device="cuda", generator=generator).bfloat16()
    stack = torch.randn(NETWORKS, layers, channels, 3, 3, channels, device="cuda", generator=generator)
    stack = (stack * (2 / (9 * channels)) ** 0.5).bfloat16()
    kernel, image = stack[:, 0].contiguous(), x.numel() * x.element_size()
    return [
        _compared(f"{channels} channels: {name}", own, plain, 1e3 * 2 * image / BANDWIDTH)
        for name, own, plain in (
            ("forward", _of(ours.narrow, x, kernel, False), _of(narrow.plain, x, kernel, False)),
            ("gradient by inputs", _of(ours.narrow, dy, kernel, True), _of(narrow.plain, dy, kernel, True)),
            (
                "gradient by kernels",
                _of(ours.kernel_gradient, x, dy, kernel),
                _of(narrow.plain_gradient, x, dy, kernel),
            ),
            (f"{layers} with ReLUs, forward", _of(ours.chain, x, stack), _of(chains.one_by_one, x, stack)),
        )
    ]


def _of(function: Callable[..., Tensor], *given: Tensor | bool) -> torch.cuda.CUDAGraph:
    """As in training, where no pass waits for the processor."""
    function(*given)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function(*given)
    return graph


def _compared(work: str, own: torch.cuda.CUDAGraph, plain: torch.cuda.CUDAGraph, floor: float) -> dict[str, Any]:
    """The floor is by memory traffic: two passes over the images."""
    times = in_turns({"own": partial(_burst, own), "plain": partial(_burst, plain)}, rounds=9)
    own_ms, plain_ms = times["own"] / BURST, times["plain"] / BURST
    return {
        "work": work,
        "cuDNN, ms": plain_ms,
        "ours, ms": own_ms,
        "times faster": plain_ms / own_ms,
        "× the floor": own_ms / floor,
    }


def _burst(graph: torch.cuda.CUDAGraph) -> None:
    for _ in range(BURST):
        graph.replay()
