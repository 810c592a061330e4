"""The pages tell the truth: their code runs, cited equations and linked pages exist, public names are described."""

import ast
import contextlib
import doctest
import importlib
import inspect
import io
import re
from functools import partial
from pathlib import Path

import pytest
import torch

PROJECT = Path(__file__).parents[1]
PACKAGE = PROJECT / "src" / "degp"
DOCS = PROJECT / "docs"

MARKDOWN = sorted(
    path.relative_to(PROJECT).as_posix()
    for path in (*PROJECT.glob("*.md"), *DOCS.rglob("*.md"))
    if "_build" not in path.parts
)
EXECUTED = [
    name
    for name in MARKDOWN
    if name in ("README.md", "docs/index.md", "docs/tour.md") or name.startswith("docs/guide/")
]
THEORY = sorted(path.stem for path in (DOCS / "theory").glob("*.md"))
SOURCES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
REEXPORTING = [name for name in SOURCES if name.endswith("__init__.py")]

BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!\w+:|#)([^)\s#]+)(?:#[^)\s]*)?\)")
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


@pytest.mark.parametrize("page", MARKDOWN)
def test_links_lead_somewhere(page):
    path = PROJECT / page
    prose = FENCED.sub("", path.read_text(encoding="utf-8"))
    broken = [target for target in LINK.findall(prose) if not (path.parent / target).exists()]
    assert not broken, f"{page} links to {broken}"


@pytest.mark.parametrize("source", REEXPORTING)
def test_public_names_are_described(source):
    module = importlib.import_module(".".join(("degp", *Path(source).parts[:-1])))
    assert module.__doc__, f"{source} has no docstring"
    undescribed = [name for name in reexported(source) if not is_described(getattr(module, name))]
    assert not undescribed, f"{source} exports names without a docstring: {undescribed}"


def reexported(source: str) -> list[str]:
    """Names that a package takes from its modules for others to use."""
    tree = ast.parse((PACKAGE / source).read_text(encoding="utf-8"))
    aliases = [alias for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    return [alias.asname or alias.name for alias in aliases]


def is_described(obj: object) -> bool:
    """Whether a module, class or function has a docstring of its own; other things, such as type aliases, cannot."""
    if inspect.isclass(obj):
        own = vars(obj).get("__doc__") or ""
        return bool(own) and not own.startswith(f"{obj.__name__}(")  # what `dataclass` writes by itself
    if inspect.ismodule(obj) or inspect.isroutine(obj):
        return bool(obj.__doc__)
    return True


def test_public_names_are_on_the_api_page():
    page = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    root = importlib.import_module("degp")
    names = [name for name in reexported("__init__.py") if not inspect.ismodule(getattr(root, name))]
    missing = [name for name in names if not re.search(rf":: degp\.{name}$", page, re.MULTILINE)]
    assert not missing, f"docs/reference/api.md leaves out {missing}"


# Examples in docstrings


def names_for_examples() -> dict[str, object]:
    """What the examples take for granted, small enough that each runs in seconds."""
    from botorch.acquisition import qLogExpectedImprovement
    from botorch.optim import optimize_acqf

    from degp import nets, priors
    from degp.bandits import Problem
    from degp.sklearn import DEGPClassifier, DEGPRegressor

    X = torch.rand(24, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    quick = {"members": 2, "max_epochs": 2, "hidden_layers": (8,)}
    return {
        **vars(nets),
        **vars(priors),
        "torch": torch,
        "X": X,
        "Y": X.sum(1, keepdim=True),
        "y": (X[:, 0] > 0.5).long(),
        "bounds": torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64),
        "context": torch.zeros(4),
        "reward": 1.0,
        "Problem": Problem,
        "qLogExpectedImprovement": qLogExpectedImprovement,
        "optimize_acqf": optimize_acqf,
        "DEGPRegressor": partial(DEGPRegressor, **quick),
        "DEGPClassifier": partial(DEGPClassifier, **quick),
    }


def docstrings_with_examples(name: str) -> list[str]:
    tree = ast.parse((PACKAGE / name).read_text(encoding="utf-8"))
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef)
    texts = (ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, owners))
    return [text for text in texts if ">>>" in text]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in SOURCES if docstrings_with_examples(name)])
def test_examples_in_docstrings_run_and_print_what_they_say(name):
    module = importlib.import_module("degp." + name.removesuffix(".py").replace("/", "."))
    for text in docstrings_with_examples(name):
        names = {**vars(module), **names_for_examples()}
        for example in doctest.DocTestParser().get_examples(text):
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(example.source, name, "single"), names)
            assert not example.want or printed.getvalue() == example.want
