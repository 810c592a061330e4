"""Times and memory of `benchmarks/results`, as the page of the benchmarks shows them."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from degp.report import load_results
from experiments.pages.stored import table, where

__all__ = ["longest_fit", "measured", "rank_work", "ratio", "score", "times"]

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
HIDDEN = ("benchmark", "GFLOP/s of the members alone", "MiB of the deviations", "NLL of new points")


@cache
def results(name: str) -> dict[str, Any]:
    """The records of a benchmark, with their configuration and environment."""
    return load_results(RESULTS / name)


def times(name: str) -> str:
    """All records of a benchmark as a table; the columns are the keys of the first."""
    records = results(name)["records"]
    heads = [key for key in dict.fromkeys(key for record in records for key in record) if key not in HIDDEN]
    return table(heads, [[_shown(record.get(key, "")) for key in heads] for record in records])


def measured() -> str:
    """When, where and with which version each benchmark was run."""
    rows = []
    environments = {folder.name: results(folder.name)["environment"] for folder in sorted(RESULTS.iterdir())}
    for name, environment in sorted(environments.items(), key=lambda item: item[1]["date"]):
        machine = f"{environment['cores']} CPU cores" if environment["device"] == "CPU" else environment["device"]
        version, commit = f"torch {environment['versions']['torch']}", environment["commit"] or "unknown"
        rows.append([f"`{name}`", environment["date"][:10], f"`{commit[:7]}`", machine, version])
    return table(["benchmark", "date", "commit", "machine", "version"], rows)


def ratio(name: str, key: str, first: str, second: str, score: str) -> str:
    """How many times larger a score is in one record than in another, named by the value of a key.

    A comma within a value is written as a semicolon, since commas separate the arguments of a mark.
    """
    one, other = (_record(name, key, value)[score] for value in (first, second))
    return f"{one / other:.3g}"


def score(name: str, key: str, value: str, score: str) -> str:
    """A score of one record, named like those of `ratio`."""
    return _shown(_record(name, key, value)[score])


def longest_fit() -> str:
    """Seconds of the longest fit of the default regressor, up to the next ten."""
    return f"{10 * np.ceil(max(record['seconds'] for record in results('rows')['records']) / 10):.0f}"


def rank_work() -> str:
    """A rank's CPU time per step as a line in the number of its members, fitted by least squares."""
    records = [record for record in results("ranks")["records"] if "CPU ms per rank" in record]
    ranks = [int(record["blocks × replicas"].split(" × ")[0]) for record in records]
    members = [record["members"] / count for record, count in zip(records, ranks, strict=True)]
    slope, rest = np.polyfit(members, [record["CPU ms per rank"] for record in records], 1)
    return f"{slope:.1f} ms per member and {rest:.1f} ms"


def _record(name: str, key: str, value: str) -> dict[str, Any]:
    return next(iter(where(results(name)["records"], **{key: value.replace(";", ",")})))


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if isinstance(value, int) or value >= 1000 else f"{value:.3g}"
