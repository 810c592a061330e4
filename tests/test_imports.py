"""Imports point one way: every module of degp has its layer, and the core needs no optional dependency."""

import ast
import json
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

# Each layer sees the layers above it in this list, and not its neighbours. `degp` is the root, `degp/__init__.py`.
ROOT = "degp"
LAYERS = [
    {"points"},
    {"typing"},
    {"runtime.cpu", "runtime.files", "runtime.optimizers", "runtime.streams", "runtime.distributed", "runtime.kernels"},
    {"runtime.execution", "runtime.progress"},
    {"roots"},
    {"gaussian", "measurement", "nets", "data", "metrics", "ensemble"},
    {"transforms", "posterior", "features"},
    {"predictive"},
    {"likelihoods", "priors"},
    {"methods"},
    {"calibration", "training", "prediction", "graph"},
    {"attached"},
    {ROOT},
]
# Applications see the layers, and of each other only what is named here.
APPLICATIONS = {
    "report": set(),
    "vision": set(),
    "demo": {"report"},
    "tabular": {"report"},
    "sklearn": {"tabular"},
    "export": {"tabular"},
    "decisions": {"tabular"},  # in `decisions.active` alone
    "cli": {"demo", "export", "report", "tabular"},
    "__main__": {"cli"},
}
# Some see less than their place allows, and some are seen by few.
SEES_ONLY = {"report": {"metrics", "transforms", "runtime.files"}, "sklearn": {"tabular"}, "__main__": {"cli"}}
SEEN_ONLY_BY = {"runtime.kernels": {"runtime.execution"}, "runtime.streams": {"methods"}}

OUTSIDE = ("experiments", "benchmarks", "campaigns", "tests", "docs")
OPTIONAL = {
    *{"botorch", "gpytorch", "linear_operator", "jinja2", "matplotlib", "pandas", "pooch", "rich", "sklearn", "typer"},
    *{"onnx", "onnxruntime", "onnxscript"},
    *{"PIL", "beartype", "hypothesis", "openpyxl", "pyarrow", "pytest", "scipy", "torchmetrics"},
}

PROJECT = Path(__file__).parents[1]
PACKAGE = PROJECT / "src" / "degp"


def name_of(path):
    """`src/degp/priors/analytic.py` ↦ `degp.priors.analytic`; a package is its `__init__.py`."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}
TOP_LEVEL = {name.split(".")[1] for name in MODULES if name != ROOT}
SOURCES_OUTSIDE = sorted(
    path.relative_to(PROJECT).as_posix()
    for folder in ("experiments", "benchmarks", "docs")
    for path in (PROJECT / folder).rglob("*.py")
)


def place_of(module):
    """`degp.priors.analytic` ↦ `priors`, `degp.runtime.files` ↦ `runtime.files`, `degp` ↦ the root."""
    if module == ROOT:
        return ROOT
    parts = module.split(".")[1:]
    return ".".join(parts[:2]) if parts[0] == "runtime" else parts[0]


def imported_names(path, *, for_types=True):
    """Dotted names that a file imports, anywhere in it, or without those under `if TYPE_CHECKING`."""
    names, tree = set(), ast.parse(path.read_text(encoding="utf-8"))
    if not for_types:
        tree.body = [n for n in tree.body if not (isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING")]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path} has a relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def imported_modules(module, **options):
    """Modules of degp that a module imports, itself left out."""
    found = set()
    for name in imported_names(MODULES[module], **options):
        while name and name not in MODULES:
            name = name.rpartition(".")[0]
        found |= {name} - {"", module}
    return found


def visible(place):
    """Places that a place may import, itself among them."""
    depth = next((i for i, layer in enumerate(LAYERS) if place in layer), len(LAYERS))
    allowed = set().union(*LAYERS[:depth], APPLICATIONS.get(place, set()))
    hidden = {seen for seen, by in SEEN_ONLY_BY.items() if place not in by}
    return {place} | ((SEES_ONLY.get(place, allowed) & allowed) - hidden)


def test_every_module_has_its_place():
    places = [*(place for layer in LAYERS for place in layer), *APPLICATIONS]
    assert len(places) == len(set(places))
    found = {place_of(module) for module in MODULES} - {"runtime"}  # the package itself is empty
    assert found == set(places), "say at the top of this file what these may import"


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_one_way(module):
    allowed = visible(place_of(module))
    imported = {place_of(other) for other in imported_modules(module)}
    assert imported <= allowed, f"{module} may not import {sorted(imported - allowed)}"


def test_within_decisions_only_active_learning_knows_tables():
    knowing = {m for m in MODULES if place_of(m) == "decisions" and "tabular" in map(place_of, imported_modules(m))}
    assert knowing == {"degp.decisions.active"}


def test_no_modules_import_each_other():
    graph = {module: imported_modules(module, for_types=False) for module in MODULES}
    TopologicalSorter(graph).prepare()  # raises on a cycle


@pytest.mark.parametrize("module", MODULES)
def test_the_library_does_not_import_the_programs_around_it(module):
    assert not {name.partition(".")[0] for name in imported_names(MODULES[module])} & set(OUTSIDE)


@pytest.mark.parametrize("path", SOURCES_OUTSIDE)
def test_only_public_names_are_used_outside(path):
    names = {name for name in imported_names(PROJECT / path) if name.split(".")[0] == ROOT}
    private = {name for name in names for part in name.split(".") if part.startswith("_") and part != "__version__"}
    assert not private, f"{path} uses private names of degp"


def test_core_imports_no_optional_dependency():
    program = "import json, sys, degp; print(json.dumps([name.partition('.')[0] for name in sys.modules]))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert set(json.loads(result.stdout)) & OPTIONAL == set()


UNCHANGED = """
import torch, warnings

def state():
    denormal = float(torch.tensor(1e-39) * 1)
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    return threads, precision, denormal, torch.get_default_dtype(), list(warnings.filters)

before, random = state(), torch.get_rng_state()
import degp
assert torch.equal(torch.get_rng_state(), random)
degp.Ensemble(lambda: torch.nn.Linear(1, 1), 2)(torch.ones(1, 1))
assert state() == before
"""


def test_importing_and_constructing_change_no_global_state():
    result = subprocess.run([sys.executable, "-c", UNCHANGED], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_the_map_for_contributors_lists_the_tree():
    text = (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"<!-- tree -->(.*)<!-- /tree -->", text, re.DOTALL)
    listed = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert sorted(listed) == sorted(name for name in TOP_LEVEL if not name.startswith("__"))
