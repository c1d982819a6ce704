from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from entropy_sgd.lab import recipes
from entropy_sgd.lab.comparison.comparison import Comparison, run
from entropy_sgd.lab.report import write


@pytest.fixture(scope="package")
def comparison(tmp_path_factory):
    path = tmp_path_factory.mktemp("comparison")
    tiny = {"train_limit": 96, "batch_size": 16, "epochs": 4, "evaluate_every": 2, "log_every": 0.5}
    chosen = tuple(replace(recipes.get(f"demo/{name}"), **tiny) for name in ("sgd", "entropy-sgd"))
    run(Comparison(chosen, (0, 1)), path, console=Console(file=io.StringIO()))
    return path


@pytest.fixture(scope="package")
def page(comparison, tmp_path_factory):
    return write([comparison], tmp_path_factory.mktemp("report"))
