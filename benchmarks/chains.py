"""The stages of ten prior networks, lite ResNet-20s, on 128 images in bf16: one kernel against its convolutions."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.images import BANDWIDTH, B
from benchmarks.timing import in_turns
from degp.execution import chains

NETWORKS = 10
STAGES = ((6, 16, 32), (5, 32, 16), (5, 64, 8))  # convolutions, channels, pixels of a row
BURST = 20


def run() -> list[dict[str, Any]]:
    """Milliseconds a stage, how much faster one kernel is, and both against reading and writing the images once."""
    if not torch.cuda.is_available():
        return [{"stage": "needs a GPU"}]
    from degp.execution import chain_kernel

    torch.backends.cudnn.benchmark = True
    rows = []
    for layers, channels, size in STAGES:
        x, kernels = _stage(layers, channels, size)
        ways = {"at once": chain_kernel.launch, "one by one": chains._one_by_one}
        bursts = {name: partial(_burst, _captured(way, x, kernels)) for name, way in ways.items()}
        ms = {name: time / BURST for name, time in in_turns(bursts, rounds=9).items()}
        floor = 1e3 * 2 * x.numel() * x.element_size() / BANDWIDTH
        rows.append(
            {
                "stage": f"{layers} convolutions of {channels} channels, {size} × {size} pixels",
                "one by one, ms": ms["one by one"],
                "one kernel, ms": ms["at once"],
                "times faster": ms["one by one"] / ms["at once"],
                "× the floor": ms["at once"] / floor,
            }
        )
    return rows


def _stage(layers: int, channels: int, size: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator("cuda").manual_seed(0)
    x = torch.randn(B, size, size, NETWORKS * channels, device="cuda", generator=generator).relu()
    kernels = torch.randn(NETWORKS, layers, channels, channels, 3, 3, device="cuda", generator=generator)
    return x.bfloat16(), (kernels * (2 / (9 * channels)) ** 0.5).bfloat16()


def _captured(way: chains.Together, x: Tensor, kernels: Tensor) -> torch.cuda.CUDAGraph:
    """As in training, where no pass waits for the processor."""
    way(x, kernels)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        way(x, kernels)
    return graph


def _burst(graph: torch.cuda.CUDAGraph) -> None:
    for _ in range(BURST):
        graph.replay()
