"""Agents in folders: tensors as safetensors, everything else as JSON, never pickled, written atomically.

`agent.json` names the tensor file by its checksum and is written last, so that a folder always holds one complete
state, also while an agent is saved over an earlier one.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from degp.decisions.bandits.problem import Problem
from degp.runtime.files import misfit, new_file, write_json

__all__ = ["AgentError", "Saved", "check_tensors", "read", "write"]

SCHEMA = 2
FACTS = "agent.json"


class AgentError(ValueError):
    """An agent cannot be saved or loaded.

    Example:
        >>> from degp.decisions.bandits import LinearAgent, load_agent
        >>> try:
        ...     agent = load_agent("agent")
        ... except AgentError:
        ...     agent = LinearAgent(Problem(num_features=4, num_actions=3))
    """


@dataclass(frozen=True)
class Saved:
    """An agent's class by name, its problem, its settings and its state."""

    agent: str
    problem: Problem
    settings: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


def write(folder: Path | str, saved: Saved) -> Path:
    """Writes an agent into a folder, replacing an earlier one."""
    folder = Path(folder)
    if folder.exists() and not (folder / FACTS).exists() and (folder.is_file() or any(folder.iterdir())):
        raise AgentError(f"{folder} must be new, empty or an agent, but it is something else; choose another name")
    facts = {"schema": SCHEMA, "agent": saved.agent, "problem": asdict(saved.problem), "settings": dict(saved.settings)}
    json.dumps(facts)  # fails before anything is written
    content = save({name: tensor.detach().cpu().contiguous().clone() for name, tensor in saved.tensors.items()})
    digest = hashlib.sha256(content).hexdigest()
    name = f"agent-{digest[:12]}.safetensors"
    with new_file(folder / name) as draft:
        draft.write_bytes(content)
    write_json(folder / FACTS, facts | {"tensors": name, "sha256": digest})
    for old in folder.glob("agent-*.safetensors"):
        if old.name != name:
            old.unlink()
    return folder


def read(folder: Path | str) -> Saved:
    """What `write` wrote, checked."""
    path = Path(folder) / FACTS
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        if facts["schema"] > SCHEMA:
            raise AgentError(f"{path} has schema {facts['schema']}, and this version reads up to {SCHEMA}; update degp")
        content = (Path(folder) / Path(facts["tensors"]).name).read_bytes()
        if hashlib.sha256(content).hexdigest() != facts["sha256"]:
            raise AgentError(f"the tensors in {folder} are damaged: their checksum is not the one in {FACTS}")
        return Saved(facts["agent"], Problem(**facts["problem"]), facts["settings"], load(content))
    except (OSError, KeyError, TypeError, AttributeError, ValueError, SafetensorError) as error:
        if isinstance(error, AgentError):
            raise
        raise AgentError(
            f"{folder} must be a folder that an agent's save wrote, but it cannot be read "
            f"({type(error).__name__}: {error}); copy it again"
        ) from None


def check_tensors(expected: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    """Raises AgentError where a saved tensor is missing or differs in shape or dtype."""
    difference = misfit(expected, saved)
    if difference is not None:
        raise AgentError(
            f"the tensors must be those of the agent that {FACTS} describes, but {difference}; copy the folder again"
        )
