"""How the documentation is built: `make docs`, or `sphinx-build -M html docs docs/_build -W --keep-going`."""

import re
import sys
from pathlib import Path

from numpy.typing import ArrayLike
from sphinx.application import Sphinx
from sphinx.util.typing import stringify_annotation

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))  # the pages describe this tree, installed or not

import degp

project = "degp"
author = "degp contributors"
copyright = "degp contributors"
version = release = degp.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
exclude_patterns = ["_build"]

# In display math, rows end in \cr: around a double backslash Sphinx puts a `split`, in which \tag is an error.
myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
myst_heading_anchors = 3

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

CITATION = re.compile(r"theory/(\w+)\.md((?:,? ?\(\d+\)|–\(\d+\))+)")
LITERAL = re.compile(r"(``.*?``|`[^`]*`)")


def as_restructured_text(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Docstrings are plain Unicode: bars are norms and determinants, and a cited equation becomes a link to it."""
    lines[:] = [line if line.lstrip().startswith((":", "..")) else _escaped(line) for line in lines]
    lines[:] = [CITATION.sub(r":doc:`theory/\1\2 </theory/\1>`", line) for line in lines]


def _escaped(line: str) -> str:
    """Special characters made plain, except between backticks; a letter may follow a backtick, as in `Batch`es."""
    pieces = LITERAL.split(line)
    plain = [piece if k % 2 else re.sub(r"([|*\\])", r"\\\1", piece) for k, piece in enumerate(pieces)]
    glued = [r"\ " + piece if k and not k % 2 and piece[:1].isalnum() else piece for k, piece in enumerate(plain)]
    return "".join(glued)


def short_signature(
    app: Sphinx, what: str, name: str, obj: object, options: object, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """`ArrayLike` by its name instead of the union that it stands for."""
    union = stringify_annotation(ArrayLike, "smart")
    return signature and signature.replace(union, "ArrayLike"), returned


def setup(app: Sphinx) -> None:
    app.connect("autodoc-process-signature", short_signature)
    app.connect("autodoc-process-docstring", as_restructured_text, priority=900)  # after napoleon
