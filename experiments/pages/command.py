"""`python -m experiments pages [--check]`: writes the numbers of the stored results into the pages."""

import importlib
from pathlib import Path
from typing import Annotated

import typer

from degp.runtime.files import new_file
from experiments.pages.marks import filled

__all__ = ["PAGES", "main", "outdated", "value"]

PROJECT = Path(__file__).parents[2]
SITE = [path for path in (PROJECT / "docs").rglob("*.md") if not {"_build", "generated"} & {*path.parts}]
HEADS = [PROJECT / name / "README.md" for name in ("", "experiments", "benchmarks")]
PAGES = [*HEADS, *sorted(SITE)]


def main(
    check: Annotated[bool, typer.Option(help="Change nothing; fail if a page differs from the records.")] = False,
) -> None:
    """Fills in all pages."""
    changed = outdated()
    for page, text in changed.items():
        if not check:
            with new_file(page) as draft:
                draft.write_text(text, encoding="utf-8")
        typer.echo(f"{page.relative_to(PROJECT)} {'differs from the records' if check else 'updated'}")
    if check and changed:
        typer.echo("run python -m experiments pages", err=True)
        raise typer.Exit(1)


def outdated() -> dict[Path, str]:
    """Pages whose text differs from the records, with the text that they should have."""
    found = {}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        try:
            current = filled(text, value)
        except ValueError as error:
            raise ValueError(f"{page.relative_to(PROJECT)}: {error}") from error
        if current != text:
            found[page] = current
    return found


def value(name: str, arguments: list[str]) -> str:
    """The value of a mark: `peers.rank` is the function `rank` of the module `peers` in this package."""
    module, _, function = name.partition(".")
    try:
        topic = importlib.import_module(f"experiments.pages.{module}")
    except ModuleNotFoundError as error:
        raise ValueError(f"a mark must name a module of experiments/pages, but {name} does not") from error
    if function not in topic.__all__:
        raise ValueError(f"a mark must name one of {', '.join(topic.__all__)} of {module}, but it is {name}")
    return str(getattr(topic, function)(*arguments))
