"""Tiles of our kernels for narrow convolutions on this GPU: which is the fastest, and how far behind are the next."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.convolutions import BURST, STAGES, burst, captured, drawn
from benchmarks.timing import in_turns

if TYPE_CHECKING:
    from degp.execution.triton_convolutions import Tile

PLACES, WARPS, ROWS = (32, 64, 128), (1, 2, 4, 8), (2, 3, 4)
SHOWN = 3  # of each kernel, the fastest first


def run() -> list[dict[str, Any]]:
    """Microseconds by pixels, warps and stages; "in use" are those in `degp.execution.triton_convolutions`."""
    if not torch.cuda.is_available():
        return [{"kernel": "needs a GPU"}]
    return [row for layers, channels, size in STAGES for row in _of_stage(layers, channels, size)]


def _of_stage(layers: int, channels: int, size: int) -> Iterator[dict[str, Any]]:
    from degp.execution import triton_convolutions as ours

    x, dy, stack = drawn(layers, channels, size)
    kernel = stack[:, 0].contiguous()
    for name, tiles, work in (
        ("forward", ours.FORWARD, partial(ours.narrow, x, kernel, False)),
        ("gradient by kernels", ours.GRADIENT, partial(ours.kernel_gradient, x, dy, kernel)),
        (f"{layers} with ReLUs", ours.CHAIN, partial(ours.chain, x, stack)),
    ):
        for tile, microseconds in _fastest(tiles, channels, size, work):
            yield {
                "kernel": f"{channels} channels: {name}",
                "pixels": tile.places,
                "warps": tile.warps,
                "stages": tile.stages,
                "µs": microseconds,
                "in use": "yes" if tile == tiles[channels] else "",
            }


def _fastest(
    tiles: "dict[int, Tile]", channels: int, size: int, work: Callable[[], object]
) -> "list[tuple[Tile, float]]":
    in_use = tiles[channels]
    graphs = {}
    for places, warps, stages in product(PLACES, WARPS, ROWS):
        tile = type(in_use)(places, warps, stages)
        if places < size or (places, warps) == (32, 8):
            continue
        try:
            tiles[channels] = tile
            graphs[tile] = captured(work)
        except Exception:  # more shared memory than there is, say: not among the fastest
            torch.cuda.synchronize()
        finally:
            tiles[channels] = in_use
    times = in_turns({str(tile): partial(burst, graph) for tile, graph in graphs.items()}, rounds=5)
    found = [(tile, 1e3 * times[str(tile)] / BURST) for tile in graphs]
    return sorted(found, key=lambda pair: pair[1])[:SHOWN]
