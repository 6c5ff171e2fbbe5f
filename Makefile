# The project's verbs. `make train` and `make test` need Python 3.11 or newer and nothing else.
#
#   ARGS      passed on:          make train ARGS="Walker2d-v5 --rounds 20"
#   PYTHON    which interpreter:  make test PYTHON=python3.12
#   PIP_ARGS  passed to pip, for example the index of PyTorch's CPU or CUDA builds

PYTHON ?= python3
PIP_ARGS ?=
ARGS ?=
VENV ?= .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help train test check format bench clean

help: ## Show the verbs
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

train: $(VENV)/.local ## Train on this machine (default: PPO on Hopper-v5, 50 rounds)
	@$(BIN)/nitro train $(ARGS)

test: $(VENV)/.dev ## Run the tests
	@$(BIN)/python -m pytest $(ARGS)

check: $(VENV)/.dev ## Lint, formatting, types, import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(VENV)/.dev ## Format the code and fix what can be fixed
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(VENV)/.dev ## Measure every performance claim beside its peer
	@$(BIN)/python -m benchmarks $(ARGS)

clean: ## Remove the environments (runs stay)
	rm -rf $(VENV) .venv-peers

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("Nitro needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": set PYTHON=..." if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.local: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing Nitro into $(VENV) (once; a minute or two) ..."
	@$(BIN)/python -m pip install --quiet $(PIP_ARGS) --constraint constraints.txt --editable '.[local]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing Nitro and its development tools into $(VENV) (once; a minute or two) ..."
	@$(BIN)/python -m pip install --quiet $(PIP_ARGS) --constraint constraints.txt --editable '.[dev]'
	@touch $@ $(VENV)/.local
