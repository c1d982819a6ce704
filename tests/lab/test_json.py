"""`--json`: one JSON value on stdout and nothing else, whatever a command says meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from entropy_sgd.lab.cli import main

SMALL = ["--train-limit", "64", "--batch-size", "16"]


def told(capfd, *arguments):
    code = main([*map(str, arguments), "--json"])
    printed = capfd.readouterr()
    return code, json.loads(printed.out), printed.err


@pytest.fixture
def run(tmp_path, capfd):
    code, summary, progress = told(
        capfd, "train", "demo/sgd", "--out", tmp_path / "run", "--epochs", 1, *SMALL
    )
    assert code == 0
    assert summary == {
        "folder": str(tmp_path / "run"),
        **json.loads((tmp_path / "run" / "summary.json").read_text()),
    }
    assert "demo/sgd seed 0" in progress
    return tmp_path / "run"


def test_measurements_and_pages_of_a_run(run, tmp_path, capfd):
    spectra = tmp_path / "spectra"
    quick = ["--samples", 32, "--out", spectra]
    code, found, _ = told(capfd, "spectrum", run, "--method", "lanczos", "--steps", 5, "--probes", 1, *quick)
    assert code == 0
    assert found["measurements"][0]["spectrum"]["maximum"] > 0
    assert (spectra / found["measurements"][0]["file"].rpartition("/")[2]).exists()
    code, table, _ = told(capfd, "flatness", spectra, "--out", tmp_path / "flat.json")
    assert {row["what"] for row in table["rows"]} > {"largest λ, lanczos"}
    quick = ["--on", "plane", "--points", 3, "--samples", 32, "--out", tmp_path / "around"]
    code, found, _ = told(capfd, "landscape", run, *quick)
    assert (code, len(found["slices"])) == (0, 1)
    code, page, _ = told(capfd, "report", run, "--out", tmp_path / "page.html")
    assert page == {"report": str(tmp_path / "page.html")}
    code, picture, _ = told(capfd, "valley", "--out", tmp_path / "valley.png")
    assert picture == {"file": str(tmp_path / "valley.png")}


def test_comparisons_and_searches(tmp_path, capfd):
    tiny = ["--set", "train-limit=64", "batch-size=16", "--methods", "sgd", "--budget", 1]
    code, found, _ = told(capfd, "compare", "demo", *tiny, "--seeds", 0, 1, "--out", tmp_path / "c")
    assert (code, len(found["runs"]), found["rows"][0]["recipe"]) == (0, 2, "demo/sgd")
    code, found, err = told(
        capfd, "tune", "demo", *tiny, "--trials", 1, "--rates", 1, "--out", tmp_path / "t"
    )
    assert (code, len(found["methods"][0]["trials"])) == (0, 1)
    assert found["commands"][0].startswith("entropy-sgd train demo --method sgd")
    assert found["commands"][0] in err


def test_data_and_errors(tmp_path, capfd):
    code, found, _ = told(capfd, "data", "list", "--data-dir", tmp_path)
    assert code == 0
    assert found["folder"] == str(tmp_path)
    assert {entry["name"]: bool(entry["missing"]) for entry in found["datasets"]}["mnist"]
    assert not {entry["name"]: bool(entry["missing"]) for entry in found["datasets"]}["digits"]
    code, found, err = told(capfd, "data", "verify", "mnist", "--data-dir", tmp_path)
    assert (code, found["exit_code"]) == (2, 2)
    assert found["error"] in err
    wild = ["--optimizer.lr", 1e30, "--epochs", 2, "--out", tmp_path / "wild", *SMALL]
    code, found, _ = told(capfd, "train", "demo/sgd", *wild)
    assert (code, found["exit_code"]) == (3, 3)


def test_processes_that_a_command_starts_print_elsewhere_too(tmp_path):
    command = [sys.executable, "-m", "entropy_sgd", "train", "demo/parle", "--replicas", "2", "--json"]
    small = ["--out", str(tmp_path / "run"), "--epochs", "1", *SMALL]
    found = subprocess.run([*command, *small], capture_output=True, text=True, check=True)
    assert json.loads(found.stdout)["recipe"] == "demo/parle"
    assert "demo/parle" in found.stderr
