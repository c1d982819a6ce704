from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from begun import begun
from entropy_sgd.lab import LabError, recipes
from entropy_sgd.lab.cli import main
from entropy_sgd.lab.report import write
from entropy_sgd.lab.report.curves import curves
from entropy_sgd.lab.runs.folder import Settings
from entropy_sgd.lab.runs.reading import Run, collect


class Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.attributes, self.ids, self.open, self.text = [], [], [], ""

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, name, value) for name, value in attrs]
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_data(self, data):
        self.text += data


def read(page):
    reader = Reader()
    reader.feed(page.read_text())
    return reader


def test_the_page_needs_nothing_but_itself(page):
    reader = read(page)
    for tag, name, value in reader.attributes:
        if name in ("src", "href", "xlink:href", "action", "data"):
            assert value.startswith(("#", "data:")), (tag, name, value)
    content = page.read_text()
    assert not re.search(r"@import|url\((?!#)|<script|<iframe", content)
    assert len(reader.ids) == len(set(reader.ids))
    for reference in re.findall(r'(?:url\(#|href="#)([^")]+)', content):
        assert reference in reader.ids


def test_the_page_says_what_the_runs_say(page, comparison):
    text = read(page).text
    rows = json.loads((comparison / "comparison.json").read_text())["rows"]
    for row in rows:
        assert row["recipe"] in text
        assert f"{row['result']['mean']:.2f}" in text
    assert f"{rows[1]['difference']['mean']:+.2f} ± {rows[1]['difference']['margin']:.2f}" in text
    environment = json.loads((comparison / "config.json").read_text())["environment"]
    for value in ("recipe.optimizer.inner_lr", environment["torch"], environment["python"], "sgd-seed1"):
        assert value in text


def test_figures_are_also_pictures(page):
    for name in ("loss", "error", "gamma", "angle"):
        assert (page.parent / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (page.parent / f"{name}.pdf").read_bytes().startswith(b"%PDF")


def test_the_same_runs_give_the_same_page(page, comparison, tmp_path):
    assert write([comparison], tmp_path).read_bytes() == page.read_bytes()


def test_a_name_that_ends_in_html_is_the_page_itself(page, comparison, tmp_path, capsys):
    out = tmp_path / "new" / "mine.html"
    assert main(["report", str(comparison), "--out", str(out)]) == 0
    assert capsys.readouterr().out.strip() == str(out)
    assert out.read_bytes() == page.read_bytes()
    assert list(out.parent.iterdir()) == [out]


def test_a_folder_that_ends_in_html_is_not_written_over(comparison, tmp_path, capsys):
    out = tmp_path / "mine.html"
    out.mkdir()
    assert main(["report", str(comparison), "--out", str(out)]) == 2
    assert f"cannot write the report to {out}" in capsys.readouterr().err


def test_unfinished_runs_and_runs_of_one_recipe_are_told_apart(comparison, tmp_path):
    recipe = replace(recipes.get("demo/sgd"), batch_size=16)
    begun(tmp_path / "a", Settings(recipe))
    begun(tmp_path / "b", Settings(replace(recipe, optimizer=replace(recipe.optimizer, lr=0.25))))
    (tmp_path / "a" / "metrics.jsonl").write_text(
        '{"step": 1, "epoch": 0.5, "loss": 2.0, "lr": 0.1}\n{"step": 2, "ep'
    )
    labels = [run.label for run in collect([tmp_path / "a", tmp_path / "b"])]
    assert labels == [f"demo/sgd, optimizer.lr {recipe.optimizer.lr}", "demo/sgd, optimizer.lr 0.25"]
    text = read(write([tmp_path / "a", tmp_path / "b"], tmp_path / "out")).text
    assert "not finished" in text


def test_names_are_escaped(tmp_path):
    begun(tmp_path / "a", Settings(replace(recipes.get("demo/sgd"), data="<script>alert(1)</script>")))
    assert "<script" not in write([tmp_path / "a"], tmp_path / "out").read_text()


def test_a_folder_without_a_run_is_named(tmp_path):
    with pytest.raises(LabError, match="not the folder of a run"):
        write([tmp_path / "nothing"], tmp_path)


def test_the_outcome_comes_first_and_is_the_tables(page, comparison):
    content = page.read_text()
    rows = json.loads((comparison / "comparison.json").read_text())["rows"]
    best = min(rows, key=lambda row: row["result"]["mean"])
    outcome = re.search(r'<p class="outcome">(.*?)</p>', content)
    assert outcome
    assert outcome[1].startswith(f"{best['recipe'].removeprefix('demo/')} has the lowest validation error, ")
    assert f"{best['result']['mean']:.2f} %" in outcome[1]
    assert outcome.start() < content.index("<table")


def test_differences_in_configuration_come_first_and_the_rest_is_folded(page):
    configuration = page.read_text().partition("<h2>Configuration</h2>")[2].partition("<h2>")[0]
    shown, _, folded = configuration.partition("<details>")
    assert "recipe.optimizer.inner_lr" in shown
    assert "recipe.batch_size" not in shown
    assert "recipe.batch_size" in folded
    assert "<details open" not in page.read_text()


def test_curves_are_means_with_a_band_over_seeds(comparison):
    runs = collect([comparison])
    for curve in curves(runs, "validation_loss"):
        mine = [run.series("validation_loss") for run in runs if run.label == f"demo/{curve.label}"]
        assert len(mine) == len(curve.singles) == 2
        for i, epoch in enumerate(curve.epochs):
            values = [series[1][i] for series in mine]
            assert mine[0][0][i] == pytest.approx(epoch)
            assert curve.mean[i] == pytest.approx(np.mean(values))
            assert curve.deviation[i] == pytest.approx(np.std(values, ddof=1))


def test_the_mean_ends_where_the_first_run_does():
    def run(*values):
        records = [{"epoch": float(i), "loss": value} for i, value in enumerate(values)]
        settings = {"recipe": {"name": "a/sgd", "metric": "loss"}, "seed": 0}
        return Run(Path(), settings, {}, records, None, label="a/sgd")

    (curve,) = curves([run(1.0, 2.0, 4.0), run(3.0, 2.0)], "loss")
    assert curve.epochs == [0.0, 1.0]
    assert curve.mean == [2.0, 2.0]
    assert [len(values) for _, values in curve.singles] == [3, 2]


def test_what_was_measured_is_shown_and_only_of_these_runs(comparison, tmp_path, capsys):
    runs = [comparison / "sgd-seed0", comparison / "entropy-sgd-seed0"]
    quick = ["--samples", "20", "--points", "3"]
    out = tmp_path / "slices"
    assert main(["landscape", *map(str, runs), "--on", "plane", *quick, "--out", str(out)]) == 0
    assert main(["landscape", *map(str, runs), *quick, "--out", str(out)]) == 0
    entropy = ["--gamma", "100", "--samples", "20", "--probes", "2", "--steps", "2", "--dtype", "float32"]
    assert main(["local-entropy", *map(str, runs), *entropy, "--out", str(out)]) == 0
    page = write(runs, tmp_path / "report", [out])
    content = page.read_text()
    assert "<h2>Flatness</h2>" in content
    assert "Flattest on average: by the largest eigenvalue" in read(page).text
    assert content.partition("<h2>Landscape</h2>")[2].partition("<h2>")[0].count("<figure") == 4
    assert (page.parent / "plane.png").exists()
    assert write(runs, tmp_path / "report", [out, out / "."]).read_text() == content
    other = comparison / "sgd-seed1"
    with pytest.raises(LabError, match="was measured at the weights of these runs"):
        write([other], tmp_path / "other", [out])


def test_labels_and_settings_cannot_break_figures_or_page(tmp_path):
    recipe = replace(recipes.get("demo/sgd"), data="<b>&quot;$\\frac$ ${x}$")
    for seed, name in ((0, "a"), (0, "b")):
        begun(tmp_path / name, Settings(replace(recipe, batch_size=8 + len(name) * (name == "b")), seed))
        (tmp_path / name / "metrics.jsonl").write_text('{"step": 1, "epoch": 0.5, "loss": 2.0, "lr": 0.1}\n')
    other = replace(recipe, data="$\\frac$")
    begun(tmp_path / "c", Settings(other))
    (tmp_path / "c" / "metrics.jsonl").write_text('{"step": 1, "epoch": 0.5, "loss": 2.0, "lr": 0.1}\n')
    content = write([tmp_path / name for name in "abc"], tmp_path / "out").read_text()
    assert "<b>" not in content
    assert "frac" in content


def test_a_report_is_replaced_and_no_other_page(comparison, tmp_path, capsys):
    mine = tmp_path / "index.html"
    mine.write_text("<p>my notes")
    assert main(["report", str(comparison), "--out", str(mine)]) == 2
    assert f"{mine} is not a report" in capsys.readouterr().err
    assert mine.read_text() == "<p>my notes"
    page = write([comparison / "sgd-seed0"], tmp_path)
    before = page.read_text()
    assert write([comparison], tmp_path) == page
    assert page.read_text() != before
