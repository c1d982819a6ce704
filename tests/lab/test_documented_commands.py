"""Every command in the pages is one that the program takes: its options are read, nothing is run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from entropy_sgd.lab.cli import COMMANDS, command, output
from entropy_sgd.lab.cli import parse as parsing

ROOT = Path(__file__).parents[2]


class Understood(Exception):
    """The options were read."""


def documented():
    for page in ("docs/laboratory.md", "docs/experiments.md"):
        text = (ROOT / page).read_text()
        for block in re.findall(r"```\n(.*?)```", text, flags=re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                if line.startswith("entropy-sgd "):
                    yield line.partition(" |")[0].partition(" 2>")[0]


@pytest.mark.parametrize("line", dict.fromkeys(documented()))
def test_the_command_is_understood(line, monkeypatch):
    monkeypatch.chdir(ROOT)
    words = shlex.split(line, comments=True)[1:]
    words = [word.replace("my_file.py", "examples/own_experiment.py") for word in words]
    run = command(words[0])
    module = __import__(run.__module__, fromlist=[""])
    original = parsing.parse

    def parse(kind, *arguments, **options):
        original(kind, *arguments, **options)
        raise Understood

    monkeypatch.setattr(module, "parse", parse)
    assert words[0] in COMMANDS
    with pytest.raises(Understood):
        run([word for word in words[1:] if word != output.FLAG])
