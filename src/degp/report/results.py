"""Results that can be trusted later: the numbers beside the configuration, versions, hardware and commit."""

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

from degp.files import read_json, write_json

Record = Mapping[str, Any]


def save_results(folder: Path | str, *, config: Record, records: Sequence[Record]) -> Path:
    """Writes `metrics.json`: a flat list of records, one a run, beside the `config` and the `environment`.

    A `note` that somebody has written into the config of an earlier `metrics.json` stays.
    """
    path = Path(folder) / "metrics.json"
    config = dict(config) | _note(path)
    write_json(path, {"config": config, "environment": environment(), "records": [dict(r) for r in records]})
    return path


def load_results(folder: Path | str, *, fields: Sequence[str] = ()) -> dict[str, Any]:
    """What `save_results` wrote.

    Args:
        fields: what every record must have.
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
    """That what a file has is a list of records, each with all the fields."""
    if not isinstance(records, list):
        raise ValueError(f"{path} must have a list of records, but it has {records!r:.80}; restore it, or delete it")
    for number, record in enumerate(records):
        there = record if isinstance(record, dict) else {}
        missing = [field for field in fields if field not in there]
        if missing:
            raise ValueError(
                f"every record of {path} must have {', '.join(fields)}, but record {number} has no "
                f"{', '.join(missing)}; restore the file, or delete it"
            )


def environment() -> dict[str, Any]:
    """Where and with what the numbers came to be."""
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
    """What would do this again, in a shell."""
    module = getattr(sys.modules["__main__"], "__spec__", None)  # None where a script was started by its name
    program = [Path(sys.argv[0]).name] if module is None else ["python", "-m", module.name.removesuffix(".__main__")]
    return shlex.join([*program, *sys.argv[1:]])


def _note(path: Path) -> dict[str, Any]:
    try:
        config = read_json(path)["config"]
        return {"note": config["note"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _commit() -> str | None:
    """The commit of the working tree, marked where the tree has changes of its own; None outside a checkout.

    What experiments write, under `results`, is no such change: each run would mark the next. A copy of the tree without
    its history says where it is from in the environment variable DEGP_COMMIT.
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
