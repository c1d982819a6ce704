"""Everything that is printed fits 80 columns, and 60 where it can; nothing in a heading is cut."""

from __future__ import annotations

import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

from entropy_sgd.lab.cli import main
from entropy_sgd.lab.comparison.seeds import Difference, Spread
from entropy_sgd.lab.comparison.table import Row, forms
from entropy_sgd.lab.spectra import flatness
from entropy_sgd.lab.terminal import Form, filled, show
from entropy_sgd.lab.training.display import Display, count

METHODS = ("adam", "entropy-adam", "schedule-free")


def comparison():
    return [
        Row(
            f"small-char-lstm/{method}",
            "nats",
            "validation",
            Spread(1.2345, 0.0123, 3),
            None if method == "adam" else Difference(-0.1234, 0.0567, 3),
            3723.0,
            12.0,
            0,
        )
        for method in METHODS
    ] + [Row("small-char-lstm/sgd", "", "validation", None, None, None, None, 3)]


def measured():
    recipes = [f"small-char-lstm/{method}" for method in METHODS]
    return [
        flatness.Row(
            what,
            {recipe: Spread(-1.2345, 0.57, 5) for recipe in recipes},
            {recipe: Difference(0.8, 0.7, 5) for recipe in recipes[1:]},
        )
        for what in ("loss on 2048 samples", "largest λ, lanczos", "local entropy, γ = 0.1, laplace")
    ]


def printed(width, *forms_):
    stream = io.StringIO()
    show(Console(file=stream, width=width), *forms_)
    return stream.getvalue()


@pytest.mark.parametrize("width", [60, 80, 200])
def test_tables_fit_and_say_the_same(width):
    for table, needed in (
        (forms(comparison(), 1), ("validation", "character", "difference", "1.2345", "-0.1234 ± 0.0567")),
        (flatness.forms(measured()), ("mean ± sd", "local entropy", "γ = 0.1, laplace", "-1.234 ± 0.57 (5)")),
    ):
        text = printed(width, table)
        assert max(cell_len(line) for line in text.splitlines()) <= width
        assert "…" not in text
        for method in METHODS:
            assert method in text
        for part in needed:
            assert part in text, (width, part)
    assert "1 effective epoch each" in printed(width, forms(comparison(), 1))
    assert "2.5 effective epochs each" in printed(width, forms(comparison(), 2.5))


def test_the_widest_table_that_fits_is_printed():
    wide, narrow = Form(["a", "b"], [["x" * 10, "y" * 10]]), Form(["a"], [["z" * 10]])
    assert wide.width == 27
    assert "y" in printed(27, [wide, narrow])
    assert "z" in printed(26, [wide, narrow])
    # what does not fit at all is folded, not cut
    assert printed(8, [narrow]).count("z") == 10


@pytest.mark.parametrize("width", [60, 80])
def test_live_lines_fit(width):
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=width, legacy_windows=False)
    record = {"epoch": 12.5, "loss": 0.25, "lr": 0.1, "gamma": 0.003, "angle": 61.7, "nats": 1.5}
    with Display(console, "small-char-lstm/entropy-adam seed 0", 100, "nats") as display:
        display.advance(1.0, 99.0)
        display.show(record, evaluated=True)
        display.advance(12.5, 105.0)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\n", stream.getvalue())
    lines = [line.strip("\r") for line in text.splitlines()]
    assert max(map(cell_len, lines)) <= width
    assert "…" not in text
    for part in ("epoch 12.50/100", "12.50/100 epochs, 46 s left", "loss 0.2500", "validation nats 1.5000"):
        assert part in text


def test_lines_break_between_parts():
    assert filled(["one", "two", "three"], 10) == "one  two\n  three"
    assert filled(["a" * 20, "b"], 10) == "a" * 20 + "\n  b"


def test_one_thing_is_singular():
    assert [count(n, "epoch") for n in (1, 2, 0.5)] == ["1 epoch", "2 epochs", "0.5 epochs"]


@pytest.mark.parametrize("command", [["--help"], ["data", "list"], ["data", "--help"], ["train", "--help"]])
def test_what_commands_list_fits(command, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ENTROPY_SGD_DATA", "data")
    assert main(command) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
