# Every target does its own set-up; `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: help demo test test-all lint type bench docs clean

help:  ## what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  \1\t/' | expand -t 12

# python3-venv is a package of its own on Debian: fall back to virtualenv where it is absent.
$(BIN)/python:
	@$(PYTHON) -m venv $(VENV) 2>/dev/null || { rm -rf $(VENV); \
	  { $(PYTHON) -m virtualenv --version >/dev/null 2>&1 || $(PYTHON) -m pip install --user -q virtualenv || \
	    $(PYTHON) -m pip install --user -q --break-system-packages virtualenv; } && \
	  $(PYTHON) -m virtualenv -q $(VENV); }

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	@echo "installing rankscope into $(VENV) ..."
	@$(BIN)/python -m pip install -q -e .
	@touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/.installed
	@echo "installing what the tests need ..."
	@$(BIN)/python -m pip install -q -e ".[test]"
	@touch $@

$(VENV)/.docs: pyproject.toml | $(VENV)/.installed
	@$(BIN)/python -m pip install -q -e ".[docs]"
	@touch $@

demo: $(VENV)/.installed  ## the main job on a shipped sample: where did the time go?
	@echo '$$ rankscope sample_traces/sim_slow_rank'
	@$(BIN)/rankscope sample_traces/sim_slow_rank
	@echo
	@echo '$$ rankscope breakdown sample_traces/sim_slow_rank'
	@$(BIN)/rankscope breakdown sample_traces/sim_slow_rank

test: $(VENV)/.test  ## the default test suite
	@$(BIN)/python -m pytest

test-all: $(VENV)/.test  ## every test, the slow ones included
	@RANKSCOPE_SLOW=1 $(BIN)/python -m pytest

lint: $(VENV)/.test  ## ruff: style, complexity, imports
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

type: $(VENV)/.test  ## mypy --strict on the package
	@$(BIN)/mypy

bench: $(VENV)/.test  ## speed of the reader and the analysis; prints ratios
	@$(BIN)/python benchmarks/reader.py

docs: $(VENV)/.docs  ## HTML documentation in docs/_build
	@$(BIN)/python docs/generate.py
	@$(BIN)/python -m sphinx -q -W -b html docs docs/_build

clean:  ## remove what was made here
	rm -rf $(VENV) build dist *.egg-info docs/_build .mypy_cache .ruff_cache .pytest_cache
