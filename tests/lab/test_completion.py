"""What TAB completes, in real shells, as far as they are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

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
        ("train mine.py --method sgd --drop", {"--drops.factor", "--drops.at"}),  # not --dropout
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


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> str:
    """A PATH that has the command."""
    folder = tmp_path_factory.mktemp("bin")
    program = folder / "entropy-sgd"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m entropy_sgd "$@"\n')
    program.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def run(path: str, home: Path, *words: str) -> list[str]:
    """What a shell prints, with a home of its own."""
    settings = {**os.environ, "PATH": path, "HOME": str(home), "TERM": "dumb"}
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=settings, timeout=60)
    return done.stdout.splitlines()


needs = {
    shell: pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed")
    for shell in SCRIPTS
}


LINES = ("entropy-sgd trai", "entropy-sgd compare lenet --methods sgd sch")


def test_bash(path, tmp_path):
    script = """
eval "$(entropy-sgd completion bash)"
complete -p entropy-sgd
COMP_WORDS=(entropy-sgd compare lenet --methods sgd sch); COMP_CWORD=5; _entropy_sgd; echo "${COMPREPLY[@]}"
COMP_WORDS=(entropy-sgd train ""); COMP_CWORD=2; _entropy_sgd; echo "${COMPREPLY[@]}"
COMP_WORDS=(entropy-sgd report nowh); COMP_CWORD=2; _entropy_sgd; echo "${#COMPREPLY[@]}"
"""
    found = run(path, tmp_path, "bash", "--norc", "-c", script)
    assert found[0] == "complete -o default -F _entropy_sgd entropy-sgd"
    assert found[1] == "schedule-free"
    assert found[2].split() == list(recipes.FAMILIES)
    assert found[3] == "0"  # so that bash completes file names


ZSH = """
eval "$(entropy-sgd completion zsh)"
finish() { zle complete-word; print -r -- "<<$BUFFER>>" }
zle -N finish
bindkey '^T' finish
PROMPT=READY
"""
TYPE = """
zmodload zsh/zpty
zpty inner zsh -f -i
zpty -w inner "autoload -Uz compinit; compinit -u -D; source $1"
zpty -r inner seen '*READY'
for line in "${@:2}"; do
  zpty -w -n inner "$line"$'\\C-t'
  zpty -r inner seen '*>>'
  print -r -- "${${seen##*<<}%%>>*}"
  zpty -w -n inner $'\\C-u'
done
zpty -d inner
"""
"""Types each line into an interactive zsh, completes its last word and prints what has become of it."""


@needs["zsh"]
def test_zsh(path, tmp_path):
    (tmp_path / "my-run").mkdir()
    settings = tmp_path / "settings"
    settings.write_text(ZSH)
    lines = [*LINES, f"entropy-sgd report {tmp_path}/my"]
    found = run(path, tmp_path, "zsh", "-f", "-c", TYPE, "zsh", str(settings), *lines)
    assert found == [
        "entropy-sgd train ",
        "entropy-sgd compare lenet --methods sgd schedule-free ",
        f"entropy-sgd report {tmp_path}/my-run/",  # a file's name
    ]


@needs["fish"]
def test_fish(path, tmp_path):
    (tmp_path / "my-run").mkdir()
    lines = [*LINES, f"entropy-sgd report {tmp_path}/my"]
    asked = "; ".join(f"complete -C '{line}'" for line in lines)
    found = run(path, tmp_path, "fish", "--no-config", "-c", f"entropy-sgd completion fish | source; {asked}")
    assert found == ["train", "schedule-free", f"{tmp_path}/my-run/"]


@pytest.mark.parametrize("shell", [pytest.param(shell, marks=mark) for shell, mark in needs.items()])
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
    assert "completion is for bash, zsh, fish, got 'bsh'" in capsys.readouterr().err
    assert main(["completion"]) == 2
