from __future__ import annotations

import json
import statistics

import pytest

from entropy_sgd.lab import LabError
from entropy_sgd.lab.cli import main
from entropy_sgd.lab.spectra.flatness import tabulate


def measured(recipe, seed, maximum, *, samples=9, method="exact", lr=0.1, **changes):
    near_zero = {"1e-05": 0.5, "0.01": 0.9}
    spectrum = {
        "minimum": -0.1,
        "maximum": maximum,
        "trace": 2 * maximum,
        "negative": 0.1,
        "near_zero": near_zero,
    }
    common = {"recipe": recipe, "seed": seed, "network": "small", "data": "mnist", "samples": samples}
    common |= {"method": method, "options": {"batch": 256}, "loss": 0.25, "gradient_norm": 0.01}
    common["run"] = {"settings": {"recipe": {"optimizer": {"lr": lr}}}}
    return {**common, "spectrum": spectrum, **changes}


def entropies(recipe, seed, **by_gamma):
    entries = [
        {"gamma": float(gamma[1:])} | ({"reason": "diverges"} if value is None else {"normalized": value})
        for gamma, value in by_gamma.items()
    ]
    record = measured(recipe, seed, 0.0, method="laplace", local_entropy=entries)
    del record["spectrum"]
    return record


def row(rows, what):
    return next(row for row in rows if row.what == what)


def test_means_deviations_and_paired_differences():
    sgd, entropy = {0: 3.0, 1: 4.5, 2: 7.0}, {1: 4.0, 2: 5.0, 5: 1.0}
    records = [measured("net/sgd", seed, value) for seed, value in sgd.items()]
    records += [measured("net/entropy-sgd", seed, value) for seed, value in entropy.items()]
    found = row(tabulate(records), "largest λ, exact")
    assert found.spreads["net/sgd"].mean == pytest.approx(14.5 / 3)
    assert found.spreads["net/sgd"].deviation == pytest.approx(statistics.stdev(sgd.values()))
    assert list(found.differences) == ["net/entropy-sgd"]
    assert found.differences["net/entropy-sgd"].mean == pytest.approx(-1.25)  # over seeds 1 and 2
    assert found.differences["net/entropy-sgd"].pairs == 2


def test_spectra_and_local_entropies_meet_in_one_table():
    records = [
        measured("net/sgd", 0, 3.0),
        entropies("net/sgd", 0, g1=-2.0, g10=-1.0),
        entropies("net/sgd", 1, g1=None, g10=-3.0),
    ]
    rows = tabulate(records)
    assert row(rows, "loss on 9 samples").spreads["net/sgd"].count == 2
    assert row(rows, "trace, exact").spreads["net/sgd"].mean == 6.0
    assert row(rows, "local entropy, γ = 10, laplace").spreads["net/sgd"].mean == -2.0
    # where Laplace's integral does not exist there is nothing to average
    assert row(rows, "local entropy, γ = 1, laplace").spreads["net/sgd"].count == 1


def test_what_was_not_measured_alike_is_not_compared():
    with pytest.raises(LabError, match="samples cannot be compared: 9 for net/sgd, 8 for net/adam"):
        tabulate([measured("net/sgd", 0, 1.0), measured("net/adam", 0, 1.0, samples=8)])
    with pytest.raises(LabError, match="seed 4 was found twice"):
        tabulate([measured("net/sgd", 4, 1.0), measured("net/sgd", 4, 2.0)])
    with pytest.raises(LabError, match="net/sgd that were trained differently"):
        tabulate([measured("net/sgd", 0, 1.0), measured("net/sgd", 1, 2.0, lr=0.2)])
    rows = tabulate([measured("net/sgd", 0, 1.0), measured("net/sgd", 0, 2.0, method="lanczos")])
    assert row(rows, "largest λ, lanczos").spreads["net/sgd"].mean == 2.0


def test_the_command_prints_and_writes_the_table(sgd, entropy_sgd, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    spectra, table = tmp_path / "spectra", tmp_path / "table.json"
    options = ["--method", "fisher", "--samples", "10", "--out", str(spectra)]
    assert main(["spectrum", str(sgd), str(entropy_sgd), *options]) == 0
    baseline = ["--baseline", "small-mnistfc/sgd"]
    assert main(["flatness", str(spectra), "--out", str(table), *baseline]) == 0
    printed = capsys.readouterr().out
    assert "mnistfc/entropy-sgd - small-mnistfc/sgd" in printed
    records = [json.loads(path.read_text()) for path in spectra.iterdir()]
    traces = {record["recipe"]: record["spectrum"]["trace"] for record in records}
    rows = {row["what"]: row for row in json.loads(table.read_text())["rows"]}
    found = rows["trace, fisher-samples"]
    assert {recipe: entry["mean"] for recipe, entry in found["spreads"].items()} == traces
    difference = traces["mnistfc/entropy-sgd"] - traces["small-mnistfc/sgd"]
    assert found["differences"]["mnistfc/entropy-sgd"]["mean"] == pytest.approx(difference)
    assert f"{difference:+.4g}" in printed
    assert main(["flatness", str(spectra), "--out", str(table), "--baseline", "small-mnistfc/sdg"]) == 2
    assert "Did you mean small-mnistfc/sgd" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "expected"), [(None, "does not exist"), ("{}", "neither"), ("{", "read")]
)
def test_files_that_hold_no_measurement(tmp_path, capsys, content, expected):
    path = tmp_path / "it.json"
    if content is not None:
        path.write_text(content)
    assert main(["flatness", str(path), "--out", str(tmp_path / "table.json")]) == 2
    assert expected in capsys.readouterr().err
    assert not (tmp_path / "table.json").exists()
