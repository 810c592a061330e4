"""How the documentation is built: `make docs`, or `sphinx-build -M html docs docs/_build -W --keep-going`."""

import ast
import os
import re
import sys
from importlib.util import find_spec
from inspect import isfunction
from itertools import takewhile
from pathlib import Path
from textwrap import dedent
from typing import Any

from numpy.typing import ArrayLike, NDArray
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.fileutil import copy_asset
from sphinx.util.typing import stringify_annotation

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "src"))  # the pages describe this tree, installed or not

import results_pages
from reference_pages import escaped, without_step, write_command_line, write_index, write_pages

import degp
from degp.methods import Kind
from degp.tabular.fitting import CONSTANT
from degp.tabular.presets import Preset

os.environ["PYTHONPATH"] = sys.path[0]  # the processes that run the gallery use this tree too
os.environ["OMP_NUM_THREADS"] = "1"  # the networks are small
os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"  # under Agg, pages would have no figures

project = "degp"
author = "degp contributors"
copyright = "degp contributors"
version = release = degp.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_build", "**.ipynb_checkpoints", "reference/generated/*.md"]  # the last are included by pages

# In display math, rows end in \cr: around a double backslash Sphinx puts a `split`, in which \tag is an error.
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
mathjax_path = "mathjax/tex-chtml.js"  # copied below: formulas need no network

# Pages with `file_format: mystnb` are executed in every build; an error fails it.
nb_execution_mode = "force"
nb_execution_timeout = 180
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_merge_streams = True
nb_output_stderr = "remove"  # warnings of other packages, with paths of this machine
copybutton_exclude = ".linenos, .gp, .go"

default_role = "code"  # docstrings write `name`
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_inherit_docstrings = False  # a method without words of its own is described in its protocol
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
python_maximum_signature_line_length = 100

html_theme = "furo"
pygments_dark_style = "github-dark"  # furo's own underlines the names of modules
html_title = "degp"
html_logo = html_favicon = "_static/logo.svg"
html_static_path = ["_static"]
html_css_files = ["degp.css"]
html_theme_options = {"sidebar_hide_name": False}
html_show_sourcelink = False
html_copy_source = False

SHORT = {
    stringify_annotation(ArrayLike, "smart"): "ArrayLike",
    stringify_annotation(NDArray[Any], "smart"): "ndarray",
    "Preset.DEFAULT.value": repr(Preset.DEFAULT.value),
    "Kind.DEGP.value": repr(Kind.DEGP.value),
    "str = CONSTANT": f"str = {CONSTANT!r}",
}
CITATION = re.compile(r"theory/(\w+)\.md((?:,? ?\(\d+\)|–\(\d+\))+)")


def generate_pages(app: Sphinx) -> None:
    """Writes `reference/generated/` and `results/generated/` before Sphinx looks for pages."""
    folder = Path(app.srcdir) / "reference" / "generated"
    write_pages(folder)
    write_command_line(folder / "command_line.md")
    write_index(folder / "modules.md")
    results_pages.write_pages(Path(app.srcdir) / "results" / "generated")


def copy_mathjax(app: Sphinx, error: Exception | None) -> None:
    """Copies MathJax, its fonts and the extensions that it loads on demand from their package into the pages."""
    origin = Path(find_spec("sphinx-mathjax-offline").origin).parent / "static" / "mathjax"
    static = Path(app.outdir) / "_static" / "mathjax"
    copy_asset(origin / "tex-chtml.js", static)
    for folder in ("output/chtml/fonts/woff-v2", "input/tex/extensions"):
        copy_asset(origin / folder, static / folder)


def require_figures(app: Sphinx, error: Exception | None) -> None:
    """Fails a build in which a page that draws has no figure, or a figure has no alternative text."""
    if error is not None or app.builder.name != "html":
        return
    for page in [Path(app.srcdir) / "tour.md", *Path(app.srcdir, "gallery").glob("*.md")]:
        draws = "degp.report.figures" in page.read_text(encoding="utf-8")
        built = (Path(app.outdir) / page.relative_to(app.srcdir)).with_suffix(".html").read_text(encoding="utf-8")
        figures = re.findall(r"<img [^>]*_images/[^>]*>", built)
        if draws and not figures:
            raise ExtensionError(f"{page.name} draws a figure, but the built page has none")
        if not all(re.search(r'alt="[A-Z]', figure) for figure in figures):
            raise ExtensionError(f"a figure of {page.name} has no alternative text; add it to its cell under :mystnb:")


def require_readable_signatures(app: Sphinx, error: Exception | None) -> None:
    """Fails a build in which Sphinx could not read a signature, and shows its types as they are written internally."""
    if error is not None or app.builder.name != "html":
        return
    for page in sorted(Path(app.outdir, "reference", "generated").glob("*.html")):
        unread = re.findall(r'<span class="pre">~([^<]*)', page.read_text(encoding="utf-8"))
        if unread:
            raise ExtensionError(f"{page.name} has a signature that Sphinx could not read, with {unread[0]}")


def as_restructured_text(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Docstrings are plain Unicode: bars are norms and determinants, and a cited equation becomes a link to it.

    Indented paragraphs are code or formulas, kept as they are.
    """
    if what == "module":
        lines[:1] = [without_step(lines[0])]
    blocks = _indented_paragraphs(lines)
    text = [
        line if k in blocks or line.lstrip().startswith((":", "..")) else escaped(line) for k, line in enumerate(lines)
    ]
    text = [CITATION.sub(r":doc:`theory/\1\2 </theory/\1>`", line) for line in text]
    text = [re.sub(r"^(\s*(?::[^:]+: )?[A-Za-z])\.(?=\s|$)", r"\1\\.", line) for line in text]  # "M." begins no list
    lines[:] = [part for k, line in enumerate(text) for part in ([*blocks.get(k, []), line])]


def _indented_paragraphs(lines: list[str]) -> dict[int, list[str]]:
    """By number of an indented paragraph's line: the directive above its first line, nothing above the others."""
    blocks: dict[int, list[str]] = {}
    outer, before = "", ""  # the last line without indentation, and the one before this
    for k, line in enumerate(lines):
        if line and not line.startswith(" "):
            outer = line
        elif line.startswith("    ") and not outer.startswith((":", "..")) and (not before or k - 1 in blocks):
            inside = k - 1 in blocks or k - 2 in blocks
            blocks[k] = [] if inside else [f".. code-block:: {_language(lines[k:])}", ""]
        before = line
    return blocks


def _language(lines: list[str]) -> str:
    block = "\n".join(takewhile(lambda line: not line or line.startswith("    "), lines))
    try:
        ast.parse(dedent(block))
    except SyntaxError:
        return "text"
    return "python"


def short_signature(
    app: Sphinx, what: str, name: str, obj: object, options: object, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Types by their short names, and defaults by their values.

    A default such as `<function relu>` is no Python: Sphinx could not read the signature, and would not link its types.
    """

    def shortened(text: str | None) -> str | None:
        for long, short in SHORT.items():
            text = text and text.replace(long, short)
        return text and re.sub(r"<function (?:\w+\.)*(\w+)[^>]*>", r"\1", text).replace("<factory>", "...")

    return shortened(signature), shortened(returned)


def skip_generated(app: Sphinx, what: str, name: str, obj: object, skip: bool, options: object) -> bool | None:
    """Leaves out functions that are no methods: defaults of fields, and scikit-learn's for its metadata routing."""
    is_default = isfunction(obj) and obj.__name__ != name
    return True if is_default or re.fullmatch(r"set_\w+_request", name) else None


def setup(app: Sphinx) -> None:
    app.connect("builder-inited", generate_pages)
    app.connect("build-finished", copy_mathjax)
    app.connect("build-finished", require_figures)
    app.connect("build-finished", require_readable_signatures)
    app.connect("autodoc-skip-member", skip_generated)
    app.connect("autodoc-process-signature", short_signature)
    app.connect("autodoc-process-docstring", as_restructured_text, priority=900)  # after napoleon
