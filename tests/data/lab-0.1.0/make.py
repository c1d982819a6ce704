"""Makes the runs beside this file, with version 0.1.0 of this program and no other: they are its format.

From this folder: python make.py
"""

from __future__ import annotations

import io
import json
import shutil
import signal
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from sklearn.datasets import load_digits

import entropy_sgd
from entropy_sgd.lab import Interrupted, recipes
from entropy_sgd.lab.training import tasks
from entropy_sgd.lab.training.comparison import Comparison, run
from entropy_sgd.lab.training.folder import RunFolder, Settings
from entropy_sgd.lab.training.loop import train


def write_images() -> None:
    """The first 300 of scikit-learn's 8 x 8 digits to train on and 100 to test, in MNIST's format."""
    pictures, labels = load_digits(return_X_y=True)
    for part, chosen in (("train", slice(0, 300)), ("t10k", slice(300, 400))):
        arrays = {"images-idx3": 15 * pictures[chosen].reshape(-1, 8, 8), "labels-idx1": labels[chosen]}
        for kind, array in arrays.items():
            header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
            Path("digits", f"{part}-{kind}-ubyte").write_bytes(header + array.astype(np.uint8).tobytes())


def recipe(name: str, **changes: object) -> recipes.Recipe:
    """A network of 5,000 weights with batch normalisation and dropout; an epoch is about 17 steps."""
    tiny = {"network": "small-mnistfc", "data": "idx:digits", "batch_size": 16, "epochs": 4}
    tiny |= {"dropout": 0.2, "batch_norm": True, "threads": 1, "statistics_samples": 100}
    return replace(recipes.get(name), **tiny, drops=recipes.Drops(0.1, (3,)), **changes)


def start(settings: Settings, path: str, *, stop: int | None = None) -> None:
    """Train in `path`, and press Ctrl-C in step `stop`."""
    original, calls = tasks.Classification.loss, 0

    def loss(task: tasks.Classification) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == stop:
            signal.raise_signal(signal.SIGINT)
        return original(task)

    tasks.Classification.loss = loss
    try:
        train(settings, RunFolder(Path(path), settings), console=Console(file=io.StringIO()))
    except Interrupted as stopped:
        print(stopped)
    finally:
        tasks.Classification.loss = original


def main() -> None:
    """Everything."""
    if entropy_sgd.__version__ != "0.1.0":
        raise SystemExit("these are runs of version 0.1.0")
    for name in ("digits", "sgd", "sgd-stopped", "entropy-sgd", "entropy-sgd-stopped", "comparison"):
        shutil.rmtree(name, ignore_errors=True)
    Path("digits").mkdir()
    write_images()
    for name in ("sgd", "entropy-sgd"):
        settings = Settings(recipe(f"mnistfc/{name}"), 3)
        start(settings, name)
        start(settings, f"{name}-stopped", stop=33)  # the second cycle of 20
    chosen = tuple(recipe(f"mnistfc/{name}", evaluate_every=2.0) for name in ("sgd", "adam", "entropy-sgd"))
    run(Comparison(chosen, (0, 1)), Path("comparison"), console=Console(file=io.StringIO()))
    for path in Path().glob("**/tensorboard"):
        shutil.rmtree(path)
    for path in (*Path().glob("**/checkpoint.previous.pt"), *Path("comparison").glob("*/checkpoint.pt")):
        path.unlink()
    for name in ("sgd", "entropy-sgd"):
        Path(name, "checkpoint.pt").unlink()
    machine = {"torch": torch.__version__, "cpu": torch.backends.cpu.get_cpu_capability()}
    Path("machine.json").write_text(json.dumps(machine) + "\n")


if __name__ == "__main__":
    main()
