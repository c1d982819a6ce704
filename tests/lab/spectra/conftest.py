"""Finished runs of tiny networks: 4 x 4 images of 3 classes make `small-mnistfc` one of 1,283 weights."""

from __future__ import annotations

import io
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from entropy_sgd.lab import recipes
from entropy_sgd.lab.runs.folder import RunFolder, Settings
from entropy_sgd.lab.training import trainer


@pytest.fixture(scope="session")
def train(tmp_path_factory):
    """Trains a recipe, changed, in a new folder and returns that."""

    def start(name: str, seed: int = 0, **changes) -> Path:
        settings = Settings(replace(recipes.get(name), **changes), seed)
        folder = RunFolder(tmp_path_factory.mktemp("run"), settings)
        trainer.train(settings, folder, console=Console(file=io.StringIO()))
        return folder.path

    return start


@pytest.fixture(scope="session")
def images(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("images")
    generator = np.random.default_rng(0)
    for part, count in (("train", 60), ("t10k", 10)):
        labels = generator.integers(0, 3, count)
        pictures = generator.integers(0, 128, (count, 4, 4)) + 60 * (np.arange(16).reshape(4, 4) % 3 == 0)
        pictures = (pictures + 40 * labels[:, None, None]).clip(0, 255)
        for kind, array in (("images-idx3", pictures), ("labels-idx1", labels)):
            header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
            (folder / f"{part}-{kind}-ubyte").write_bytes(header + array.astype(np.uint8).tobytes())
    return f"idx:{folder}"


@pytest.fixture(scope="session")
def tiny(images):
    return {"network": "small-mnistfc", "data": images, "train_limit": 40, "batch_size": 8, "epochs": 12}


@pytest.fixture(scope="session")
def sgd(train, tiny) -> Path:
    return train("small-mnistfc/sgd", **tiny)


@pytest.fixture(scope="session")
def adam(train, tiny) -> Path:
    return train("small-lenet/adam", seed=3, **tiny)


@pytest.fixture(scope="session")
def entropy_sgd(train, tiny) -> Path:
    return train("mnistfc/entropy-sgd", dropout=0.0, **tiny)
