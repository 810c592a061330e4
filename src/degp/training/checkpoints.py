"""Checkpoints: the state of a run as safetensors and JSON, written atomically, never pickled."""

import hashlib
import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from torch.optim import Optimizer

from degp.methods.contract import as_module
from degp.runtime.execution import by_name
from degp.runtime.files import first_difference, misfit, new_folder, write_json, write_tensors
from degp.training import shards
from degp.training.averaging import average_statistics
from degp.training.history import History
from degp.training.step import TrainState
from degp.training.stopping import Best
from degp.training.trees import flatten, unflatten

__all__ = ["CheckpointError", "Checkpoints", "OtherRunError", "epoch_of"]

SCHEMA = 2
TENSORS, STATE = "state.safetensors", "state.json"
Plain = str | int | float | bool | None


class CheckpointError(ValueError):
    """A checkpoint cannot be used; the message says why, and which one can."""


class OtherRunError(CheckpointError):
    """A checkpoint is intact, but of another run."""


@dataclass(frozen=True)
class Checkpoints:
    """A folder of checkpoints, `step-00000120-epoch-000003` and so on.

    Args:
        folder: created when the first is saved.
        every: steps between two of them; None saves at the end and on Ctrl-C only, unless `seconds` is given.
        seconds: time between two of them, at most, so that no more work than this is lost if the process dies.
        keep: how many of the newest are kept.
        facts: plain values that identify the run, saved with it; a run with other facts cannot be resumed.
    """

    folder: Path | str
    every: int | None = None
    seconds: float | None = None
    keep: int = 2
    facts: Mapping[str, Plain] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.every is not None and self.every < 1:
            raise ValueError(
                f"every counts steps and must be at least 1, but it is {self.every}; None saves at the end"
            )
        if self.seconds is not None and not self.seconds > 0:
            raise ValueError(f"seconds between checkpoints must be positive, but they are {self.seconds}")
        if self.keep < 1:
            raise ValueError(f"keep is the number of checkpoints and must be at least 1, but it is {self.keep}")

    def of(self, facts: Mapping[str, Plain]) -> "Checkpoints":
        """The same folder, for a run that these facts identify."""
        return replace(self, facts={**self.facts, **facts})

    def start(self, state: TrainState, *, resume: bool) -> None:
        """Loads the newest checkpoint into the state, if there is one and `resume` is set; never overwrites a run."""
        newest = state.ensemble.mesh.world.agreed(self.newest())
        if newest is not None and not resume:
            raise CheckpointError(
                f"{self.folder} holds a run already, up to {newest.name}; pass resume=True to continue it, or "
                f"choose another folder"
            )
        if newest is not None:
            self.load(newest, state)

    def newest(self) -> Path | None:
        """The folder of the newest checkpoint."""
        return next(iter(self._all()), None)

    def is_due(self, state: TrainState, waited: float) -> bool:
        """Whether it is time for the next one, `waited` seconds of training after the last; agreed on by all ranks."""
        if self.every is not None and state.count % self.every == 0:
            return True
        return self.seconds is not None and state.ensemble.mesh.world.agreed(waited >= self.seconds)

    def save(self, state: TrainState) -> Path:
        """Saves the state under the name of its step, then deletes all but the `keep` newest.

        Every rank must call this; the first writes, and the others wait for it.
        """
        mesh, path = state.ensemble.mesh, Path(self.folder) / f"step-{state.count:08d}-epoch-{state.epoch:06d}"
        if mesh.world.agreed(path.exists()):
            return path  # a finished run that was resumed: nothing has changed
        snapshot = _snapshot(state) | {"facts": dict(self.facts)}
        return mesh.world.agreed(self._write(path, snapshot) if mesh.is_first else path)

    def _write(self, path: Path, snapshot: dict[str, Any]) -> Path:
        tensors: dict[str, Tensor] = {}
        tree = flatten(snapshot, tensors)
        with new_folder(path) as draft:
            write_tensors(draft / TENSORS, tensors)
            write_json(draft / STATE, {"schema": SCHEMA, "sha256": _digest(draft / TENSORS, tree), "state": tree})
        for old in self._all()[self.keep :]:
            shutil.rmtree(old, ignore_errors=True)
        return path

    def load(self, path: Path, state: TrainState) -> None:
        """Loads a checkpoint into the state; if that fails, the state is unchanged."""
        try:
            saved = _read(path)
            _require_same_facts(self.facts, saved.get("facts", {}))
            _restore(state, saved)
        except OtherRunError as error:
            raise OtherRunError(
                f"{path} cannot be used: {error}; choose another folder, or delete {self.folder} to start over"
            ) from None
        except CheckpointError as error:
            good = [other for other in self._all() if other != path and _is_readable(other)]
            advice = f"the last good one is {good[0]}; delete the first to use it" if good else "there is no other one"
            raise CheckpointError(f"{path} cannot be used: {error}; {advice}") from None

    def discard(self) -> None:
        """Deletes all checkpoints, and the folder if nothing else is in it."""
        for path in self._all():
            shutil.rmtree(path, ignore_errors=True)
        with suppress(OSError):
            Path(self.folder).rmdir()

    def _all(self) -> list[Path]:
        return sorted(Path(self.folder).glob("step-*"), reverse=True)


def epoch_of(checkpoint: Path) -> int:
    """The number of epochs done, from the checkpoint's name.

    Example:
        >>> epoch_of(Path("step-00000012-epoch-000006"))
        6
    """
    return int(checkpoint.name.rpartition("-")[2])


def _snapshot(state: TrainState) -> dict[str, Any]:
    """The state of the run, on the first rank; the same for any number of ranks."""
    average_statistics(state.ensemble)
    execution, device = state.ensemble.execution, state.generator.device
    return {
        "ensemble": shards.collected(state.ensemble, state.ensemble.state_dict()),
        "best": _best(state),
        "method": as_module(state.method).state_dict(),
        "classes": _classes(state),
        "optimizers": [shards.collected_optimizer(optimizer, state.ensemble) for optimizer in state.optimizers],
        "schedulers": [scheduler.state_dict() for scheduler in state.all_schedulers],
        "generator": state.generator.get_state(),
        "global_generator": torch.get_rng_state(),  # dropout draws from it
        "device_generator": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,  # and on a GPU from it
        "execution": execution.name if execution else None,  # another strategy is equal up to rounding only
        "history": state.history.records,
        **{name: getattr(state, name) for name in PLAIN},
    }


PLAIN = ("count", "epoch", "order", "batches", "position", "sums", "seconds")


def _restore(state: TrainState, saved: dict[str, Any]) -> None:
    _require_same_form("ensemble", shards.forms(state.ensemble), saved["ensemble"])
    _require_same_form("method", as_module(state.method).state_dict(), saved["method"])
    if _classes(state) != saved["classes"]:
        here, there = (", ".join(names) for names in (_classes(state), saved["classes"]))
        raise OtherRunError(f"its optimisers and schedulers are {there} and this run's {here}")
    _require_same_groups(state, saved["optimizers"])
    state.ensemble.load_state_dict(shards.own(state.ensemble, saved["ensemble"]))
    as_module(state.method).load_state_dict(saved["method"])
    best = saved["best"]
    state.best = Best(**best | {"ensemble": shards.own(state.ensemble, best["ensemble"])})
    for optimizer, theirs in zip(state.optimizers, saved["optimizers"], strict=True):
        _load_optimizer(optimizer, shards.own_optimizer(optimizer, state.ensemble, theirs))
    for scheduler, theirs in zip(state.all_schedulers, saved["schedulers"], strict=True):
        scheduler.load_state_dict(theirs)
    state.generator.set_state(saved["generator"])
    torch.set_rng_state(saved["global_generator"])
    if saved["device_generator"] is not None and state.generator.device.type == "cuda":
        torch.cuda.set_rng_state(saved["device_generator"], state.generator.device)
    state.ensemble.execution = by_name(saved["execution"]) or state.ensemble.execution
    state.history = History(saved["history"])
    for name in PLAIN:
        setattr(state, name, saved[name])


def _load_optimizer(optimizer: Optimizer, saved: dict[str, Any]) -> None:
    """Loads an optimiser's state exactly, and learning rates into the tensors that hold them.

    torch would replace these by tensors on the CPU, which a CUDA graph treats as constants; and it casts to the
    precision of the weights what an optimiser keeps in another, such as NAdam's product of momenta.
    """
    before = [{key: v for key, v in group.items() if isinstance(v, Tensor)} for group in optimizer.param_groups]
    optimizer.load_state_dict(saved)
    for group, tensors in zip(optimizer.param_groups, before, strict=True):
        for key, tensor in tensors.items():
            tensor.copy_(torch.as_tensor(group[key]))
            group[key] = tensor
    _restore_precision(optimizer, saved)


def _restore_precision(optimizer: Optimizer, saved: dict[str, Any]) -> None:
    """Gives each entry of the state the precision in which it was saved."""
    for group, theirs in zip(optimizer.param_groups, saved["param_groups"], strict=True):
        for parameter, index in zip(group["params"], theirs["params"], strict=True):
            own = optimizer.state.get(parameter, {})  # none for a weight that has not been stepped
            for key, kept in saved["state"].get(index, {}).items():
                if isinstance(kept, Tensor) and own[key].dtype != kept.dtype:
                    own[key] = kept.to(own[key].device)


def _classes(state: TrainState) -> list[str]:
    return [type(part).__name__ for part in (*state.optimizers, *state.all_schedulers)]


def _best(state: TrainState) -> dict[str, Any]:
    return vars(state.best) | {"ensemble": shards.collected(state.ensemble, state.best.ensemble)}


def _require_same_facts(own: Mapping[str, Plain], saved: Mapping[str, Plain]) -> None:
    if not own or not saved:
        return  # one of the runs has no facts to compare
    name = first_difference(own, saved)
    if name is not None:
        raise OtherRunError(f"it is of another run, whose {name} is {saved.get(name)} and this one's {own.get(name)}")


def _require_same_form(name: str, own: dict[str, Tensor], saved: dict[str, Tensor]) -> None:
    reason = misfit(own, saved, f"{name} ")
    if reason is not None:
        raise OtherRunError(f"it is of another model: {reason}")


def _require_same_groups(state: TrainState, saved: list[dict[str, Any]]) -> None:
    for own, theirs in zip(state.optimizers, saved, strict=True):
        sizes = [[len(group["params"]) for group in groups] for groups in (own.param_groups, theirs["param_groups"])]
        if sizes[0] != sizes[1]:
            raise OtherRunError(f"its optimiser has groups of {sizes[1]} parameters and this run's of {sizes[0]}")


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads((path / STATE).read_text(encoding="utf-8"))
        schema, digest, tree = content["schema"], content["sha256"], content["state"]
        if schema > SCHEMA:
            raise CheckpointError(f"it has schema {schema} and this version reads up to {SCHEMA}; update degp")
        if _digest(path / TENSORS, tree) != digest:
            raise CheckpointError(f"{TENSORS} or {STATE} is damaged: their checksum does not match")
        return _upgraded(unflatten(tree, load_file(path / TENSORS)))
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"it cannot be read ({type(error).__name__}: {error})") from None


def _upgraded(saved: dict[str, Any]) -> dict[str, Any]:
    """An older state, which may call the method an objective and lack the newer entries, in the current form."""
    if "objective" in saved:
        saved["method"] = saved.pop("objective")
    return {"best": vars(Best()), "device_generator": None} | saved


def _digest(tensors: Path, tree: Any) -> str:
    with tensors.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    digest.update(json.dumps(tree).encode())
    return digest.hexdigest()


def _is_readable(path: Path) -> bool:
    try:
        _read(path)
    except CheckpointError:
        return False
    return True
