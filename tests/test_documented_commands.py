"""Every command on a page can be run: its program, subcommands, options, targets, extras and files exist."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from benchmarks import __main__ as benchmarks
from campaigns.__main__ import app as campaigns
from degp.cli import app as degp
from experiments.__main__ import app as experiments

PROJECT = Path(__file__).parents[1]
PAGES = sorted(
    path.relative_to(PROJECT).as_posix()
    for path in (*PROJECT.glob("*.md"), *PROJECT.glob("*/README.md"), *PROJECT.glob("docs/**/*.md"))
    if path.name != "CHANGELOG.md"  # has old commands too
    if not {"_build", "generated"} & {*path.parts}
)
BASH = re.compile(r"^```bash\n(.*?)^```", re.DOTALL | re.MULTILINE)
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"`((?:degp|make|python -m|pip install|torchrun) [^`]+)`")
PLACEHOLDER = re.compile(r"…|[A-Z]+")

timing = typer.Typer()
timing.command()(benchmarks.main)
PROGRAMS = {"degp": degp, "experiments": experiments, "campaigns": campaigns, "benchmarks": timing}
TARGETS = re.findall(r"\w[\w-]*", re.search(r"^\.PHONY: (.*)", (PROJECT / "Makefile").read_text(), re.MULTILINE)[1])
EXTRAS = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def commands_in(text: str) -> list[str]:
    """Lines of bash, without comments, and code within the text that begins with a program."""
    lines = [line.partition(" #")[0].strip() for block in BASH.findall(text) for line in block.splitlines()]
    return [line for line in lines if line] + [" ".join(span.split()) for span in SPAN.findall(FENCED.sub("", text))]


def faults(command: str) -> Iterator[str]:
    """What is wrong with a command."""
    program, *words = shlex.split(command)
    if program in ("python", "torchrun"):
        if "-m" not in words:
            return  # a program of the reader
        program, *words = words[words.index("-m") + 1 :]
    if program in PROGRAMS:
        yield from _faults_of_ours(program, words)
    elif program == "make":
        yield from (f"no target {word}" for word in words if "=" not in word and word not in TARGETS)
    elif program == "pip":
        named = re.findall(r"^(?:\.|degp)\[(.*)\]$", "\n".join(words), re.MULTILINE)
        yield from (f"no extra {extra}" for names in named for extra in names.split(",") if extra not in EXTRAS)
    elif not (PROJECT / f"{program.replace('.', '/')}.py").exists() and not (PROJECT / program).exists():
        yield f"no program {program}"


def _faults_of_ours(program: str, words: list[str]) -> Iterator[str]:
    command = typer.main.get_command(PROGRAMS[program])
    while hasattr(command, "commands"):
        name, *words = words or ["--help"]
        if name == "--help" or PLACEHOLDER.fullmatch(name):
            return
        if name not in command.commands:
            yield f"no command {name}"
            return
        command = command.commands[name]
    known = {option for parameter in command.params for option in parameter.opts} | {"--help", "[OPTIONS]"}
    yield from (f"no option {word}" for word in words if word.startswith("--") and word.partition("=")[0] not in known)
    if program == "benchmarks" and not PLACEHOLDER.fullmatch(words[0]) and words[0] not in benchmarks.BENCHMARKS:
        yield f"no benchmark {words[0]}"


@pytest.mark.parametrize("page", PAGES)
def test_commands_on_the_page_exist(page):
    commands = commands_in((PROJECT / page).read_text(encoding="utf-8"))
    assert not {command: found for command in commands if (found := list(faults(command)))}


def test_pages_have_commands():
    found = {page: commands_in((PROJECT / page).read_text(encoding="utf-8")) for page in PAGES}
    assert sum(map(len, found.values())) > 60
    programs = ("README.md", "make"), ("docs/get_started.md", "pip"), ("docs/guide/command_line.md", "degp")
    for page, program in (*programs, ("experiments/README.md", "python"), ("docs/gallery/many_gpus.md", "torchrun")):
        assert any(command.startswith(f"{program} ") for command in found[page]), page


@pytest.mark.parametrize(
    "command, fault",
    [
        ("degp fit houses.csv --targget price", "no option --targget"),
        ("degp fitt houses.csv", "no command fitt"),
        ("torchrun --nproc-per-node=4 -m degp fit a.csv --out=model --max-rows 3", "no option --max-rows"),
        ("python -m experiments toyy", "no command toyy"),
        ("python -m experiments data fetsch", "no command fetsch"),
        ("python -m campaigns kill --kill 3", "no option --kill"),
        ("python -m benchmarks stepps", "no benchmark stepps"),
        ("python -m tests.test_cpu", "no program tests.test_cpu"),
        ("make tests", "no target tests"),
        ('pip install ".[sklearn,cly]"', "no extra cly"),
    ],
)
def test_faults_of_commands_are_found(command, fault):
    assert list(faults(command)) == [fault]
