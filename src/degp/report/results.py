"""Reproducible results: the numbers with their configuration, versions, hardware and commit."""

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from degp.runtime.files import read_json, write_json

__all__ = ["environment", "load_results", "require_fields", "save_results"]

Record = Mapping[str, Any]


def save_results(folder: Path | str, *, config: Record, records: Sequence[Record]) -> Path:
    """Writes `metrics.json`: a flat list of records, one per run, with the `config` and the `environment`.

    A `note` in the config of an existing `metrics.json` is kept.
    """
    path = Path(folder) / "metrics.json"
    config = dict(config) | _note(path)
    write_json(path, {"config": config, "environment": environment(), "records": [dict(r) for r in records]})
    return path


def load_results(folder: Path | str, *, fields: Sequence[str] = ()) -> dict[str, Any]:
    """The contents of `metrics.json`, as written by `save_results`.

    Args:
        fields: keys that every record must have.
    """
    path = Path(folder) / "metrics.json"
    results = read_json(path)
    parts = ("config", "records")
    missing = [part for part in parts if not isinstance(results, dict) or part not in results]
    if missing:
        raise ValueError(
            f"{path} must have {' and '.join(parts)}, but it has no {' and no '.join(missing)}; "
            f"restore it, or delete it"
        )
    require_fields(path, results["records"], fields)
    return results


def require_fields(path: Path, records: Any, fields: Sequence[str]) -> None:
    """Raises ValueError unless `records`, read from `path`, is a list of dicts that have all the fields."""
    if not isinstance(records, list):
        raise ValueError(f"{path} must have a list of records, but it has {records!r:.80}; restore it, or delete it")
    for number, record in enumerate(records):
        missing = [field for field in fields if not isinstance(record, dict) or field not in record]
        if missing:
            raise ValueError(
                f"every record of {path} must have {', '.join(fields)}, but record {number} has no "
                f"{', '.join(missing)}; restore the file, or delete it"
            )


def environment() -> dict[str, Any]:
    """Date, commit, versions, hardware and command of this process.

    Example:
        >>> sorted(environment())[:3]
        ['command', 'commit', 'cores']
    """
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
        "versions": {name: _version(name) for name in ("degp", "torch", "numpy")},
        "command": _command(),
    }


def _command() -> str:
    """The shell command that started this process."""
    module = getattr(sys.modules["__main__"], "__spec__", None)  # None if a script was started by its path
    program = [Path(sys.argv[0]).name] if module is None else ["python", "-m", module.name.removesuffix(".__main__")]
    return shlex.join([*program, *sys.argv[1:]])


def _note(path: Path) -> dict[str, Any]:
    try:
        config = read_json(path)["config"]
        return {"note": config["note"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _commit() -> str | None:
    """The commit of the working tree, marked if the tree has uncommitted changes; None outside a checkout.

    Changes under `results` do not count: each experiment would mark the next. For a copy of the tree without its
    history, the environment variable DEGP_COMMIT names the commit.
    """
    if "DEGP_COMMIT" in os.environ:
        return os.environ["DEGP_COMMIT"]
    try:
        commit = _git("rev-parse", "HEAD")
        changed = _git("diff", "--name-only", "HEAD", "--", ":/", ":(top,exclude,glob)**/results/**")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit}-dirty" if changed else commit


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], capture_output=True, text=True, check=True, timeout=10)
    return done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
