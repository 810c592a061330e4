"""The results of image runs on disk: several processes may add to one folder at the same time."""

import fcntl
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from degp.report import environment, load_results, save_results
from degp.report.results import require_fields
from degp.runtime.files import read_json, write_json

Facts = Mapping[str, Any]
Records = list[dict[str, Any]]
FACTS = ("network", "method", "alpha", "beta", "prior", "members", "epochs", "seed")  # of every record and curve
# what distinguishes runs, in the order of their folders' names; older records have fewer
DISTINCT = (*FACTS[:5], "temperature_start", *FACTS[5:], "context", "augmentation")


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """A block that only one process at a time runs for this folder; the others wait. A killed process lets go."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def load_records(folder: Path) -> Records:
    """The records of metrics.json; none where there is no such file."""
    return load_results(folder, fields=FACTS)["records"] if (folder / "metrics.json").exists() else []


def load_rows(path: Path, fields: tuple[str, ...] = ()) -> Records:
    """The rows of a JSON file, such as curves.json, each with its run's facts; none where there is no such file."""
    rows = read_json(path) if path.exists() else []
    require_fields(path, rows, (*FACTS, *fields))
    return rows


def add_record(folder: Path, facts: Facts, scores: Facts, config: Facts) -> None:
    """Adds a run's record to metrics.json, in place of an earlier one."""
    where = {key: environment()[key] for key in ("commit", "device")}
    with alone(folder):
        others = without(load_records(folder), facts)
        save_results(folder, config=config, records=[*others, {**facts, **finite_or_none(scores), **where}])


def add_rows(path: Path, facts: Facts, rows: Records) -> None:
    """Adds a run's rows to a JSON file, in place of earlier ones."""
    with alone(path.parent):
        write_json(path, [*without(load_rows(path), facts), *({**facts, **finite_or_none(row)} for row in rows)])


def without(records: Records, facts: Facts) -> Records:
    """The records of other runs."""
    return [record for record in records if not agrees(record, facts)]


def agrees(record: Facts, facts: Facts) -> bool:
    """Whether a record is of the run with these facts."""
    return all(record.get(key) == value for key, value in facts.items())


def name_of(facts: Facts) -> str:
    """What distinguishes a run, as the name of a file or folder."""
    words = [f"{key}-{facts[key]}" for key in DISTINCT if facts.get(key) is not None]
    return re.sub(r"[^\w.-]+", "-", "_".join(words))


def finite_or_none(values: Facts) -> dict[str, Any]:
    """The values, also those in lists, with None for NaN and infinity, which JSON does not have."""
    return {
        key: [_finite(v) for v in value] if isinstance(value, list) else _finite(value) for key, value in values.items()
    }


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
