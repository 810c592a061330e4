"""The pages of the API reference, one per public module, generated from the module's `__all__`.

An object is described once, on the page of the public module that it lives in; a page that re-exports it links there.
"""

import importlib
import inspect
import re
from functools import cache
from pathlib import Path
from types import ModuleType

DOCS = Path(__file__).parent
LONGEST_VALUE = 100
MOST_PAGES = 4  # linked from a name
CODE = re.compile(r"^```(?:python|\{code-cell\})[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
LITERAL = re.compile(r"(``.*?``|`[^`]*`)")

# without the command line; `degp.typing`'s records are on the page of `degp`
MODULES = (
    "degp",
    "degp.attached",
    "degp.calibration",
    "degp.data",
    "degp.decisions.active",
    "degp.decisions.bandits",
    "degp.decisions.botorch",
    "degp.ensemble",
    "degp.export",
    "degp.features",
    "degp.gaussian",
    "degp.graph",
    "degp.likelihoods",
    "degp.measurement",
    "degp.methods",
    "degp.metrics",
    "degp.nets",
    "degp.points",
    "degp.posterior",
    "degp.prediction",
    "degp.predictive",
    "degp.priors",
    "degp.report",
    "degp.report.figures",
    "degp.roots",
    "degp.runtime.distributed",
    "degp.runtime.execution",
    "degp.sklearn",
    "degp.tabular",
    "degp.tabular.evaluating",
    "degp.tabular.model",
    "degp.tabular.saving",
    "degp.tabular.writing",
    "degp.training",
    "degp.transforms",
    "degp.vision",
    "degp.vision.augmentation",
)


def write_pages(folder: Path) -> None:
    """Writes all pages into the folder, and deletes those of modules that are gone."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = {f"{name}.rst": page(name) for name in MODULES}
    for old in folder.glob("*.rst"):
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:  # Sphinx reads again what is newer
            path.write_text(text, encoding="utf-8")


def write_index(path: Path) -> None:
    """Writes a table of the modules, with the first line of each docstring."""
    summaries = {name: (inspect.getdoc(importlib.import_module(name)) or "").partition("\n")[0] for name in MODULES}
    texts = {name: without_step(text).replace("|", r"\|") for name, text in summaries.items()}
    rows = [f"| [{name}](generated/{name}.rst) | {text} |" for name, text in texts.items()]
    path.write_text("\n".join(["| module | what it is |", "|---|---|", *rows, ""]), encoding="utf-8")


def write_command_line(path: Path) -> None:
    """Writes the usage, the arguments and the options of every command, from the commands themselves."""
    import typer
    from typer.cli import get_docs_for_click

    from degp.cli import app

    command = typer.main.get_command(app)
    text = get_docs_for_click(obj=command, ctx=typer.Context(command), name="degp")
    path.write_text(text.partition("## ")[1] + text.partition("## ")[2], encoding="utf-8")  # without the overview


def page(name: str) -> str:
    """The page of a module: its docstring, links to what it re-exports, and a description of everything else."""
    module = importlib.import_module(name)
    elsewhere = [exported for exported in module.__all__ if home(module, exported) != name]
    parts = [f"{name}\n{'=' * len(name)}\n", f".. automodule:: {name}\n"]
    parts += [_link(module, exported) for exported in elsewhere]
    parts += [_description(module, exported) for exported in module.__all__ if exported not in elsewhere]
    return "\n".join(parts)


def home(module: ModuleType, exported: str) -> str:
    """The public module on whose page an exported object is described; a module has its own page."""
    value = getattr(module, exported)
    if inspect.ismodule(value):
        return value.__name__
    defined = getattr(value, "__module__", None) or module.__name__
    around = [name for name in MODULES if f"{defined}.".startswith(f"{name}.")]
    holders = [name for name in around if exported in importlib.import_module(name).__all__]
    return max(holders, key=len, default=module.__name__)


def without_step(text: str) -> str:
    """A module's description without the number of its step in the tour, which only the tour explains."""
    return text.lstrip("①②③④⑤⑥⑦⑧⑨ ")


def escaped(line: str) -> str:
    """Plain text as reStructuredText; text in backticks stays code, and a letter may follow it, as in `Batch`es."""
    pieces = LITERAL.split(line)
    plain = [piece if k % 2 else re.sub(r"([|*\\])", r"\\\1", piece) for k, piece in enumerate(pieces)]
    glued = [r"\ " + piece if k and not k % 2 and piece[:1].isalnum() else piece for k, piece in enumerate(plain)]
    return "".join(glued)


def _link(module: ModuleType, exported: str) -> str:
    value, place = getattr(module, exported), home(module, exported)
    target = f":doc:`{exported} <{place}>`" if inspect.ismodule(value) else f":py:obj:`{exported} <{place}.{exported}>`"
    summary = (inspect.getdoc(value) or "").partition("\n")[0].partition("   ")[0]  # without the cited equation
    return f"- {target}: {escaped(without_step(summary))}"


@cache
def examples() -> dict[str, str]:
    """The code of every page with code that runs, by page."""
    pages = [
        DOCS / "tour.md",
        DOCS / "get_started.md",
        *sorted(DOCS.glob("gallery/*.md")),
        *sorted(DOCS.glob("guide/*.md")),
    ]
    code = {page.relative_to(DOCS).with_suffix("").as_posix(): page.read_text(encoding="utf-8") for page in pages}
    return {page: "\n".join(CODE.findall(text)) for page, text in code.items()}


def pages_with(exported: str) -> list[str]:
    """Pages whose code imports a name, or takes it from a module of degp."""
    use = re.compile(rf"^from degp[\w.]* import .*\b{exported}\b|\b(?!self\b)[a-z]+\.{exported}\(", re.MULTILINE)
    return [page for page, code in examples().items() if use.search(code)][:MOST_PAGES]


def _used_in(exported: str) -> str:
    links = ", ".join(f":doc:`/{page}`" for page in pages_with(exported))
    return f"\n   Used in: {links}.\n" if links else ""


def _description(module: ModuleType, exported: str) -> str:
    value, full = getattr(module, exported), f"{module.__name__}.{exported}"
    if inspect.isclass(value):
        kind = "autoexception" if issubclass(value, BaseException) else "autoclass"
        return f"\n.. {kind}:: {full}\n   :members:\n{_used_in(exported)}"
    if inspect.isroutine(value):
        return f"\n.. autofunction:: {full}\n{_used_in(exported)}"
    # a constant or a type alias: autodata would repeat the docstring of its type
    shown = repr(value)
    short = len(shown) <= LONGEST_VALUE and not shown.startswith("<")
    return f"\n.. py:data:: {full}\n" + (f"   :value: {shown}\n" if short else "")
