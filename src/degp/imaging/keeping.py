"""Trained members on disk: small, whole or not there, and enough to use them without training again."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from degp.distributed import ALONE, Mesh
from degp.files import first_difference, new_file, write_json, write_tensors
from degp.imaging.recipe import Recipe
from degp.imaging.start import start
from degp.imaging.training import Trained
from degp.training import CheckpointError, History, blocks

WEIGHTS, HISTORY, RECIPE = "members.safetensors", "history.json", "recipe.json"


def keep(trained: Trained, folder: Path | str) -> Path:
    """Writes the members, the temperature, the history, recipe and seed; weight arrays in float16, the rest as it is.

    BatchNorm's statistics and biases stay in float32: they are few, and their range is theirs. Of several ranks all
    must call this; the first writes, and the others wait for it.
    """
    mesh, members = trained.ensemble.mesh, blocks.collected(trained.ensemble)
    return mesh.world.agreed(_write(trained, members, Path(folder)) if mesh.is_first else Path(folder))


def is_kept(folder: Path | str) -> bool:
    """Whether a folder has members that `keep` wrote."""
    return (Path(folder) / WEIGHTS).is_file()


def load_kept(
    folder: Path | str, recipe: Recipe, *, seed: int, device: torch.device | str = "cpu", mesh: Mesh = ALONE
) -> Trained:
    """What `keep` wrote, under the recipe and the seed that it was trained by; of several ranks, a block on each."""
    folder = Path(folder)
    ensemble, objective = start(recipe, seed=seed, device=device)
    _require_same(recipe, seed, folder)
    try:
        tensors = load_file(folder / WEIGHTS)
        history = History(json.loads((folder / HISTORY).read_text(encoding="utf-8")))
        ensemble.load_state_dict(_part(tensors, "ensemble/"))
        trained = Trained(recipe, seed, ensemble.eval(), objective, history)
        trained.likelihood.load_state_dict(_part(tensors, "likelihood/"))
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise CheckpointError(
            f"{folder} must hold members of the recipe's networks, as keep wrote them, but {type(error).__name__}: "
            f"{str(error).splitlines()[0]}; train again, or give the recipe that they were trained by"
        ) from None
    return replace(trained, ensemble=ensemble.split(mesh))


def _write(trained: Trained, members: dict[str, Tensor], folder: Path) -> Path:
    write_json(folder / HISTORY, trained.history.records)
    write_json(folder / RECIPE, trained.recipe.describe() | {"seed": trained.seed})
    tensors = {f"ensemble/{name}": _small(value) for name, value in members.items()}
    tensors |= {f"likelihood/{name}": value for name, value in trained.likelihood.state_dict().items()}
    with new_file(folder / WEIGHTS) as draft:  # the last file: where it is, the others are too
        write_tensors(draft, {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()})
    return folder


def _require_same(recipe: Recipe, seed: int, folder: Path) -> None:
    """Raises where members were trained by another recipe or seed; where none is written, nothing is known."""
    if not (folder / RECIPE).exists():
        return
    there = _recipe_in(folder)
    here = recipe.describe() | ({"seed": seed} if "seed" in there else {})
    name = first_difference(here, there)
    if name is not None:
        raise CheckpointError(
            f"{folder} holds members of another run, whose {name} is {there.get(name)} and this one's "
            f"{here.get(name)}; give the recipe and the seed that they were trained by"
        )


def _recipe_in(folder: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((folder / RECIPE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(
            f"{folder / RECIPE} must hold a recipe as keep wrote it, but {type(error).__name__}: {error}; train again"
        ) from None


def _small(value: Tensor) -> Tensor:
    return value.half() if value.is_floating_point() and value.ndim > 2 else value


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
