from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from entropy_sgd.lab.training.display import Display, duration, say

RECORD = {
    "epoch": 2.5,
    "loss": 0.25,
    "lr": 0.1,
    "gamma": 0.003,
    "angle": 61.7,
    "error": 1.5,
    "x_minus_mu": 3.0,
}


def test_off_a_terminal_each_evaluation_is_one_plain_line():
    stream = io.StringIO()
    with Display(Console(file=stream, width=40), "net/sgd seed 0", 10, "error") as display:
        display.advance(0.5, 100.0)
        display.show({"epoch": 1.0, "loss": 0.5, "lr": 0.1, "gamma": None, "angle": None}, evaluated=False)
        display.show(RECORD, evaluated=True)
    text = stream.getvalue()
    line = "net/sgd seed 0  epoch 2.50/10  loss 0.2500  validation error 1.50 %  lr 0.1  γ 0.003  angle 62°  "
    assert text.startswith(line)
    assert text.endswith(" left\n")
    assert text.count("\n") == 1
    assert "\x1b" not in text


def test_on_a_terminal_a_live_line_shows_progress_values_and_time_left():
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=80, legacy_windows=False)
    with Display(console, "net/sgd seed 0", 10, "perplexity") as display:
        display.show({**RECORD, "perplexity": 81.4}, evaluated=False)
        display.advance(2.5, 100.0)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    assert "2.50/10 epochs" in text
    assert "left" in text
    assert "loss 0.2500  validation perplexity 81.40  lr 0.1  γ 0.003  angle 62°" in text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.6, "1 min 00 s"), (75, "1 min 15 s"), (7265, "2 h 01 min")]
)
def test_durations_read_well(seconds, text):
    assert duration(seconds) == text


def test_brackets_in_a_path_are_printed_as_they_are():
    stream = io.StringIO()
    say(Console(file=stream, width=20), "runs/[bold]/a folder with a long name")
    assert stream.getvalue() == "runs/[bold]/a folder with a long name\n"
