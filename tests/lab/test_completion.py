"""What TAB completes, in a real bash; and that the other scripts are at least well-formed."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from entropy_sgd.lab import methods, recipes
from entropy_sgd.lab.cli import COMMANDS, main
from entropy_sgd.lab.cli.completion import SCRIPTS, candidates


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("comp", {"compare", "completion"}),
        ("train le", {"lenet"}),
        ("train lenet/entropy-s", {"lenet/entropy-sgd"}),
        ("train lenet --met", {"--method"}),
        ("train lenet --method entropy-a", {"entropy-adam"}),
        ("train lenet --method entropy-sgd --optimizer.inner-l", {"--optimizer.inner-lr"}),
        ("train lenet/sgd --optimizer.inner", set()),
        ("train lenet/sgd --drops.f", {"--drops.factor"}),
        ("train lenet/sgd --data dig", {"digits"}),
        ("compare lenet --methods sgd sa", {"sam"}),
        ("compare lenet --optimizers loc", {"local-entropy"}),
        ("compare lenet --seeds 0 1 s", set()),
        ("tune nowhere/mine.py --sampler t", {"tpe"}),
        ("tune lenet --tri", {"--trials"}),
        ("spectrum run --method l", {"lanczos"}),
        ("report run --js", {"--json"}),
        ("data fe", {"fetch"}),
        ("data fetch mnist cif", {"cifar10"}),
        ("completion z", {"zsh"}),
        ("paper k", {"keep"}),
        ("paper run --jo", {"--jobs"}),
        ("data list --data", {"--data-dir"}),
        ("nonsense --", {"--json", "--help"}),
    ],
)
def test_candidates(line, expected):
    assert set(candidates(line.split(" "))) == expected


def test_everything_there_is_is_offered():
    assert {*COMMANDS} < set(candidates([""]))
    assert set(candidates(["compare", ""])) == set(recipes.FAMILIES)
    assert set(candidates(["compare", "demo", "--methods", ""])) == set(methods.names())
    assert set(candidates(["train", "demo/"])) > {f"demo/{name}" for name in ("sgd", "entropy-sgd")}


def test_a_tab_imports_no_torch_and_executes_no_file(tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text("raise SystemExit('executed')")
    program = f"""
import sys
from entropy_sgd.lab.cli import main
assert main(["completion", "words", "compare", {str(mine)!r}, "--meth"]) == 0
assert "torch" not in sys.modules
"""
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert found.stdout == "--methods\n"


def test_bash(tmp_path):
    program = tmp_path / "entropy-sgd"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m entropy_sgd "$@"\n')
    program.chmod(0o755)
    script = f"""
PATH={tmp_path}:$PATH
eval "$(entropy-sgd completion bash)"
complete -p entropy-sgd
COMP_WORDS=(entropy-sgd compare lenet --methods sgd sch); COMP_CWORD=5; _entropy_sgd; echo "${{COMPREPLY[@]}}"
COMP_WORDS=(entropy-sgd train ""); COMP_CWORD=2; _entropy_sgd; echo "${{COMPREPLY[@]}}"
COMP_WORDS=(entropy-sgd report nowh); COMP_CWORD=2; _entropy_sgd; echo "${{#COMPREPLY[@]}}"
"""
    found = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert found[0] == "complete -o default -F _entropy_sgd entropy-sgd"
    assert found[1] == "schedule-free"
    assert found[2].split() == list(recipes.FAMILIES)
    assert found[3] == "0"  # so that bash completes file names


@pytest.mark.parametrize("shell", [shell for shell in SCRIPTS if shutil.which(shell)])
def test_scripts_are_accepted_by_their_shells(shell, tmp_path):
    script = tmp_path / "script"
    script.write_text(SCRIPTS[shell])
    subprocess.run([shell, "-n" if shell != "fish" else "--no-execute", script], check=True)


def test_the_scripts_and_mistakes(capsys):
    for shell, script in SCRIPTS.items():
        assert main(["completion", shell]) == 0
        assert capsys.readouterr().out == script
        assert "entropy-sgd completion words" in script
    assert main(["completion", "bsh"]) == 2
    assert "Did you mean bash" in capsys.readouterr().err
    assert main(["completion"]) == 2
