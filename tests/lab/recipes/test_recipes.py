from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from entropy_sgd import scoping
from entropy_sgd.lab import LabError, data, methods, models, recipes
from entropy_sgd.lab.methods.algorithm1 import InnerOptions
from entropy_sgd.lab.recipes import Drops
from entropy_sgd.lab.recipes.recipe import every


@pytest.mark.parametrize("name", recipes.names())
def test_a_recipe_names_what_exists_and_says_where_it_comes_from(name):
    recipe = recipes.get(name)
    assert recipe.network in models.names()
    assert recipe.data in data.names()
    assert methods.of(recipe.optimizer).name == recipe.method
    assert recipe.paper
    assert recipe.chosen
    assert all(0 < drop < recipe.epochs for drop in recipe.drops.at)
    assert (recipe.metric == "error") == (recipe.unroll is None)


# What the paper prints, once more and by hand: (epochs, L) and the learning rate just after each drop.
PAPER = {
    "mnistfc/adam": (100, 1, {0: 1e-3, 30: 2e-4, 60: 4e-5, 90: 8e-6}),
    "lenet/adam": (100, 1, {0: 1e-3, 30: 2e-4, 60: 4e-5, 90: 8e-6}),
    "mnistfc/entropy-sgd": (5, 20, {0: 1.0, 2: 0.1}),
    "lenet/entropy-sgd": (5, 20, {0: 1.0, 2: 0.1}),
    "allcnn/sgd": (200, 1, {0: 0.1, 60: 0.02, 120: 0.004, 180: 0.0008}),
    "allcnn/entropy-sgd": (10, 20, {0: 1.0, 4: 0.2, 8: 0.04}),
    "ptb-lstm/sgd": (55, 1, {0: 1.0, 13.9: 1.0, 14: 1 / 1.15, 54: 1.15**-41}),
    "ptb-lstm/entropy-sgd": (5, 5, {0: 1.0, 2.9: 1.0, 3: 0.1, 4: 0.01}),
    "char-lstm/adam": (50, 1, {0: 2e-3, 5: 1e-3, 45: 2e-3 / 2**9}),
    "char-lstm/entropy-adam": (5, 5, {0: 0.01, 1: 0.005, 4: 0.01 / 16}),
}


@pytest.mark.parametrize("name", PAPER)
def test_epochs_and_learning_rates_are_the_papers(name):
    recipe = recipes.get(name)
    epochs, inner, rates = PAPER[name]
    assert getattr(recipe.optimizer, "L", 1) == inner
    assert recipe.epochs == epochs * inner  # effective epochs: L gradient evaluations to an outer update
    for epoch, rate in rates.items():
        assert recipe.optimizer.lr * recipe.drops.scale(epoch * inner) == pytest.approx(rate)


def test_scopes_noises_and_momenta_are_the_papers():
    read = {
        name: (o.inner_lr, o.noise, o.gamma0, o.gamma1, o.alpha)
        for name in PAPER
        if isinstance(o := recipes.get(name).optimizer, InnerOptions)
    }
    assert read["mnistfc/entropy-sgd"] == read["lenet/entropy-sgd"] == (0.1, 1e-3, 1e-4, 1e-3, 0.75)
    assert read["allcnn/entropy-sgd"] == (0.1, 1e-4, 0.03, 1e-3, 0.75)
    assert read["ptb-lstm/entropy-sgd"] == (1.0, 1e-4, 1e-3, 0.0, 0.75)
    assert read["char-lstm/entropy-adam"][2:] == (0.01, 0.0, 0.75)
    assert recipes.get("allcnn/entropy-sgd").optimizer.momentum == 0.9
    assert recipes.get("ptb-lstm/entropy-sgd").optimizer.momentum == 0.5
    assert recipes.get("ptb-lstm/sgd").optimizer.momentum == 0.0
    assert recipes.get("char-lstm/entropy-adam").optimizer.betas[0] == 0.5
    dropouts = {name: recipes.get(name).dropout for name in PAPER}
    assert dropouts["mnistfc/adam"] == dropouts["lenet/adam"] == dropouts["allcnn/entropy-sgd"] == 0.5
    assert (dropouts["mnistfc/entropy-sgd"], dropouts["lenet/entropy-sgd"]) == (0.15, 0.25)


def test_drops_are_counted_from_the_start_of_their_epoch():
    drops = Drops(0.5, (1.0, 3.0))
    assert [drops.scale(epoch) for epoch in (0, 0.999, 1, 2.9, 3, 99)] == [1, 1, 0.5, 0.5, 0.25, 0.25]
    assert drops.scale(30 * 0.1 / 1.0) == 0.25
    assert every(30, until=100) == (30, 60, 90)
    assert every(60, until=180) == (60, 120)
    assert every(1, start=14, until=17) == (14, 15, 16)


@pytest.mark.parametrize("budget", [7.0, 100.0, 300.0])
def test_a_stretched_recipe_drops_and_scopes_at_the_same_fractions(budget):
    recipe = recipes.get("allcnn/entropy-sgd")
    stretched = recipe.stretched(budget)
    for fraction in (0.1, 0.39, 0.41, 0.79, 0.81, 1.0):
        assert stretched.drops.scale(fraction * budget) == recipe.drops.scale(fraction * recipe.epochs)
    updates = 4000
    before = scoping.Exponential(recipe.optimizer.gamma0, recipe.optimizer.gamma1)
    after = scoping.Exponential(stretched.optimizer.gamma0, stretched.optimizer.gamma1)
    now = round(updates * budget / recipe.epochs)
    assert after(now) == pytest.approx(before(updates), rel=1e-6)
    assert recipe.stretched(recipe.epochs).optimizer.gamma1 == pytest.approx(recipe.optimizer.gamma1)


def test_unknown_names_bring_the_closest():
    with pytest.raises(LabError, match="Did you mean entropy-sgd"):
        recipes.get("lenet/entropysgd")
    with pytest.raises(LabError, match=r"no network is called 'lennet'. Did you mean lenet"):
        recipes.get("lennet/adam")
    with pytest.raises(LabError, match="Did you mean lenet"):
        recipes.family("lennet")
    with pytest.raises(LabError, match="lenet/sgd"):
        recipes.get("lenet")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("epochs", value) for value in (0, -1, math.inf, math.nan)),
        *(("batch_size", value) for value in (0, -5)),
        *(("dropout", value) for value in (-0.1, 1.0)),
        ("unroll", 0),
        ("clip_norm", 0.0),
        *(("threads", value) for value in (0, -2)),
        ("drops", Drops(0.0)),
    ],
)
def test_nonsense_is_refused_by_name(field, value):
    with pytest.raises(LabError, match=field):
        replace(recipes.get("lenet/adam"), **{field: value})


def test_the_documentation_has_every_recipe_as_it_is():
    page = Path(__file__).parents[3] / "docs" / "laboratory.md"
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    for recipe in recipes.written():
        assert f"| `{recipe.name}` | {recipe.paper} | {recipe.chosen} |" in rows
