# Every target does its own set-up: a fresh clone and `make test` are enough.
VENV   := .venv
PYTHON ?= python3
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: demo test lint bench clean help

help:
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

$(READY): pyproject.toml constraints.txt setup.py $(wildcard src/entropy_sgd/optim/kernel*.[ch])
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	# backpack, which curvlinops installs, names torchvision but does not need it here; its build does not
	# match the CPU build of torch, and lightning and transformers fail on importing one that is broken.
	$(BIN)/pip uninstall --quiet --yes torchvision
	touch $(READY)

demo: $(READY) ## train SGD, Adam and Entropy-SGD on real digits, offline, and compare them
	$(BIN)/entropy-sgd demo

lint: $(READY) ## ruff and pyright
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

test: $(READY) lint ## everything that must hold
	$(BIN)/python -m pytest

bench: $(READY) ## ratios, measured side by side
	$(BIN)/python benchmarks/optimizer_step.py
	$(BIN)/python benchmarks/throughput.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/landscape.py
	$(BIN)/python benchmarks/replicas.py

clean: ## remove what the other targets made
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis src/*.egg-info src/entropy_sgd/optim/*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
