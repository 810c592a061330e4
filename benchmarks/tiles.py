"""Tile sizes of our kernels for narrow convolutions on this GPU: the fastest, the next, and those in use."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import torch
from rich.progress import track
from torch import Tensor

from benchmarks.convolutions import BURST, STAGES, Form, burst, captured, forms
from benchmarks.timing import in_turns
from degp.runtime.kernels.measured import SLACK

if TYPE_CHECKING:
    from degp.runtime.kernels.triton_convolutions import Tile

PLACES, WARPS, ROWS = (32, 64, 128), (1, 2, 4, 8), (2, 3, 4)
SHOWN = 3  # per kernel, fastest first, besides the one in use


@dataclass(frozen=True)
class Kernel:
    """Work with one tile size: per heading of the table our kernel and the plain implementation."""

    name: str
    tiles: "dict[int, Tile]"
    forms: Mapping[str, tuple[Form, Form]]


def run() -> list[dict[str, Any]]:
    """Microseconds by pixels, warps and stages; "in use" are those in `degp.runtime.kernels.triton_convolutions`."""
    return [row for layers, channels, size in STAGES for row in _of_stage(layers, channels, size)]


def _of_stage(layers: int, channels: int, size: int) -> Iterator[dict[str, Any]]:
    for kernel in _kernels(layers, channels, size):
        in_use, found = kernel.tiles[channels], _measured(kernel, channels, size)
        fastest = sorted(found, key=lambda tile: sum(found[tile].values()))[:SHOWN]
        for tile in dict.fromkeys([*fastest, in_use]):
            yield {
                "kernel": f"{channels} channels: {kernel.name}",
                "pixels": tile.places,
                "warps": tile.warps,
                "stages": tile.stages,
                **found.get(tile, dict.fromkeys(kernel.forms, "fails")),
                "in use": "yes" if tile == in_use else "",
            }


def _kernels(layers: int, channels: int, size: int) -> tuple[Kernel, ...]:
    """The adjoint runs the kernel of the forward pass, with its tile: the choice must suit both."""
    from degp.runtime.kernels import triton_convolutions as ours

    forward, adjoint, gradient, chain = forms(layers, channels, size).values()
    return (
        Kernel("forward", ours.FORWARD, {"µs": forward, "adjoint, µs": adjoint}),
        Kernel("gradient by kernels", ours.GRADIENT, {"µs": gradient}),
        Kernel(f"{layers} with ReLUs", ours.CHAIN, {"µs": chain}),
    )


def _measured(kernel: Kernel, channels: int, size: int) -> "dict[Tile, dict[str, float]]":
    """Microseconds per heading, for the tiles that work."""
    in_use = kernel.tiles[channels]
    every = (type(in_use)(*sizes) for sizes in product(PLACES, WARPS, ROWS) if sizes[0] >= size)
    expected = {heading: plain() for heading, (_, plain) in kernel.forms.items()}
    # each is compiled first, which takes a second or more
    each = track(list(dict.fromkeys([in_use, *every])), f"{channels} channels: {kernel.name}", transient=True)
    graphs = {tile: _tried(kernel, channels, tile, expected) for tile in each}
    bursts = {f"{tile} {heading}": partial(burst, graph) for tile in graphs for heading, graph in graphs[tile].items()}
    times = in_turns(bursts, rounds=5)
    return {
        tile: {heading: 1e3 * times[f"{tile} {heading}"] / BURST for heading in own}
        for tile, own in graphs.items()
        if own
    }


def _tried(kernel: Kernel, channels: int, tile: "Tile", expected: Mapping[str, Tensor]) -> dict[str, Any]:
    """A graph per heading; none where one fails, or differs from the plain implementation."""
    in_use, kernel.tiles[channels] = kernel.tiles[channels], tile
    try:
        right = all(_is_close(own(), expected[heading]) for heading, (own, _) in kernel.forms.items())
        return {heading: captured(own) for heading, (own, _) in kernel.forms.items()} if right else {}
    except Exception:  # too little shared memory, for example
        torch.cuda.synchronize()
        return {}
    finally:
        kernel.tiles[channels] = in_use


def _is_close(found: Tensor, expected: Tensor) -> bool:
    difference = (found.float() - expected.float()).norm() / expected.float().norm()
    return difference.item() <= SLACK  # not so where it is NaN
