"""Arrows between modules point one way, and the core imports no optional dependency."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

# A room is a module or a subpackage of degp. Each layer sees all layers above it in this list, and not its neighbours.
LAYERS = [
    {"typing"},
    {"execution", "files", "distributed"},
    {"gaussian", "metrics", "ensemble", "measurement", "data", "nets"},
    {"posterior", "uncertainty", "tables"},
    {"priors", "likelihoods"},
    {"objectives"},
    {"side_by_side"},
    {"training"},
]
# Rooms beside the layers see what is named here.
BESIDE = {
    "prediction": {"typing", "gaussian", "ensemble", "posterior", "likelihoods", "uncertainty"},
    "report": {"typing", "files", "metrics"},
}
# Rooms on top see everything, and only each other sees them. The root is `degp/__init__.py`.
ROOT = "degp"
TOP = {
    *{ROOT, "demo", "selection", "tabular", "sklearn", "saving", "table_model", "export"},
    *{"botorch", "active", "bandits", "imaging", "config", "cli", "__main__"},
}

OPTIONAL = {
    *{"botorch", "gpytorch", "linear_operator", "jinja2", "matplotlib", "pandas", "pooch", "rich", "sklearn", "typer"},
    *{"onnx", "onnxruntime", "onnxscript"},
    *{"PIL", "beartype", "hypothesis", "pyarrow", "pytest", "scipy", "torchmetrics"},
}

PROJECT = Path(__file__).parents[1]
PACKAGE = PROJECT / "src" / "degp"
MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
OUTSIDE = sorted(
    path.relative_to(PROJECT).as_posix()
    for folder in ("experiments", "benchmarks", "docs")
    for path in (PROJECT / folder).rglob("*.py")
)
ROOMS = {path.stem for path in PACKAGE.iterdir() if (path.suffix == ".py" or path.is_dir()) and path.stem != "__init__"}


def room_of(module: str) -> str:
    """The room of a file: `priors/nngp.py` ↦ `priors`, `cli.py` ↦ `cli`, `__init__.py` ↦ the root."""
    room = Path(module).parts[0].removesuffix(".py")
    return ROOT if room == "__init__" else room


def imported_names(source: str, package: tuple[str, ...] = ()) -> set[str]:
    """Dotted names that a file of `package` imports, wherever in the file and relative or not."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parents = package[: len(package) - node.level + 1] if node.level else ()
            stem = [*parents, *([node.module] if node.module else [])]
            names |= {".".join([*stem, alias.name]) for alias in node.names}
    return names


def imported_rooms(module: str) -> set[str]:
    """Rooms of degp that a file of degp imports; a name taken from degp itself counts as the root."""
    package = ("degp", *Path(module).parts[:-1])
    names = imported_names((PACKAGE / module).read_text(), package)
    parts = [name.split(".") for name in names if name.split(".")[0] == "degp"]
    return {part[1] if len(part) > 1 and part[1] in ROOMS else ROOT for part in parts}


def visible(room: str) -> set[str]:
    """Rooms that `room` may import, itself among them."""
    if room in TOP:
        return set.union(TOP, *LAYERS, BESIDE.keys())
    if room in BESIDE:
        return {room} | BESIDE[room]
    depth = next((i for i, layer in enumerate(LAYERS) if room in layer), 0)
    return {room}.union(*LAYERS[:depth])


def test_every_room_has_its_place():
    homeless = {room_of(module) for module in MODULES} - set.union(TOP, *LAYERS, BESIDE.keys())
    assert not homeless, f"say at the top of this file what these may import: {sorted(homeless)}"


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_one_way(module):
    allowed = visible(room_of(module))
    assert imported_rooms(module) <= allowed, f"degp/{module} may import from {sorted(allowed)} only"


@pytest.mark.parametrize("path", OUTSIDE)
def test_only_public_names_are_used_outside(path):
    names = {name for name in imported_names((PROJECT / path).read_text()) if name.split(".")[0] == "degp"}
    private = {name for name in names for part in name.split(".") if part.startswith("_") and part != "__version__"}
    assert not private, f"{path} uses private names of degp"


def test_core_imports_no_optional_dependency():
    program = "import json, sys, degp; print(json.dumps([name.partition('.')[0] for name in sys.modules]))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert set(json.loads(result.stdout)) & OPTIONAL == set()
