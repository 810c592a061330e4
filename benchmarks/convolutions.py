"""Narrow convolutions of ten ResNet-20s, members and prior, on 128 images in bf16: our kernels against cuDNN's."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.images import BANDWIDTH, B
from benchmarks.timing import in_turns
from degp.runtime.kernels import chains, narrow

NETWORKS = 10
STAGES = ((6, 16, 32), (5, 32, 16))  # convolutions, channels, pixels per row
BURST = 20
Form = Callable[[], Tensor]


def run() -> list[dict[str, Any]]:
    """Milliseconds of one convolution, its two gradients, and of a prior's whole stage; the speed-up of our kernels."""
    torch.backends.cudnn.benchmark = True
    return [row for stage in STAGES for row in _stage(*stage)]


def drawn(layers: int, channels: int, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Images and gradients (N, H, W, M·C), and the kernels (M, L, C, 3, 3, C) of a stage."""
    generator = torch.Generator("cuda").manual_seed(0)
    x, dy = torch.randn(2, B, size, size, NETWORKS * channels, device="cuda", generator=generator).bfloat16()
    stack = torch.randn(NETWORKS, layers, channels, 3, 3, channels, device="cuda", generator=generator)
    return x, dy, (stack * (2 / (9 * channels)) ** 0.5).bfloat16()


def forms(layers: int, channels: int, size: int) -> dict[str, tuple[Form, Form]]:
    """The work of a stage by name: our kernel and the plain implementation, on the same numbers."""
    from degp.runtime.kernels import triton_convolutions as ours

    def both(own: Callable[..., Tensor], plain: Callable[..., Tensor], *given: Any) -> tuple[Form, Form]:
        return partial(own, *given), partial(plain, *given)

    x, dy, stack = drawn(layers, channels, size)
    kernel = stack[:, 0].contiguous()
    return {
        "forward": both(ours.narrow, narrow.plain, x, kernel, False),
        "gradient by inputs": both(ours.narrow, narrow.plain, dy, kernel, True),
        "gradient by kernels": both(ours.kernel_gradient, narrow.plain_gradient, x, dy, kernel),
        f"{layers} with ReLUs, forward": both(ours.chain, chains.one_by_one, x, stack),
    }


def captured(work: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """As in training, where no kernel waits for the CPU."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


def burst(graph: torch.cuda.CUDAGraph) -> None:
    """`BURST` consecutive passes."""
    for _ in range(BURST):
        graph.replay()


def _stage(layers: int, channels: int, size: int) -> list[dict[str, Any]]:
    images = B * size**2 * NETWORKS * channels * torch.bfloat16.itemsize
    floor = 1e3 * 2 * images / BANDWIDTH
    return [
        _compared(f"{channels} channels: {name}", captured(own), captured(plain), floor)
        for name, (own, plain) in forms(layers, channels, size).items()
    ]


def _compared(work: str, own: torch.cuda.CUDAGraph, plain: torch.cuda.CUDAGraph, floor: float) -> dict[str, Any]:
    """The floor is by memory traffic: two passes over the images."""
    times = in_turns({"own": partial(burst, own), "plain": partial(burst, plain)}, rounds=9)
    own_ms, plain_ms = times["own"] / BURST, times["plain"] / BURST
    return {
        "work": work,
        "cuDNN, ms": plain_ms,
        "ours, ms": own_ms,
        "times faster": plain_ms / own_ms,
        "× the floor": own_ms / floor,
    }
