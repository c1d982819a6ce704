# Every target does its own set-up: a fresh clone and `make test` are enough.
VENV   := .venv
PYTHON ?= python3
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: demo test lint bench clean help

help:
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

$(READY): pyproject.toml constraints.txt setup.py src/entropy_sgd/optim/kernel.c src/entropy_sgd/optim/kernel_isa.h
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(READY)

demo: $(READY) ## train SGD, Adam and Entropy-SGD on real digits, offline, and compare them
	$(BIN)/python examples/digits.py

lint: $(READY) ## ruff and pyright
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

test: $(READY) lint ## everything that must hold
	$(BIN)/python -m pytest

bench: $(READY) ## ratios, measured side by side
	$(BIN)/python benchmarks/langevin_step.py

clean: ## remove what the other targets made
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis src/*.egg-info src/entropy_sgd/optim/*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
