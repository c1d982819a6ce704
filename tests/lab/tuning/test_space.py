"""What a search draws, against scipy's own Sobol sequence and the bounds in the methods' files."""

from __future__ import annotations

import math

import pytest
from scipy.stats import qmc

from entropy_sgd.lab import LabError, methods, recipes
from entropy_sgd.lab.methods.base import Choice, Range
from entropy_sgd.lab.tuning.edges import _wider, at_edge
from entropy_sgd.lab.tuning.sensitivity import range_that_works, rates_around
from entropy_sgd.lab.tuning.space import Draws, changed, parts
from entropy_sgd.lab.tuning.tuning import check_ends


def test_points_are_sobols():
    search = {"a": Range(2.0, 4.0), "b": Range(1e-4, 1.0, log=True)}
    found = Draws(search, "sobol", 7).draw(8)
    points = qmc.Sobol(2, seed=7, scramble=True).random(8)
    for point, drawn in zip(points, found, strict=True):
        assert drawn["a"] == pytest.approx(2 + 2 * point[0], rel=1e-3)
        assert drawn["b"] == pytest.approx(10 ** (-4 + 4 * point[1]), rel=1e-3)


@pytest.mark.parametrize("sampler", ["sobol", "random", "tpe"])
def test_the_same_trials_are_drawn_again(sampler):
    search = methods.get("adam").search

    def drawn():
        draws, found = Draws(search, sampler, 3), []
        for _ in range(3):
            new = draws.draw(4)
            draws.tell([None if trial["lr"] > 2e-2 else math.log(trial["lr"]) ** 2 for trial in new])
            found += new
        return found

    first = drawn()
    assert first == drawn()
    assert len({trial["lr"] for trial in first}) == 12


@pytest.mark.parametrize("name", methods.names())
def test_every_method_is_searched_within_its_bounds_with_its_momenta_and_betas(name):
    method = methods.get(name)
    start = recipes.family("demo").recipe(name).optimizer
    for drawn in Draws(method.search, "sobol", 0).draw(8):
        options = method.searched(start, drawn)
        assert type(options) is method.options
        for part, how in parts(method.search).items():
            option, _, index = part.partition(".")
            value = drawn[option][int(index)] if index else drawn[option]
            if isinstance(how, Choice):
                assert value in how.values
            else:
                assert how.low <= value <= how.high
                assert isinstance(value, int) or not how.integer
        assert getattr(options, method.rate) > 0
    fields = set(vars(start))
    for option in fields & {"momentum", "inner_momentum", "betas", "beta2"}:
        assert option in method.search, f"{name} is not searched for its {option}"
    assert method.rate in method.search


def test_local_entropys_outer_momentum_has_the_name_that_the_outer_optimizer_knows():
    import torch

    method = methods.get("local-entropy")
    start = recipes.family("demo").recipe("local-entropy").optimizer
    seen = set()
    for drawn in Draws(method.search, "sobol", 0).draw(16):
        model = torch.nn.Linear(3, 2)
        optimizer = methods.build(method.searched(start, drawn), model, seed=0, steps=100)
        group = optimizer.param_groups[0]
        momentum = group["betas"][0] if drawn["outer"] == "adamw" else group["momentum"]
        assert momentum == drawn["outer_momentum"]
        seen.add(drawn["outer"])
    assert seen == {"sgd", "adamw", "rmsprop"}


def test_the_range_of_rates_that_work():
    results = [(0.1, 5.0), (0.2, 2.3), (0.4, 2.0), (0.8, 2.4), (1.6, None), (3.2, 2.0)]
    found = range_that_works(results, 0.4, 1.2)
    assert (found.low, found.high, found.open_below, found.open_above) == (0.2, 0.8, False, False)
    assert found.width == pytest.approx(4)
    assert found.text() == "0.2–0.8 (4x)"
    one_sided = range_that_works(results[1:4], 0.4, 1.2)
    assert (one_sided.open_below, one_sided.open_above) == (True, True)
    assert one_sided.text() == "0.2–0.8 (≥ 4x)"
    accuracy = [(0.1, 50.0), (0.2, 90.0), (0.4, 95.0), (0.8, 70.0)]
    assert range_that_works(accuracy, 0.4, 1.2, maximize=True).low == 0.2
    assert rates_around(0.4, 4) == pytest.approx([0.1, 0.2, 0.8, 1.6])
    assert rates_around(0.4, 1) == pytest.approx([0.2])
    assert rates_around(0.4, 0) == []


SEARCH = {
    "lr": Range(1e-3, 1.0, log=True),
    "L": Range(2, 50, log=True, integer=True),
    "betas": (Range(0.0, 0.99), Range(0.9, 0.9999)),
    "anneal": Choice(("inner", "outer")),
    "nesterov": Choice((True, False)),
}


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("lr", "0.1..10", Range(0.1, 10.0, log=True)),
        ("lr", "1e-5..1e-2", Range(1e-5, 1e-2, log=True)),
        ("lr", "0.1", Choice((0.1,))),
        ("L", "5..100", Range(5, 100, log=True, integer=True)),
        ("L", "5,20,20", Choice((5, 20))),
        ("betas.1", "0.99..0.999", (Range(0.0, 0.99), Range(0.99, 0.999))),
        ("betas.0", "0", (Choice((0.0,)), Range(0.9, 0.9999))),
        ("anneal", "outer", Choice(("outer",))),
        ("nesterov", "True", Choice((True,))),
    ],
)
def test_one_option_is_searched_otherwise(name, text, expected):
    option = name.partition(".")[0]
    found = changed(SEARCH, name, text)
    assert found[option] == expected
    assert {**found, option: SEARCH[option]} == SEARCH
    Draws(found, "sobol", 0).draw(2)


@pytest.mark.parametrize("name", methods.names())
def test_a_wider_range_is_one_that_can_be_searched(name):
    """What `tune` proposes for a setting at the edge of its range."""
    recipe, search = recipes.family("demo").recipe(name), methods.get(name).search
    for part, how in parts(search).items():
        for value in (how.low, how.high) if isinstance(how, Range) else ():
            if at_edge(value, how):
                check_ends(recipe, changed(search, part, _wider(value, how)))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("rate", "1..2", "'rate' is not searched, only lr, L, betas.0"),
        ("betas", "0..1", "'betas' is not searched"),
        ("lr", "", "a range of numbers, such as 0.001..1"),
        ("lr", "fast", "a range of numbers"),
        ("lr", "0.1..", "a range of numbers"),
        ("lr", "0.1..inf", "a range of numbers"),
        ("lr", "1..0.1", "must go up"),
        ("lr", "0..1", "above 0"),
        ("L", "2.5..9", "whole number"),
        ("L", "2.5", "whole numbers"),
        ("anneal", "both", "one or more of inner, outer"),
        ("anneal", "inner..outer", "one or more of inner, outer"),
    ],
)
def test_what_cannot_be_searched_is_refused(name, text, message):
    with pytest.raises(LabError, match=message.replace("..", r"\.\.")):
        changed(SEARCH, name, text)
