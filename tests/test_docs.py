"""The pages tell the truth: their code runs, cited equations and linked pages exist, public names are described."""

import ast
import contextlib
import doctest
import importlib
import inspect
import io
import pkgutil
import re
import runpy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import degp

PROJECT = Path(__file__).parents[1]
PACKAGE = PROJECT / "src" / "degp"
DOCS = PROJECT / "docs"

MARKDOWN = sorted(
    path.relative_to(PROJECT).as_posix()
    for path in (*PROJECT.glob("*.md"), *PROJECT.glob("*/README.md"), *DOCS.rglob("*.md"))
    if not {"_build", "generated"} & {*path.parts}  # what a build writes
)
COMMANDS = "docs/guide/command_line.md"  # bash, no Python
REFERENCE = runpy.run_path(str(DOCS / "reference_pages.py"))
RESULTS = runpy.run_path(str(DOCS / "results_pages.py"))
RESULT_PAGES = RESULTS["pages_in"](DOCS / "results" / "generated")  # written by a build
NOT_IN_THE_REFERENCE = {"degp.__init__", "degp.__main__", "degp.cli", "degp.demo", "degp.typing"}
EXECUTED = [
    name
    for name in MARKDOWN
    if name in ("docs/index.md", "docs/get_started.md") or name.startswith("docs/guide/")
    if name != COMMANDS
]
GALLERY = [name for name in MARKDOWN if name.startswith("docs/gallery/") and not name.endswith("index.md")]
NOTEBOOKS = ["docs/tour.md", *GALLERY]  # executed by `make docs`, which shows what they print and draw
THEORY = sorted(path.stem for path in (DOCS / "theory").glob("*.md"))
SOURCES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
PACKAGES = [name for name in SOURCES if name.endswith("__init__.py")]

BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
CELL = re.compile(r"^```\{code-cell\}\n(.*?)^```", re.DOTALL | re.MULTILINE)
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
IMPORT = re.compile(r"^from (degp[.\w]*) import", re.MULTILINE)
LINK = re.compile(r"\]\((?!\w+:|#)([^)\s#]+)(?:#[^)\s]*)?\)")
NAME = re.compile(r"\bdegp(?:\.\w+)+")
TAG = re.compile(r"\\tag\{(\d+)\}")
CITATION = re.compile(r"theory/(\w+)\.md((?:[\s,–]*\(\d+\))*)")


def cited_numbers(text: str) -> set[int]:
    """Equation numbers in words like "(1), (3)" or "(1)–(4)"."""
    numbers = set()
    for first, last in re.findall(r"\((\d+)\)(?:–\((\d+)\))?", text):
        numbers |= set(range(int(first), int(last or first) + 1))
    return numbers


def tags(page: str) -> list[int]:
    return [int(number) for number in TAG.findall((DOCS / "theory" / f"{page}.md").read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", EXECUTED)
def test_code_on_the_page_runs(page, tmp_path, monkeypatch):
    """All blocks of a page, in order, in one namespace; a traceback names the page's own lines."""
    monkeypatch.chdir(tmp_path)
    path = PROJECT / page
    text = path.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    assert blocks, f"{page} has no ```python block"
    namespace = {"__name__": "__main__"}
    with torch.random.fork_rng(devices=[]):
        for block in blocks:
            lines_before = text.count("\n", 0, block.start(1))
            exec(compile("\n" * lines_before + block[1], str(path), "exec"), namespace)


@pytest.mark.parametrize("page", NOTEBOOKS)
def test_notebooks_can_be_executed_and_downloaded(page):
    text = (PROJECT / page).read_text(encoding="utf-8")
    assert text.startswith("---\nfile_format: mystnb\n"), f"{page} would not be executed"
    assert f"{{nb-download}}`{Path(page).stem}.ipynb`" in text
    assert not BLOCK.search(text), f"{page} has a ```python block, which nothing runs; write ```{{code-cell}}"
    for cell in CELL.findall(text):
        compile(re.sub(r"^(:mystnb:|%%writefile).*", "", cell), page, "exec")


def test_gallery_lists_every_page():
    index = (DOCS / "gallery" / "index.md").read_text(encoding="utf-8")
    assert len(GALLERY) >= 8
    for page in GALLERY:
        assert f"]({Path(page).name})" in index and f"\n{Path(page).stem}\n" in index


@pytest.mark.parametrize("source", SOURCES)
def test_cited_equations_exist(source):
    for page, numbers in CITATION.findall((PACKAGE / source).read_text(encoding="utf-8")):
        assert page in THEORY, f"{source} cites theory/{page}.md, which does not exist"
        assert cited_numbers(numbers), f"{source} cites theory/{page}.md without the number of an equation"
        missing = cited_numbers(numbers) - set(tags(page))
        assert not missing, f"{source} cites theory/{page}.md {sorted(missing)}, but it has {tags(page)}"


@pytest.mark.parametrize("page", THEORY)
def test_equations_are_numbered_in_order(page):
    assert tags(page), f"theory/{page}.md has no numbered equation"
    assert tags(page) == list(range(1, len(tags(page)) + 1))


@pytest.mark.parametrize("page", THEORY)
def test_tagged_equations_can_be_typeset(page):
    """Sphinx puts display math that holds a double backslash into `split`, in which a tag is an error."""
    equations = re.findall(r"\$\$(.*?)\$\$", (DOCS / "theory" / f"{page}.md").read_text(encoding="utf-8"), re.DOTALL)
    assert not [equation for equation in equations if TAG.search(equation) and r"\\" in equation]


def broken_links(text: str, folder: Path) -> list[str]:
    places = {target: (folder / target).resolve() for target in LINK.findall(FENCED.sub("", text))}
    return [target for target, place in places.items() if place not in RESULT_PAGES.values() and not place.exists()]


@pytest.mark.parametrize("page", MARKDOWN)
def test_links_lead_somewhere(page):
    path = PROJECT / page
    broken = broken_links(path.read_text(encoding="utf-8"), path.parent)
    assert not broken, f"{page} links to {broken}"


@pytest.mark.parametrize("origin", RESULT_PAGES, ids=lambda origin: origin.relative_to(PROJECT).as_posix())
def test_links_of_results_lead_to_pages_of_the_site_or_to_figures(origin):
    page = RESULT_PAGES[origin]
    text = RESULTS["page"](origin, RESULT_PAGES)
    assert text.startswith("# ")
    assert not broken_links(text, page.parent)
    outside = [target for target in LINK.findall(text) if not (page.parent / target).resolve().is_relative_to(DOCS)]
    assert all(target.endswith(".png") for target in outside)


def prose(text: str) -> str:
    """The words of a page, without code, directives, marks and addresses; a formula counts as one word."""
    without = re.compile(
        r"\A---\n.*?^---$|^(?P<fence>`{3,}|:{3,}).*?^(?P=fence)\s*?$|<!--.*?-->", re.DOTALL | re.MULTILINE
    )
    formula = re.compile(r"\$\$.*?\$\$|\$[^$\n]+(?:\n[^$\n]+)?\$", re.DOTALL)
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", formula.sub("formula", without.sub("", text)))


def long_passages(text: str) -> list[str]:
    """Paragraphs and list items of 80 words or more, and table cells of ten or more."""
    blocks = [block.strip() for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", prose(text))]
    tables = [block for block in blocks if block.startswith("|")]
    cells = [cell for table in tables for row in table.splitlines() for cell in row.split("|")]
    paragraphs = [block for block in blocks if block not in tables]
    return [b for b in paragraphs if len(b.split()) >= 80] + [c.strip() for c in cells if len(c.split()) >= 10]


@pytest.mark.parametrize("page", MARKDOWN)
def test_paragraphs_and_cells_are_short(page):
    assert not long_passages((PROJECT / page).read_text(encoding="utf-8"))


def test_long_paragraphs_and_cells_are_found():
    words = ["word"] * 80
    assert long_passages(f"# A\n\n{' '.join(words)}\n") and not long_passages(" ".join(words[1:]))
    assert long_passages(f"- short\n- {' '.join(words)}\n") and not long_passages(f"```text\n{' '.join(words)}\n```\n")
    assert long_passages(f"| a | {' '.join(words[:10])} |\n") == [" ".join(words[:10])]
    assert not long_passages(f"| a | {' '.join(words[:9])} | $a + b + c + d + e + f$ |\n")


@pytest.mark.parametrize("page", [name for name in MARKDOWN if name != "CHANGELOG.md"])  # which has old names too
def test_names_on_the_page_exist(page):
    for name in set(NAME.findall((PROJECT / page).read_text(encoding="utf-8"))):
        pkgutil.resolve_name(name)


@pytest.mark.parametrize("source", PACKAGES)
def test_public_names_are_described(source):
    module = importlib.import_module(".".join(("degp", *Path(source).parts[:-1])))
    assert module.__doc__, f"{source} has no docstring"
    undescribed = [name for name in getattr(module, "__all__", ()) if not is_described(getattr(module, name))]
    assert not undescribed, f"{source} exports names without a docstring: {undescribed}"


def is_described(obj: object) -> bool:
    """Whether a module, class or function has a docstring of its own; other things, such as type aliases, cannot."""
    if inspect.isclass(obj):
        own = vars(obj).get("__doc__") or ""
        return bool(own) and not own.startswith(f"{obj.__name__}(")  # what `dataclass` writes by itself
    if inspect.ismodule(obj) or inspect.isroutine(obj):
        return bool(obj.__doc__)
    return True


@pytest.mark.parametrize("name", REFERENCE["MODULES"])
def test_reference_describes_every_public_name(name):
    module = importlib.import_module(name)
    for exported in module.__all__:
        place = REFERENCE["home"](module, exported)
        assert place in REFERENCE["MODULES"], f"{name}.{exported} belongs to {place}, which has no page"
        title = place if inspect.ismodule(getattr(module, exported)) else f":: {place}.{exported}"
        assert f"{title}\n" in REFERENCE["page"](place), f"{name}.{exported} is not on the page of {place}"


def test_every_public_module_has_a_reference_page():
    """Packages with an `__all__`, the modules beside them, and every module that a page imports from."""
    packages = {".".join(("degp", *Path(name).parts[:-1])) for name in PACKAGES}
    folders = {name for name in packages if not hasattr(importlib.import_module(name), "__all__")}
    pages = ["README.md", *EXECUTED, *NOTEBOOKS]  # the first is executed by test_readme.py
    imported = {name for page in pages for name in IMPORT.findall((PROJECT / page).read_text(encoding="utf-8"))}
    modules = {f"degp.{Path(name).stem}" for name in SOURCES if "/" not in name}
    missing = (packages | imported | modules) - folders - NOT_IN_THE_REFERENCE - set(REFERENCE["MODULES"])
    assert not missing, f"docs/reference_pages.py leaves out {sorted(missing)}"


# Examples in docstrings


def needs_an_example(obj: object) -> bool:
    """Functions and classes of ours; an alias of a type has no docstring of its own."""
    return inspect.isroutine(obj) or (inspect.isclass(obj) and obj is not Any)


@pytest.mark.parametrize("name", REFERENCE["MODULES"])
def test_public_names_have_an_example_or_a_page_that_uses_them(name):
    module = importlib.import_module(name)
    called = {exported: getattr(module, exported) for exported in module.__all__}
    bare = [
        exported
        for exported, value in called.items()
        if needs_an_example(value) and ">>>" not in (inspect.getdoc(value) or "")
        if not REFERENCE["pages_with"](exported)
    ]
    assert not bare, f"{name} exports names without an example: {bare}"


@pytest.mark.parametrize("name", SOURCES)
def test_code_in_docstrings_is_indented(name):
    """Else the reference shows it as a paragraph; formulas, which are paragraphs, have other letters."""
    loose = re.compile(r"^(?:\w+ = )?[\w.]+\([ -~]*\)$", re.MULTILINE | re.ASCII)
    assert not [text for text in docstrings(name) if loose.search(text)]


def names_for_examples() -> dict[str, object]:
    """What the examples take for granted, small enough that each runs in seconds."""
    from botorch.acquisition import qLogExpectedImprovement
    from botorch.optim import optimize_acqf

    from degp import likelihoods, measurement, methods, nets, priors
    from degp.decisions.bandits import Problem
    from degp.sklearn import DEGPClassifier, DEGPRegressor

    X = torch.rand(24, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    data = degp.Batch(X, X.sum(1, keepdim=True)).to(dtype=torch.float32)
    quick = {"members": 2, "steps": 2, "hidden_layers": (8,)}
    return {
        **{name: getattr(module, name) for module in (likelihoods, measurement) for name in module.__all__},
        **vars(nets),
        **vars(priors),
        "torch": torch,
        "X": X,
        "Y": X.sum(1, keepdim=True),
        "y": (X[:, 0] > 0.5).long(),
        "data": data,
        "batch": data[:8],
        "batch_loss": degp.batch_loss,
        "ensemble": degp.Ensemble(lambda: nets.mlp(2, [8], 1), 3),
        "method": methods.degp(degp.Gaussian(variance=0.1), priors.NNGP(depth=1)),
        "bounds": torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64),
        "context": torch.zeros(4),
        "reward": 1.0,
        "Problem": Problem,
        "qLogExpectedImprovement": qLogExpectedImprovement,
        "optimize_acqf": optimize_acqf,
        "DEGPRegressor": partial(DEGPRegressor, **quick),
        "DEGPClassifier": partial(DEGPClassifier, **quick),
    }


def docstrings(name: str) -> list[str]:
    tree = ast.parse((PACKAGE / name).read_text(encoding="utf-8"))
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef)
    return [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, owners)]


def docstrings_with_examples(name: str) -> list[str]:
    return [text for text in docstrings(name) if ">>>" in text]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in SOURCES if docstrings_with_examples(name)])
def test_examples_in_docstrings_run_and_print_what_they_say(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module("degp." + name.removesuffix(".py").replace("/", "."))
    for text in docstrings_with_examples(name):
        names = {**vars(module), **names_for_examples()}
        for example in doctest.DocTestParser().get_examples(text):
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(example.source, name, "single"), names)
            assert not example.want or printed.getvalue() == example.want
