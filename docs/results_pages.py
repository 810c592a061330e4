"""The pages of results: `experiments/README.md`, `benchmarks/README.md` and the summaries, as pages of the site.

Links between them and to other pages lead to pages; figures stay where they are; links to code become plain text.
"""

import os
import re
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parent
RESULTS = ROOT / "experiments" / "results"
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)]*)?\)")
HEADS = {ROOT / "experiments" / "README.md": "experiments.md", ROOT / "benchmarks" / "README.md": "benchmarks.md"}
NO_BREAK = "\u00a0"  # keeps a number and its error on one line of a cell
TOCTREE = "\n```{toctree}\n:hidden:\n:glob:\n\nscores/**\n```\n"


def write_pages(folder: Path) -> None:
    """Writes all pages into the folder, and deletes those whose origin is gone."""
    pages = pages_in(folder)
    for old in folder.rglob("*.md"):
        if old not in pages.values():
            old.unlink()
    for origin, path in pages.items():
        text = page(origin, pages) + (TOCTREE if path.name == "experiments.md" else "")
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:  # Sphinx reads again what is newer
            path.write_text(text, encoding="utf-8")


def page(origin: Path, pages: dict[Path, Path]) -> str:
    """The text of an origin, with links that hold on its page."""

    def link(match: re.Match[str]) -> str:
        image, text, target, section = match.groups(default="")
        if ":" in target:
            return match[0]
        path = (origin.parent / target).resolve()
        if not image and path not in pages and not (path.is_relative_to(DOCS) and path.suffix == ".md"):
            return text
        place = os.path.relpath(pages.get(path, path), pages[origin].parent)
        return f"{image}[{text}]({Path(place).as_posix()}{section})"

    text = LINK.sub(link, origin.read_text(encoding="utf-8")).replace(" ± ", f"{NO_BREAK}±{NO_BREAK}")
    return (
        text if text.startswith("# ") else f"# Scores of {' '.join(origin.relative_to(RESULTS).parts[:-1])}\n\n{text}"
    )


def pages_in(folder: Path) -> dict[Path, Path]:
    """Each origin and its page."""
    summaries = [path for path in RESULTS.rglob("*.md") if not {"smoke", "checkpoints"} & {*path.parts}]
    return {origin: folder / name for origin, name in HEADS.items()} | {
        path: folder / "scores" / path.relative_to(RESULTS) for path in summaries
    }
