"""What a package index shows: the first page with absolute links, since an index has no repository beside it.

The address comes from `Source` in `[project.urls]` of `pyproject.toml`. Without it, links stay as they are, and
`python hatch_build.py dist/*.whl`, which `make release` runs, says what is missing.
"""

import re
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

try:
    from hatchling.metadata.plugin.interface import MetadataHookInterface
except ModuleNotFoundError:  # outside a build, such as in the tests
    MetadataHookInterface = object

__all__ = ["ReadmeHook", "absolute", "relative_links"]

PROJECT = Path(__file__).parent
LINK = re.compile(r'(?P<opening>!?\[[^\]]*\]\(|<img src=")(?P<target>(?!\w+:|#)[^)"\s]+)')


def absolute(text: str, source: str, tag: str) -> str:
    """Markdown whose relative links lead into the repository at a tag: pages to `blob`, images to `raw`."""

    def moved(link: re.Match[str]) -> str:
        kind = "raw" if link["opening"].startswith(("!", "<img")) else "blob"
        return f"{link['opening']}{source.rstrip('/')}/{kind}/{tag}/{link['target']}"

    return LINK.sub(moved, text)


def relative_links(text: str) -> list[str]:
    """Targets that need the repository."""
    return [link["target"] for link in LINK.finditer(text)]


class ReadmeHook(MetadataHookInterface):
    """Gives hatchling the text of the first page."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (PROJECT / "README.md").read_text(encoding="utf-8")
        source = metadata.get("urls", {}).get("Source")
        if source:
            text = absolute(text, source, f"v{metadata['version']}")
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


if __name__ == "__main__":
    for archive in sys.argv[1:]:
        with zipfile.ZipFile(archive) as wheel:
            (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
            broken = relative_links(wheel.read(name).decode())
        if broken:
            urls = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
            raise SystemExit(
                f"links of a release must be absolute, but {archive} has {', '.join(broken)}; add Source, the address "
                f"of the repository, to [project.urls] in pyproject.toml, which has {', '.join(urls)}"
            )
