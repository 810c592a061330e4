"""Deliberate bugs: each is applied to a copy of the tree, and the tests of its module must fail.

The bugs are listed in `mutants.toml`: a file, a text that occurs in it exactly once, the text that replaces it, and the
tests that should notice. A mutant is caught if these tests fail or hang, and survives if they pass.
"""

import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console

__all__ = ["Mutant", "Result", "apply", "campaign", "load_mutants", "main", "run_tests", "table"]

ROOT = Path(__file__).parents[1]
LIST = Path(__file__).with_suffix(".toml")
COPIED = ("src", "tests", "experiments", "benchmarks", "campaigns", "pyproject.toml", "README.md", "hatch_build.py")
IGNORED = shutil.ignore_patterns("__pycache__", "results", ".hypothesis")
REQUIRED = 0.95  # of all mutants must be caught
NO_SUCH_TEST = (4, 5)  # exit codes of pytest


@dataclass(frozen=True)
class Mutant:
    """A deliberate bug.

    Attributes:
        name: the module and the bug, such as "gaussian-kl-trace".
        bug: what is wrong, in a few words.
        file: relative to the root of the tree.
        original: a text that occurs in the file exactly once.
        mutated: the text that replaces it.
        tests: arguments of pytest: files, or single tests as file::name.
    """

    name: str
    bug: str
    file: str
    original: str
    mutated: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    """The fate of a mutant: "caught", "survived", or "invalid" if its tests fail without it or it does not apply."""

    mutant: Mutant
    outcome: str
    detail: str
    seconds: float


def main(
    only: Annotated[
        list[str] | None, typer.Option(help="Names to run, * matches any characters; may be repeated.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Mutants tested at the same time.", min=1)] = 1,
    timeout: Annotated[float, typer.Option(help="Seconds per mutant; a longer run counts as caught.")] = 300.0,
    out: Annotated[Path | None, typer.Option(help="Where to write the results as a Markdown table.")] = None,
) -> None:
    """Plant bugs one at a time and check that the tests notice."""
    console, start = Console(), time.perf_counter()
    mutants = selected(load_mutants(), only)
    results = []
    for result in campaign(mutants, jobs=jobs, timeout=timeout):
        results.append(result)
        console.print(
            f"{result.outcome:8} {result.seconds:6.1f} s  {result.mutant.name}: {result.mutant.bug} ({result.detail})",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
    caught = sum(result.outcome == "caught" for result in results)
    score = caught / len(results)
    console.print(
        f"{caught} of {len(results)} mutants caught ({100 * score:.1f} %) in {time.perf_counter() - start:.0f} s",
        highlight=False,
    )
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(table(results), encoding="utf-8")
    raise typer.Exit(0 if score >= REQUIRED else 1)


def load_mutants(path: Path = LIST) -> list[Mutant]:
    """All mutants of a list."""
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    return [Mutant(**entry | {"tests": tuple(entry["tests"])}) for entry in entries]


def selected(mutants: Sequence[Mutant], only: Sequence[str] | None) -> list[Mutant]:
    """The mutants whose names match one of the patterns; all of them without patterns."""
    chosen = [mutant for mutant in mutants if not only or any(fnmatch(mutant.name, pattern) for pattern in only)]
    if not chosen:
        raise typer.BadParameter(f"--only must match the name of a mutant, but {', '.join(only or [])} matches none")
    return chosen


def apply(mutant: Mutant, root: Path = ROOT) -> str:
    """The mutated source of the mutant's file."""
    source = (root / mutant.file).read_text(encoding="utf-8")
    count = source.count(mutant.original)
    if count != 1:
        raise ValueError(
            f"the original text of mutant {mutant.name!r} must occur exactly once in {mutant.file}, but it occurs "
            f"{count} times; correct campaigns/mutants.toml:\n{mutant.original}"
        )
    return source.replace(mutant.original, mutant.mutated)


def campaign(
    mutants: Iterable[Mutant], *, jobs: int = 1, timeout: float = 300.0, root: Path = ROOT
) -> Iterator[Result]:
    """The results in the order of the mutants; every job has its own copy of the tree."""
    baselines: dict[tuple[str, ...], str] = {}
    with TemporaryDirectory(prefix="degp-mutants-") as folder:
        trees: SimpleQueue[Path] = SimpleQueue()
        for job in range(jobs):
            trees.put(_copy(root, Path(folder) / str(job)))

        def test(mutant: Mutant) -> Result:
            tree = trees.get()
            try:
                return _test(mutant, tree, timeout, baselines)
            finally:
                trees.put(tree)

        with ThreadPoolExecutor(jobs) as pool:
            yield from pool.map(test, mutants)


def run_tests(tests: Sequence[str], tree: Path, timeout: float) -> tuple[int | None, str]:
    """The exit code of pytest on a tree (None after a timeout), and the failed test or the last line of its output."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(tree)]),
        "PYTHONDONTWRITEBYTECODE": "1",  # a cached file of the same second and size would hide a mutation
        "OMP_NUM_THREADS": "1",
        "CI": "1",  # hypothesis draws the same examples in every run
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]
    try:
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return None, f"no result after {timeout:g} s"
    lines = done.stdout.strip().splitlines() or ["no output"]
    return done.returncode, next((line for line in lines if line.startswith(("FAILED", "ERROR"))), lines[-1])


def table(results: Sequence[Result]) -> str:
    """The results as a Markdown table."""
    caught = sum(result.outcome == "caught" for result in results)
    lines = [f"{caught} of {len(results)} mutants caught.", "", "| file | bug | outcome |", "|---|---|---|"]
    lines += [f"| `{result.mutant.file}` | {result.mutant.bug} | {result.outcome} |" for result in results]
    return "\n".join(lines) + "\n"


def _test(mutant: Mutant, tree: Path, timeout: float, baselines: dict[tuple[str, ...], str]) -> Result:
    start = time.perf_counter()
    if mutant.tests not in baselines:
        code, line = run_tests(mutant.tests, tree, timeout)
        baselines[mutant.tests] = "" if code == 0 else f"the tests fail without the bug: {line}"
    if baselines[mutant.tests]:
        return Result(mutant, "invalid", baselines[mutant.tests], time.perf_counter() - start)
    path = tree / mutant.file
    try:
        original, mutated = path.read_text(encoding="utf-8"), apply(mutant, tree)
    except (OSError, ValueError) as error:
        return Result(mutant, "invalid", str(error), time.perf_counter() - start)
    path.write_text(mutated, encoding="utf-8")
    try:
        code, line = run_tests(mutant.tests, tree, timeout)
    finally:
        path.write_text(original, encoding="utf-8")
    outcome = "survived" if code == 0 else "invalid" if code in NO_SUCH_TEST else "caught"
    return Result(mutant, outcome, line, time.perf_counter() - start)


def _copy(root: Path, tree: Path) -> Path:
    tree.mkdir(parents=True)
    for name in COPIED:
        source = root / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=IGNORED)
        elif source.exists():
            shutil.copy2(source, tree / name)
    return tree
