"""Results that can be trusted later: the numbers beside the configuration, versions, hardware and commit."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from degp.files import write_json

Record = Mapping[str, Any]


def save_results(folder: Path | str, *, config: Record, records: Sequence[Record]) -> Path:
    """Writes `metrics.json`: a flat list of records, one a run, beside the `config` and the `environment`."""
    path = Path(folder) / "metrics.json"
    write_json(path, {"config": dict(config), "environment": environment(), "records": [dict(r) for r in records]})
    return path


def load_results(folder: Path | str) -> dict[str, Any]:
    """What `save_results` wrote."""
    return json.loads((Path(folder) / "metrics.json").read_text(encoding="utf-8"))


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
        "command": Path(sys.argv[0]).name + " " + " ".join(sys.argv[1:]),
    }


def _commit() -> str | None:
    """The commit of the working tree, marked where the tree has changes of its own; None outside a checkout.

    A copy of the tree without its history says where it is from in the environment variable DEGP_COMMIT.
    """
    if "DEGP_COMMIT" in os.environ:
        return os.environ["DEGP_COMMIT"]
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"],
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return described.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
