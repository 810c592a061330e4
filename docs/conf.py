"""How the documentation is built: `make docs`, or `sphinx-build -M html docs docs/_build -W --keep-going`."""

import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

from numpy.typing import ArrayLike
from sphinx.application import Sphinx
from sphinx.util.fileutil import copy_asset
from sphinx.util.typing import stringify_annotation

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "src"))  # the pages describe this tree, installed or not

from reference_pages import escaped, write_command_line, write_pages

import degp

os.environ["PYTHONPATH"] = sys.path[0]  # the processes that run the gallery use this tree too
os.environ["OMP_NUM_THREADS"] = "1"  # the networks are small

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
exclude_patterns = ["_build", "**.ipynb_checkpoints", "reference/generated/command_line.md"]  # which a page includes

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
html_title = "degp"
html_static_path = ["_static"]
html_css_files = ["degp.css"]
html_theme_options = {"sidebar_hide_name": False}
html_show_sourcelink = False
html_copy_source = False

CITATION = re.compile(r"theory/(\w+)\.md((?:,? ?\(\d+\)|–\(\d+\))+)")


def generate_reference(app: Sphinx) -> None:
    """Writes `reference/generated/` before Sphinx looks for pages."""
    folder = Path(app.srcdir) / "reference" / "generated"
    write_pages(folder)
    write_command_line(folder / "command_line.md")


def copy_mathjax(app: Sphinx, error: Exception | None) -> None:
    """Copies MathJax and its fonts from their package into the pages."""
    origin = Path(find_spec("sphinx-mathjax-offline").origin).parent / "static" / "mathjax"
    static, fonts = Path(app.outdir) / "_static" / "mathjax", "output/chtml/fonts/woff-v2"
    copy_asset(origin / "tex-chtml.js", static)
    copy_asset(origin / fonts, static / fonts)


def as_restructured_text(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Docstrings are plain Unicode: bars are norms and determinants, and a cited equation becomes a link to it.

    Indented lines of a module's docstring are code.
    """
    kept = (":", "..", "    ") if what == "module" else (":", "..")
    text = [line if line.startswith(kept) or line.lstrip().startswith(kept) else escaped(line) for line in lines]
    text = [CITATION.sub(r":doc:`theory/\1\2 </theory/\1>`", line) for line in text]
    lines[:] = _with_code_blocks(text) if what == "module" else text


def _with_code_blocks(lines: list[str]) -> list[str]:
    starts = {k for k, line in enumerate(lines) if line.startswith("    ") and (k == 0 or not lines[k - 1].strip())}
    code = [".. code-block:: python", ""]
    return [part for k, line in enumerate(lines) for part in ([*code, line] if k in starts else [line])]


def short_signature(
    app: Sphinx, what: str, name: str, obj: object, options: object, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """`ArrayLike` by its name instead of the union that it stands for."""
    union = stringify_annotation(ArrayLike, "smart")
    return signature and signature.replace(union, "ArrayLike"), returned


def skip_generated(app: Sphinx, what: str, name: str, obj: object, skip: bool, options: object) -> bool | None:
    """Leaves out the methods that scikit-learn adds to every estimator for its metadata routing."""
    return True if re.fullmatch(r"set_\w+_request", name) else None


def setup(app: Sphinx) -> None:
    app.connect("builder-inited", generate_reference)
    app.connect("build-finished", copy_mathjax)
    app.connect("autodoc-skip-member", skip_generated)
    app.connect("autodoc-process-signature", short_signature)
    app.connect("autodoc-process-docstring", as_restructured_text, priority=900)  # after napoleon
