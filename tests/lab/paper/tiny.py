"""Rows of test_running.py, in a process that can be killed: `tiny.py RESULTS RUNS AT_ONCE`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from entropy_sgd.lab import LabError, recipes
from entropy_sgd.lab.paper.entry import Entry, Row
from entropy_sgd.lab.paper.numbers import Number
from entropy_sgd.lab.paper.running import run

SMALL = {
    "network": "small-mnistfc",
    "data": "digits",
    "train_limit": 1280,
    "batch_size": 64,
    "epochs": 6,
    "threads": 1,
}
sgd = replace(recipes.get("mnistfc/sgd"), **SMALL)
adam = replace(recipes.get("mnistfc/adam"), **SMALL)
wild = replace(sgd, optimizer=replace(sgd.optimizer, lr=1e30))

ROWS = (
    Row(
        "tiny",
        "two methods on a few digits",
        (
            Entry("sgd", "SGD", sgd, (0, 1), paper=(Number("test", 12.0, 1.0, 6, "nowhere"),)),
            Entry("wild", "SGD, too fast", wild, (0,), against="sgd"),
        ),
    ),
    Row("other", "a third", (Entry("adam", "Adam", adam, (0,), final=False),)),
)

if __name__ == "__main__":
    results, runs, at_once = sys.argv[1:]
    try:
        run(ROWS, Path(results), Path(runs), known=ROWS, at_once=int(at_once), checkpoint_seconds=0)
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
