from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console
from scipy import stats

from entropy_sgd.lab import Interrupted, LabError, recipes
from entropy_sgd.lab.comparison.comparison import Comparison, run
from entropy_sgd.lab.comparison.seeds import paired_difference, spread
from entropy_sgd.lab.comparison.table import cells, tabulate
from entropy_sgd.lab.jobs import making as module


@pytest.fixture
def comparison():
    tiny = {"train_limit": 96, "batch_size": 16, "epochs": 2, "statistics_samples": 100}
    chosen = tuple(replace(recipes.get(f"demo/{name}"), **tiny) for name in ("sgd", "adam", "entropy-sgd"))
    return Comparison(chosen, (0, 1))


def summary(recipe, seed, value, *, status="finished", metric="error", final=False):
    if status == "diverged":
        return {"status": status, "recipe": recipe, "seed": seed, "reason": "a loss of nan"}
    part = {"validation": None if final else {metric: value}, "test": {metric: value} if final else None}
    common = {"status": status, "recipe": recipe, "seed": seed, "metric": metric, "final": final}
    return {**common, **part, "seconds": 10.0, "epochs": 2.0}


def test_the_interval_is_scipys():
    values, baseline = {0: 1.1, 1: 2.4, 2: 2.9, 7: 5.0}, {0: 1.0, 1: 2.0, 2: 3.1, 3: 9.0}
    found = paired_difference(values, baseline)
    test = stats.ttest_rel([1.1, 2.4, 2.9], [1.0, 2.0, 3.1])
    low, high = test.confidence_interval(0.95)
    assert found.pairs == 3
    assert found.mean - found.margin == pytest.approx(low)
    assert found.mean + found.margin == pytest.approx(high)
    assert paired_difference({1: 2.0}, {1: 1.5}).margin is None
    assert paired_difference({1: 2.0}, {2: 1.5}) is None


def test_a_single_value_has_no_deviation():
    assert spread([3.0]).deviation is None
    assert spread([1.0, 3.0]).deviation == pytest.approx(2**0.5)


def test_the_table_counts_what_diverged_and_pairs_what_did_not():
    rows = tabulate(
        [
            summary("net/sgd", 0, 2.0),
            summary("net/adam", 0, None, status="diverged"),
            summary("net/sgd", 1, 4.0),
            summary("net/adam", 1, 3.5),
            summary("net/sgld", 0, None, status="diverged"),
        ]
    )
    assert [row.recipe for row in rows] == ["net/sgd", "net/adam", "net/sgld"]
    assert (rows[0].result.mean, rows[0].difference) == (3.0, None)
    assert (rows[1].result.count, rows[1].diverged, rows[1].difference.mean) == (1, 1, -0.5)
    assert (rows[2].result, rows[2].diverged) == (None, 1)
    headings, lines = cells(rows)
    assert headings[1] == "validation error, %"
    assert lines[0][:3] == ["net/sgd", "3.00", "1.41"]
    assert lines[1][3:5] == ["1 (+ 1 diverged)", "-0.50"]
    assert lines[2][1] == "diverged"


def test_results_of_different_kinds_are_not_subtracted():
    rows = tabulate([summary("a/sgd", 0, 2.0), summary("b/sgd", 0, 80.0, metric="perplexity", final=True)])
    assert rows[1].difference is None
    headings, lines = cells(rows)
    assert headings[1] == "result"
    assert [line[1] for line in lines] == ["2.00 validation error, %", "80.00 test perplexity"]


def test_budgets_are_equal_and_a_stopped_comparison_goes_on(comparison, tmp_path, monkeypatch):
    def console():
        return Console(file=io.StringIO(), width=200)

    whole = run(comparison, tmp_path / "whole", console=console())
    original, calls = module.train, []

    def train(settings, *arguments, **options):
        calls.append((settings.recipe.name, settings.seed))
        if len(calls) == 4:
            raise Interrupted(2, "stopped")
        return original(settings, *arguments, **options)

    monkeypatch.setattr(module, "train", train)
    with pytest.raises(Interrupted):
        run(comparison, tmp_path / "parts", console=console())
    with pytest.raises(LabError, match="--resume"):
        run(comparison, tmp_path / "parts", console=console())
    for fewer in ((0,), (0, 2)):
        with pytest.raises(LabError, match="seeds"):
            run(replace(comparison, seeds=fewer), tmp_path / "parts", resume=True, console=console())
    parts = run(comparison, tmp_path / "parts", resume=True, console=console())
    assert [(row.recipe, row.result, row.difference) for row in parts] == [
        (row.recipe, row.result, row.difference) for row in whole
    ]
    content = json.loads((tmp_path / "parts" / "comparison.json").read_text())
    assert {summary["gradient_evaluations"] for summary in content["runs"]} == {12}
    assert len(content["runs"]) == 6
    errors = {(s["recipe"], s["seed"]): s["validation"]["error"] for s in content["runs"]}
    by_hand = [errors["demo/adam", seed] - errors["demo/sgd", seed] for seed in (0, 1)]
    assert content["rows"][1]["difference"]["mean"] == pytest.approx(sum(by_hand) / 2)


def test_a_finished_comparison_takes_more_seeds(comparison, tmp_path, monkeypatch):
    def console():
        return Console(file=io.StringIO(), width=200)

    small = replace(comparison, recipes=comparison.recipes[:2])
    rows = run(replace(small, seeds=(0,)), tmp_path, console=console())
    original, calls = module.train, []

    def train(settings, *arguments, **options):
        calls.append((settings.recipe.method, settings.seed))
        return original(settings, *arguments, **options)

    monkeypatch.setattr(module, "train", train)
    more = run(replace(small, seeds=(0, 3)), tmp_path, resume=True, console=console())
    assert [call for call in calls if call[1] == 3] == [("sgd", 3), ("adam", 3)]
    assert [row.result.count for row in rows + more] == [1, 1, 2, 2]
    settings = json.loads((tmp_path / "config.json").read_text())["settings"]
    assert settings["seeds"] == [0, 3]
    again = run(replace(small, seeds=(0, 3)), tmp_path, resume=True, console=console())
    assert [row.result for row in again] == [row.result for row in more]


def test_overwriting_leaves_no_run_of_the_comparison_before(comparison, tmp_path):
    quiet = Console(file=io.StringIO())
    short = replace(comparison, recipes=comparison.recipes[:1], seeds=(0,))
    run(replace(short, seeds=(5,)), tmp_path, console=quiet)
    run(short, tmp_path, overwrite=True, console=quiet)
    assert sorted(entry.parent.name for entry in tmp_path.glob("*/config.json")) == ["sgd-seed0"]


def test_a_diverging_run_is_a_result(comparison, tmp_path):
    sgd = comparison.recipes[0]
    wild = replace(sgd, name="demo/wild", optimizer=replace(sgd.optimizer, lr=1e30))
    stream = io.StringIO()
    rows = run(Comparison((sgd, wild), (0,)), tmp_path, console=Console(file=stream, width=200))
    assert (rows[1].diverged, rows[1].result) == (1, None)
    assert "diverged" in stream.getvalue()
