# Each target prepares its environment, .venv or VENV, for itself; a stamp per extra remembers what is installed.
#   make demo | test | test-slow | lint | docs | dist | release | bench | clean          make test ARGS="tests/test_gaussian.py -k kl"

PYTHON ?= python3
ARGS ?=
VENV ?= .venv
BIN := $(VENV)/bin

# The pins hold for the environment (PIP_CONSTRAINT) and for isolated builds (PIP_BUILD_CONSTRAINT, newer pip).
export PIP_CONSTRAINT := constraints.txt
export PIP_BUILD_CONSTRAINT := constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export MPLBACKEND := Agg

.PHONY: demo test test-slow lint docs dist release bench clean
.DEFAULT_GOAL := test

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-%: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable ".[$*]"
	touch $@

demo: $(VENV)/.installed-cli
	$(BIN)/degp demo $(ARGS)

# torch.compile and the run-time type checks exclude each other: the tests that compile run first, on their own.
test: $(VENV)/.installed-test
	if grep -rqs --include='*.py' 'mark\.compiled' tests; then \
	  DEGP_NO_TYPECHECK=1 $(BIN)/python -m pytest -m compiled $(ARGS) || [ $$? -eq 5 ]; fi  # 5: none among ARGS
	$(BIN)/python -m pytest --numprocesses=auto -m "not (slow or distributed or experiment)" $(ARGS)

# What takes long: every experiment's smoke test, several processes, and programs killed and started again.
test-slow: $(VENV)/.installed-test
	$(BIN)/python -m pytest --numprocesses=auto -m "slow or distributed or experiment" $(ARGS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.installed-docs
	$(BIN)/sphinx-build -M html docs docs/_build -W --keep-going $(ARGS)

# The wheel and the source archive, each installed in an empty environment and tried there, away from this folder.
dist: $(VENV)/.installed-dist
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/twine check --strict dist/*
	tests/try_distribution dist/*.whl dist/*.tar.gz

# What may be uploaded: also checks that the first page has no relative links, which lead nowhere on a package index.
release: dist
	$(BIN)/python hatch_build.py dist/*.whl

bench: $(VENV)/.installed-cli $(VENV)/.installed-sklearn
	$(BIN)/python -m benchmarks $(ARGS)

clean:
	rm -rf .venv .venv-docs .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist docs/_build docs/reference/generated docs/results
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
