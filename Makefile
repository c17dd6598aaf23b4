# `make` alone lists the targets. Each one that needs Python first makes .venv, from nothing if it must.

PYTHON ?= python3
JOBS ?= 2
ARGS ?=

BIN := .venv/bin
# Without the constraints, a dependency could bring in another torch: no pip install here goes without them.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
INSTALLED := .venv/.installed
SOURCES := src tests bench examples

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test fuzz lint bench docs clean

help: ## List these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-6s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(INSTALLED) ## Compile a ResNet-50 and an OPT-125M, run them on IREE, compare with eager PyTorch
	@$(BIN)/python examples/demo.py $(ARGS)

test: lint ## Check the sources (lint), then run all tests (ARGS="-k bert" selects)
	@$(BIN)/python -m pytest -n $(JOBS) $(ARGS)

fuzz: $(INSTALLED) ## Run 2,000 random TorchScript programs behind every pass (ARGS="--seed 17" shows one)
	@PYTHONPATH=tests $(BIN)/python -m fuzz --jobs $(JOBS) $(ARGS)

lint: $(INSTALLED) ## Check format, style and types
	@$(BIN)/ruff format --check --quiet $(SOURCES) || { echo "run: $(BIN)/ruff format $(SOURCES)"; exit 1; }
	@$(BIN)/ruff check --quiet $(SOURCES)
	@$(BIN)/mypy --no-error-summary

bench: $(INSTALLED) ## Measure compile time and memory beside torch-mlir (ARGS="--check" fails below the bars)
	@$(BIN)/python bench/compile.py $(ARGS)
	@$(BIN)/python bench/passes.py $(ARGS)
	@$(BIN)/python bench/targets.py $(ARGS)

docs: $(INSTALLED) ## Build the documentation into site/
	@$(BIN)/mkdocs build --quiet --strict

clean: ## Remove build outputs and caches; keeps .venv
	@rm -rf build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .fuzz src/*.egg-info
	@find $(wildcard $(SOURCES)) -type d -name __pycache__ -prune -exec rm -rf {} +

$(INSTALLED): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing into .venv (minutes the first time)"
	@$(PIP_INSTALL) -e '.[cli,torch,iree,test,dev]'
	@touch $@
