"""Trained members on disk: small, written atomically, and enough to predict without training again."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from degp.runtime.distributed import ALONE, Mesh
from degp.runtime.files import first_difference, new_file, write_json, write_tensors
from degp.training import CheckpointError, History
from degp.training.shards import collected
from degp.vision.fitting import Trained
from degp.vision.initialisation import initialise
from degp.vision.recipe import Recipe

__all__ = ["has_members", "load_members", "save_members"]

WEIGHTS, HISTORY, RECIPE = "members.safetensors", "history.json", "recipe.json"


def save_members(trained: Trained, folder: Path | str) -> Path:
    """Saves members, temperature, history, recipe and seed; weight arrays in float16, everything else exactly.

    BatchNorm's statistics and biases stay in float32: they are few, and their range is their own. Of several ranks all
    must call this; the first writes, and the others wait for it.
    """
    ensemble, folder = trained.ensemble, Path(folder)
    members = collected(ensemble, ensemble.state_dict())
    return ensemble.mesh.world.agreed(_write(trained, members, folder) if ensemble.mesh.is_first else folder)


def has_members(folder: Path | str) -> bool:
    """Whether `save_members` has written to this folder.

    Example:
        >>> has_members("run")  # True after save_members(trained, "run")
        False
    """
    return (Path(folder) / WEIGHTS).is_file()


def load_members(
    folder: Path | str, recipe: Recipe, *, seed: int, device: torch.device | str = "cpu", mesh: Mesh = ALONE
) -> Trained:
    """What `save_members` wrote, for the recipe and the seed of its training; of several ranks, each gets a block.

    For prediction: α of the method is 1, whatever the recipe's.
    """
    folder = Path(folder)
    ensemble, method = initialise(recipe, seed=seed, device=device)
    _require_same(recipe, seed, folder)
    try:
        tensors = load_file(folder / WEIGHTS)
        history = History(json.loads((folder / HISTORY).read_text(encoding="utf-8")))
        ensemble.load_state_dict(_part(tensors, "ensemble/"))
        trained = Trained(recipe, seed, ensemble.eval(), method, history)
        trained.likelihood.load_state_dict(_part(tensors, "likelihood/"))
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise CheckpointError(
            f"{folder} must hold members of the recipe's networks from save_members, but {type(error).__name__}: "
            f"{str(error).splitlines()[0]}; train again, or pass the recipe of their training"
        ) from None
    return replace(trained, ensemble=ensemble.split(mesh))


def _write(trained: Trained, members: dict[str, Tensor], folder: Path) -> Path:
    write_json(folder / HISTORY, trained.history.records)
    write_json(folder / RECIPE, trained.recipe.describe() | {"seed": trained.seed})
    tensors = {f"ensemble/{name}": _small(value) for name, value in members.items()}
    tensors |= {f"likelihood/{name}": value for name, value in trained.likelihood.state_dict().items()}
    with new_file(folder / WEIGHTS) as draft:  # the last file: where it exists, the others do
        write_tensors(draft, {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()})
    return folder


def _require_same(recipe: Recipe, seed: int, folder: Path) -> None:
    """Raises where members were trained by another recipe or seed; a folder without a recipe is accepted."""
    if not (folder / RECIPE).exists():
        return
    saved = _saved_recipe(folder)
    own = recipe.describe() | ({"seed": seed} if "seed" in saved else {})
    name = first_difference(own, saved)
    if name is not None:
        raise CheckpointError(
            f"{folder} holds members of another run, whose {name} is {saved.get(name)} and this one's "
            f"{own.get(name)}; pass the recipe and the seed of their training"
        )


def _saved_recipe(folder: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((folder / RECIPE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(
            f"{folder / RECIPE} must hold a recipe from save_members, but {type(error).__name__}: {error}; train again"
        ) from None


def _small(value: Tensor) -> Tensor:
    return value.half() if value.is_floating_point() and value.ndim > 2 else value


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
