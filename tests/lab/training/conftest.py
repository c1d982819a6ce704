from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from entropy_sgd.lab import recipes
from entropy_sgd.lab.recipes import Recipe
from entropy_sgd.lab.runs.folder import RunFolder, Settings
from entropy_sgd.lab.runs.records import Record
from entropy_sgd.lab.training.trainer import train


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def tiny_images() -> Recipe:
    """LeNet, with its batch normalisation and dropout, on 96 digits: epochs of 6 steps, cycles of 20."""
    recipe = replace(recipes.get("lenet/entropy-sgd"), data="digits", drops=recipes.Drops(0.1, (5,)))
    recipe = replace(recipe, train_limit=96, batch_size=16, epochs=8, statistics_samples=100)
    return replace(recipe, evaluate_every=3, log_every=0.5)


@pytest.fixture
def tiny_text(tmp_path: Path) -> Recipe:
    """A small LSTM on a text whose epoch of 14 batches is no multiple of the cycle of 5."""
    text = tmp_path / "text.txt"
    text.write_bytes(bytes(32 + (i * i // 7 + i // 3) % 40 for i in range(2000)))
    recipe = recipes.get("char-lstm/entropy-adam")
    return replace(
        recipe, data=f"text:{text}", batch_size=11, unroll=10, epochs=2.5, dropout=0.3, evaluate_every=1
    )


@pytest.fixture
def run(tmp_path: Path):
    """Trains in a folder of the given name and returns the summary; it leaves its output in `run.output`."""

    def start(recipe: Recipe, name: str = "run", *, seed: int = 0, final: bool = False, **options) -> Record:
        folder_options = {key: options.pop(key) for key in ("resume", "overwrite") if key in options}
        settings = Settings(recipe, seed, final)
        stream = io.StringIO()
        try:
            folder = RunFolder(tmp_path / name, settings, **folder_options)
            return train(settings, folder, console=Console(file=stream, width=200), **options)
        finally:
            start.output = stream.getvalue()

    start.output = ""
    return start
