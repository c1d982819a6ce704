"""Wrong commands and damaged files are told in a sentence: a table of damages, and a part of the fuzzer."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import ModuleType

import pytest

from entropy_sgd.lab import LabError
from entropy_sgd.lab.cli import main
from entropy_sgd.lab.paper import kept
from entropy_sgd.lab.paper.rows import ROWS
from entropy_sgd.lab.report import measured
from entropy_sgd.lab.runs import checkpoint, reading
from entropy_sgd.lab.runs.folder import RunFolder, Settings
from entropy_sgd.lab.spectra import flatness, measurements

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    found = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


cases = module("fuzz_cases")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    """Small runs, a comparison and measurements."""
    fuzz, before = module("fuzz"), Path.cwd()

    def run(root: Path, words: list[str]) -> object:
        os.chdir(root)
        try:
            return fuzz.Outcome(main(words), "")
        finally:
            os.chdir(before)

    root = tmp_path_factory.mktemp("prepared") / "root"
    fuzz.prepare(root, run)
    assert read_everything(root) == []
    return root


@pytest.fixture(autouse=True, scope="module")
def no_git():
    """To ask git for the commit takes longer than all the rest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("entropy_sgd.lab.runs.environment.commit", lambda: None)
        yield


def read_everything(root: Path) -> list[str]:
    """What all commands read of the files there; what is wrong, in words."""
    told: list[str] = []
    settings = {}
    for folder in ("finished", "stopped", "both", "tuned"):
        try:
            runs = reading.collect([root / folder])
            for run in runs:
                recipe = reading.read_recipe(run)
                settings[run.path] = Settings(recipe, run.settings["seed"], run.settings["final"])
        except LabError as error:
            told.append(str(error))
    for path, known in settings.items():
        for look in (
            lambda path=path, known=known: RunFolder(path, known, resume=True).notes,
            lambda path=path, known=known: checkpoint.load(path, asdict(known))[1],
        ):
            try:
                told += look()  # notes, and complaints of what is passed over
            except LabError as error:
                told.append(str(error))
    try:
        measured.find([], [root / "slices"], [])
    except LabError as error:
        told += [str(error)] * ("was measured at the weights" not in str(error))
    try:
        flatness.tabulate(measurements.read([root / "spectra"], measurements.COMPARED))
    except LabError as error:
        told.append(str(error))
    try:
        kept.read(root / "kept", ROWS)
    except LabError as error:
        told.append(str(error))
    return told


@pytest.mark.parametrize("damage", cases.DAMAGES)
@pytest.mark.parametrize("file", cases.RUN_FILES)
def test_a_damaged_file_of_a_run_is_named_or_not_needed(prepared, tmp_path, file, damage):
    rng = random.Random(f"{file} {damage}")
    root = tmp_path / "root"
    for _ in range(4 if damage in ("entry", "entries", "contents", "bits") else 1):
        shutil.rmtree(root, ignore_errors=True)
        for folder in ("finished", "stopped", "both", "tuned", "kept", "spectra", "slices"):
            shutil.copytree(prepared / folder, root / folder)
        cases.DAMAGES[damage](rng, root / file)
        told = read_everything(root)  # whatever is raised but a LabError fails the test
        assert all(str(root) in text or "bits may differ" in text for text in told), told
        if damage == "noise" and not file.endswith(NOT_READ):
            assert told


NOT_READ = ("comparison.json", "tune.json", "previous.pt", "weights.pt")
"""Not read here: for people, for want of a better one, by measurements."""


def test_a_part_of_the_fuzzer_finds_nothing(tmp_path):
    out = tmp_path / "fuzz.json"
    command = [sys.executable, str(BENCHMARKS / "fuzz.py"), "--cases", "30", "--first", "20000"]
    subprocess.run([*command, "--out", str(out)], check=True, stdout=subprocess.DEVNULL)
    found = json.loads(out.read_text())
    assert found["commands"] == 30
    assert found["failures"] == []
