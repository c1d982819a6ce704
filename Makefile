# Every target does its own set-up: a fresh clone and `make test` are enough.
VENV   := .venv
PYTHON ?= python3
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
EMPTY  := build/empty

.PHONY: setup demo test lint docs wheel oldest bench clean help

setup: $(READY) help ## the environment in .venv: `. .venv/bin/activate` to use it

help:
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/'

# backpack, which curvlinops installs, names torchvision but does not need it here; its build does not match
# the CPU build of torch, and lightning and transformers fail on importing one that is broken.
$(READY): pyproject.toml constraints.txt setup.py $(wildcard src/entropy_sgd/optim/kernel*.[ch])
	$(PYTHON) -m venv $(VENV)
	rm -f src/entropy_sgd/optim/*.so
	@echo 'installing about 2.8 GB into $(VENV): this takes a few minutes'
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(BIN)/pip uninstall --quiet --yes torchvision
	touch $(READY)

demo: $(READY) ## train SGD, Adam and Entropy-SGD on real digits, offline, and compare them
	$(BIN)/entropy-sgd demo

lint: $(READY) ## ruff and pyright
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

test: $(READY) lint ## everything that must hold
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile

docs: $(READY) ## the documentation as a site, in build/site; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

wheel: $(READY) ## source archive and wheel in dist/; the wheel takes a step where there is no compiler
	rm -rf dist $(EMPTY)
	$(BIN)/python -m build --no-isolation --outdir dist
	$(PYTHON) -m venv $(EMPTY)
	env -i PATH="$(CURDIR)/$(EMPTY)/bin" CC=/no/compiler $(EMPTY)/bin/pip install --quiet --disable-pip-version-check --no-index --no-deps dist/*.whl
	# torch and numpy are those of $(VENV), to spare a second download.
	$(BIN)/python -c 'import torch, pathlib; print(pathlib.Path(torch.__file__).parents[1])' > "$$($(EMPTY)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch.pth"
	env -i PATH="$(CURDIR)/$(EMPTY)/bin" CC=/no/compiler $(EMPTY)/bin/python -I tests/packaging/compiled_step.py

oldest: $(READY) ## optimizers and landscape with the oldest numpy that pyproject.toml allows
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --upgrade --target build/oldest numpy==1.26.4
	PYTHONPATH=build/oldest $(BIN)/python -m pytest tests/optim tests/landscape

bench: $(READY) ## ratios, measured side by side
	$(BIN)/python benchmarks/optimizer_step.py
	$(BIN)/python benchmarks/section.py
	$(BIN)/python benchmarks/throughput.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/landscape.py
	$(BIN)/python benchmarks/replicas.py

clean: ## remove what the other targets made
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis src/*.egg-info src/entropy_sgd/optim/*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
