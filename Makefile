# `make` alone lists the targets. Each one that needs Python first makes .venv, from nothing if it must.

PYTHON ?= python3
JOBS ?= 2
ARGS ?=
KIND ?= script

BIN := .venv/bin
# Without the constraints, a dependency could bring in another torch: no pip install here goes without them.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
INSTALLED := .venv/.installed
LIGHT := .venv-light
SOURCES := src tests bench examples
# The tests of a file share what they compile, so one worker runs them all; files come in the order of tests/conftest.py.
BY_FILE := --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo unit test light cts browser fuzz lint bench docs clean

help: ## List these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(INSTALLED) ## Compile a ResNet-50 and an OPT-125M, run them on IREE, compare with eager PyTorch
	@$(BIN)/python examples/demo.py $(ARGS)

test: browser ## Check the sources (lint), then run all tests (ARGS="-k bert" selects)
	@$(MAKE) --no-print-directory -j 2 lint light  # each has an environment to install
	@$(BIN)/python -m pytest -n $(JOBS) $(BY_FILE) $(ARGS)

unit: $(INSTALLED) ## Run the tests that need no engine, in two minutes (ARGS="-k schema" selects)
	@$(BIN)/python -m pytest -n $(JOBS) $(BY_FILE) --unit --quiet $(ARGS)

light: $(LIGHT)/.installed ## Test the frontend that needs no PyTorch in an environment without it
	@$(LIGHT)/bin/python -c 'import importlib.util, sys; sys.exit(bool(importlib.util.find_spec("torch")))'
	@$(LIGHT)/bin/python -m pytest --quiet tests/frontends/nn

cts: $(INSTALLED) ## Run the whole compatibility test suite on IREE, for hours; goes on where it was stopped
	@$(BIN)/flambeau cts --suite all --dtype all --jobs $(JOBS) --html cts.html $(ARGS)

# The page that `flambeau cts --html` writes is tested in Chromium. Without it that test says so; nothing else needs it.
browser:
	@command -v chromium chromium-browser google-chrome >/dev/null || \
	  { command -v apt-get >/dev/null && { test "$$(id -u)" = 0 || sudo -n true 2>/dev/null; } && \
	    echo "installing Chromium from the system's packages" && \
	    $$(test "$$(id -u)" = 0 || echo sudo) sh -c 'apt-get update -qq; apt-get install -y -qq --no-install-recommends chromium' \
	      >/dev/null 2>&1; } || echo "no Chromium, and none can be installed here: the report page will not be tested in a browser"

fuzz: $(INSTALLED) ## Run random cases for hours: KIND is script, fx, schemas or text (ARGS="--seed 17" shows one)
	@PYTHONPATH=tests $(BIN)/python -m fuzz.$(KIND) --jobs $(JOBS) $(ARGS)

lint: $(INSTALLED) ## Check format, style and types
	@$(BIN)/ruff format --check --quiet $(SOURCES) || { echo "run: $(BIN)/ruff format $(SOURCES)"; exit 1; }
	@$(BIN)/ruff check --quiet $(SOURCES)
	@$(BIN)/mypy --no-error-summary

bench: $(INSTALLED) ## Measure compile time and memory beside torch-mlir (ARGS="--check" fails below the bars)
	@$(BIN)/python bench/compile.py $(ARGS)
	@$(BIN)/python bench/passes.py $(ARGS)
	@$(BIN)/python bench/targets.py $(ARGS)
	@$(BIN)/python bench/calls.py $(ARGS)
# How fast models, ops and samplers run takes minutes for each: `.venv/bin/python bench/run.py`, `ops.py`, `sampler.py`.
# `engine_bugs.py --check` is for a new version of IREE: it fails when a program that we rewrite is no longer slow.

docs: $(INSTALLED) ## Build the documentation into site/
	@$(BIN)/mkdocs build --quiet --strict

clean: ## Remove build outputs and caches; keeps .venv and .venv-light
	@rm -rf build dist site .cts cts.html .pytest_cache .mypy_cache .ruff_cache .hypothesis .fuzz src/*.egg-info
	@find $(wildcard $(SOURCES)) -type d -name __pycache__ -prune -exec rm -rf {} +

$(LIGHT)/.installed: pyproject.toml constraints.txt
	@test -x $(LIGHT)/bin/python || $(PYTHON) -m venv $(LIGHT)
	@$(LIGHT)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[iree]' pytest
	@touch $@

$(INSTALLED): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing into .venv (minutes the first time)"
	@$(PIP_INSTALL) -e '.[cli,torch,iree,xla,helion,test,dev]'
	@touch $@
