from __future__ import annotations

import pytest

from entropy_sgd.lab.comparison.outcome import sentence
from entropy_sgd.lab.comparison.table import cells, tabulate


def summary(recipe, seed, value, metric="error"):
    if value is None:
        return {"status": "diverged", "recipe": recipe, "seed": seed, "reason": "a loss of nan"}
    common = {"status": "finished", "recipe": recipe, "seed": seed, "metric": metric, "final": False}
    return {**common, "validation": {metric: value}, "test": None, "seconds": 10.0, "epochs": 2.0}


def told(results, metric="error", maximize=None):
    summaries = [
        summary(recipe, seed, value, metric)
        for recipe, values in results.items()
        for seed, value in enumerate(values)
    ]
    return sentence(tabulate(summaries), maximize=maximize)


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        # differences 1.0, 1.1, 0.9: mean -1.0, t(0.975, 2) = 4.303, 4.303 * 0.1 / sqrt(3) = 0.248
        (
            {"sgd": [3.0, 3.1, 2.9], "adam": [2.0, 2.0, 2.0]},
            "adam has the lowest validation error, 2.00 % (mean of 3 seeds), a difference from the baseline "
            "sgd of -1.00 ± 0.25 (95 % interval, 3 seeds).",
        ),
        # differences 0.5, -1.5: mean -0.5, 12.706 * 1.4142 / sqrt(2) = 12.71
        (
            {"sgd": [3.0, 3.0], "adam": [3.5, 1.5]},
            "adam has the lowest validation error, 2.50 % (mean of 2 seeds), but no difference from the "
            "baseline sgd can be told from 2 seeds (-0.50 ± 12.71, 95 %).",
        ),
        (
            {"sgd": [2.0], "adam": [3.0], "sam": [2.5]},
            "sgd has the lowest validation error, 2.00 % (one seed); it is the baseline. Next is sam, but no "
            "difference from it can be told from one seed (+0.50).",
        ),
        (
            {"sgd": [None, None], "adam": [3.0, None]},
            "adam: validation error 3.00 % (one seed). Diverged: 2 runs of sgd, 1 run of adam.",
        ),
        ({"sgd": [None]}, "No run has a result. Diverged: 1 run of sgd."),
    ],
)
def test_the_sentence_says_what_the_numbers_allow(results, expected):
    assert told(results) == expected


def test_a_metric_of_the_users_own_has_no_best():
    text = told({"sgd": [0.9, 0.8], "adam": [0.95, 0.9]}, metric="accuracy")
    assert "lowest" not in text
    assert "sgd 0.8500, adam 0.9250" in text


def test_unless_it_is_said_which_values_are_better():
    results = {"sgd": [0.9, 0.7], "adam": [0.95, 0.75], "sam": [0.5, 0.5]}
    text = told(results, metric="accuracy", maximize=True)
    assert text.startswith("adam has the highest validation accuracy, 0.8500 (mean of 2 seeds), a difference")
    text = told(results, metric="accuracy", maximize=False)
    assert text.startswith("sam has the lowest validation accuracy, 0.5000")
    text = told({"sam": [0.9], "adam": [0.5], "sgd": [0.7]}, metric="accuracy", maximize=True)
    assert "it is the baseline. Next is sgd," in text


def test_runs_judged_differently_have_no_best():
    rows = tabulate([summary("a/sgd", 0, 2.0), summary("b/sgd", 0, 80.0, metric="perplexity")])
    assert "none is called best" in sentence(rows)


def test_the_baseline_stays_the_baseline_when_its_runs_fail():
    found = [summary("adam", 0, 2.0), summary("sgd", 1, 3.0), summary("adam", 1, 2.5)]
    rows = tabulate(found, ["sgd", "adam"])
    assert [row.recipe for row in rows] == ["sgd", "adam"]
    assert rows[1].difference.mean == -0.5
    rows = tabulate(found[:1], ["sgd", "adam"])
    assert cells(rows)[1][0][:2] == ["sgd", "failed"]
    assert rows[1].difference is None
