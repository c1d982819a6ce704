"""Bad input: an error that names the argument and what is accepted, and nothing changes."""

from __future__ import annotations

import copy
import math
import warnings
from typing import Any

import pytest
import torch
from torch import nn

from entropy_sgd import SGLD, EntropyAdam, EntropySGD, LocalEntropy, scoping
from problem import Problem, flat, run


def parameter() -> list[nn.Parameter]:
    return [nn.Parameter(torch.ones(3))]


BAD = [
    ("lr", -1.0),
    ("lr", math.nan),
    ("lr", "fast"),
    ("momentum", -0.1),
    ("momentum", math.nan),
    ("weight_decay", -1e-4),
    ("weight_decay", None),
    ("L", 0),
    ("L", -3),
    ("L", 2.5),
    ("L", True),
    ("L", "20"),
    ("inner_lr", -0.1),
    ("inner_lr", math.inf),
    ("inner_momentum", 1.0),
    ("inner_momentum", -0.5),
    ("inner_nesterov", 1),
    ("inner", "rmsprop"),
    ("inner_betas", (0.9, 1.0)),
    ("inner_betas", 0.9),
    ("inner_betas", (0.9,)),
    ("inner_eps", -1e-8),
    ("gamma", -1.0),
    ("gamma", math.nan),
    ("gamma", "wide"),
    ("noise", -1e-4),
    ("noise", math.nan),
    ("alpha", 1.5),
    ("alpha", -0.1),
    ("alpha", math.nan),
    ("scale_by_gamma", "yes"),
    ("seed", 1.5),
    ("seed", 2**64),
    ("maximize", 0),
    ("foreach", "auto"),
    ("monitor", None),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_nonsense_hyper_parameter_is_named(name, value):
    with pytest.raises(ValueError, match=name) as error:
        EntropySGD(parameter(), **{name: value})
    shown = value[-1] if isinstance(value, tuple) and len(value) == 2 else value  # of a pair, the bad one
    assert repr(shown) in str(error.value)


@pytest.mark.parametrize(("name", "value"), [b for b in BAD if b[0] not in ("L", "gamma", "seed", "monitor")])
def test_a_nonsense_hyper_parameter_of_a_group_is_named_and_the_group_not_added(name, value):
    optimizer = EntropySGD(parameter())
    with pytest.raises(ValueError, match=name):
        optimizer.add_param_group({"params": parameter(), name: value})
    assert len(optimizer.param_groups) == 1
    with pytest.raises(ValueError, match=name):
        EntropySGD([{"params": parameter(), name: value}])


@pytest.mark.parametrize("name", ["L", "gamma", "seed"])
def test_what_is_common_to_all_groups_cannot_be_set_by_one(name):
    with pytest.raises(ValueError, match=f"{name} is common to all"):
        EntropySGD([{"params": parameter(), name: 7}, {"params": parameter()}])
    with pytest.raises(ValueError, match=f"{name} is common to all"):
        EntropySGD([{"params": parameter(), name: 7}, {"params": parameter(), name: 8}])


@pytest.mark.parametrize(("name", "value"), [("L", 7), ("gamma", 0.5), ("seed", 3), ("monitor", False)])
def test_what_is_common_to_all_groups_may_be_given_in_all(name, value):
    alone = EntropySGD([{"params": parameter(), name: value}])
    both = EntropySGD([{"params": parameter(), name: value}, {"params": parameter(), name: value}])
    for optimizer in (alone, both):
        assert optimizer.param_groups[0][name] == value
        assert all(name not in group for group in optimizer.param_groups[1:])
        optimizer.add_param_group({"params": parameter(), name: value})
        with pytest.raises(ValueError, match=f"{name} is common to all"):
            optimizer.add_param_group(
                {"params": parameter(), name: EntropySGD(parameter()).param_groups[0][name]}
            )


@pytest.mark.parametrize("kind", [EntropySGD, EntropyAdam, lambda ps: SGLD(ps, lr=0.1)])
def test_no_parameters(kind):
    with pytest.raises(ValueError, match="empty parameter list"):
        kind([])


@pytest.mark.parametrize("kind", [EntropySGD, lambda ps: SGLD(ps, lr=0.1)])
def test_sparse_gradients_are_refused_before_anything_changes(kind):
    embedding, linear = nn.Embedding(5, 3, sparse=True), nn.Linear(3, 1)
    optimizer = kind([*linear.parameters(), *embedding.parameters()])
    linear(embedding(torch.tensor([1, 2]))).sum().backward()
    before, state = copy.deepcopy(list(linear.parameters())), str(optimizer.state_dict())
    with pytest.raises(RuntimeError, match="parameter 2 is sparse"):
        optimizer.step()
    assert all(torch.equal(p, q) for p, q in zip(linear.parameters(), before, strict=True))
    assert str(optimizer.state_dict()) == state


@pytest.mark.parametrize(
    "outer",
    [torch.optim.LBFGS, torch.optim.SparseAdam, "SGD", nn.Linear, torch.optim.SGD([torch.ones(1)], lr=1.0)],
)
def test_an_outer_optimizer_that_cannot_serve(outer):
    with pytest.raises(ValueError, match="outer must be"):
        LocalEntropy(parameter(), outer, {})


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"maximize": True}, "maximize"),
        ({"differentiable": True}, "differentiable"),
        ({"learning_rate": 1.0}, "learning_rate"),
        ({"lr": -1.0}, "lr"),
        ({"momentum": math.nan}, "momentum"),
        ([1.0], "outer_options"),
    ],
)
def test_outer_options_that_cannot_be(options, name):
    with pytest.raises((ValueError, TypeError), match=name):
        LocalEntropy(parameter(), torch.optim.SGD, options)


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf, "wide", None])
def test_a_schedule_that_fails_in_mid_training_changes_nothing(bad):
    problem = Problem()
    params = problem.parameters()
    optimizer = EntropySGD(params, L=2, gamma=lambda t: 0.1 if t < 2 else bad)
    run(optimizer, params, problem, 4)
    before, state = flat(params).clone(), copy.deepcopy(optimizer.state_dict())
    problem.closure(params, [4])()
    with pytest.raises(ValueError, match="gamma at outer step 2"):
        optimizer.step()
    assert torch.equal(flat(params), before)
    assert optimizer.state_dict()["param_groups"] == state["param_groups"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: scoping.Constant(-1.0),
        lambda: scoping.Exponential(math.nan, 0.1),
        lambda: scoping.Linear(1.0, -0.1),
        lambda: scoping.Quadratic("a", 0.1),
        lambda: scoping.BoundedExponential(1.0, -1.0),
        lambda: scoping.Exponential(1.0, 0.1, maximum=-2.0),
        lambda: scoping.MatchGradient(initial=math.inf),
    ],
)
def test_a_nonsense_schedule_is_refused_at_construction(make):
    with pytest.raises(ValueError, match="must be a finite number"):
        make()


def stepped(optimizer: torch.optim.Optimizer, params: list[nn.Parameter]) -> torch.optim.Optimizer:
    for p in params:
        p.grad = torch.ones_like(p)
    optimizer.step()
    return optimizer


def other_states() -> dict[str, dict]:
    a, b, c, d = parameter(), parameter(), [nn.Parameter(torch.ones(4))], parameter() + parameter()
    return {
        "saved by another optimizer": stepped(torch.optim.SGD(a, lr=1.0), a).state_dict(),
        "also has .*momentum, nesterov": stepped(EntropyAdam(b), b).state_dict(),
        r"has shape \(4,\), but the parameter has shape \(3,\)": stepped(EntropySGD(c), c).state_dict(),
        "doesn't match the size": stepped(EntropySGD(d), d).state_dict(),
        "not an optimizer's state": {"weights": 1},
    }


@pytest.mark.parametrize("message", list(other_states()))
def test_a_foreign_state_dict_is_refused_whole(message):
    params = parameter()
    optimizer = stepped(EntropySGD(params), params)
    before = str(optimizer.state_dict())
    with pytest.raises(ValueError, match=message):
        optimizer.load_state_dict(other_states()[message])
    assert str(optimizer.state_dict()) == before


@pytest.mark.parametrize(("name", "value"), [("lr", -1.0), ("b", -0.5), ("noise", math.nan), ("seed", "x")])
def test_sgld_checks_its_own(name, value):
    with pytest.raises(ValueError, match=name):
        SGLD(parameter(), **{"lr": 0.1, name: value})


def test_sgld_refuses_a_foreign_state():
    with pytest.raises(ValueError, match="another optimizer"):
        SGLD(parameter(), lr=0.1).load_state_dict(torch.optim.SGD(parameter(), lr=0.1).state_dict())


RULES_OWN = {"inner_momentum": 0.5, "inner_nesterov": False, "inner_betas": (0.8, 0.9), "inner_eps": 1e-6}


@pytest.mark.parametrize("name", RULES_OWN)
def test_options_of_a_rule_beside_an_optimizer_class(name):
    given = {name: RULES_OWN[name]}
    with pytest.raises(ValueError, match=f"{name} must be left out"):
        EntropySGD(parameter(), inner=torch.optim.Rprop, **given)
    with pytest.raises(ValueError, match=f"Rprop has no option.*{name}"):
        LocalEntropy([{"params": parameter(), **given}], outer_options={"lr": 1.0}, inner=torch.optim.Rprop)
    optimizer = EntropySGD(parameter(), inner=torch.optim.Rprop)
    with pytest.raises(ValueError, match=f"Rprop has no option.*{name}"):
        optimizer.add_param_group({"params": parameter(), **given})
    assert len(optimizer.param_groups) == 1


def test_an_option_that_the_class_has_may_differ_by_group():
    groups = [{"params": parameter(), "inner_momentum": 0.5}, {"params": parameter()}]
    optimizer = EntropySGD(groups, inner=torch.optim.SGD, inner_options={"momentum": 0.2})
    assert [group["inner_momentum"] for group in optimizer.param_groups] == [0.5, 0.2]


@pytest.mark.parametrize("name", ["inner_maximize", "outer_maximize", "inner_differentiable"])
def test_groups_cannot_turn_one_loop_around(name):
    for inner in ("sgd", torch.optim.SGD):
        with pytest.raises(ValueError, match=f"{name}=True"):
            EntropySGD([{"params": parameter(), name: True}], inner=inner)


@pytest.mark.parametrize("operation", ["step", "eval", "finish"])
@pytest.mark.parametrize("steps", [1, 2])
def test_a_parameter_of_another_shape(operation, steps):
    p, q = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(3))
    optimizer = EntropySGD([p, q], L=2)
    for _ in range(steps):
        p.grad, q.grad = torch.ones(4), torch.ones(3)
        optimizer.step()
    p.data, p.grad = torch.ones(6), torch.ones(6)
    if steps == 2 and operation != "step":  # between two cycles nothing is at stake
        getattr(optimizer, operation)()
    else:
        with (
            pytest.raises(RuntimeError, match=r"changed from \(4,\) to \(6,\)"),
            warnings.catch_warnings(action="ignore"),  # of an early eval()
        ):
            getattr(optimizer, operation)()


def test_the_seed_of_sgld_in_the_only_group():
    assert SGLD([{"params": parameter(), "seed": 7}], lr=0.1).param_groups[0]["seed"] == 7
    with pytest.raises(ValueError, match="seed is common"):
        SGLD([{"params": parameter(), "seed": 7}, {"params": parameter(), "seed": 8}], lr=0.1)
    with pytest.raises(ValueError, match="seed must be"):
        SGLD([{"params": parameter(), "seed": "x"}], lr=0.1)


def test_the_learning_rate_of_sgd_given_as_lr_is_pointed_out():
    with pytest.warns(UserWarning, match=r"EntropySGD\(params, inner_lr=0\.05\)"):
        EntropySGD(parameter(), lr=0.05, momentum=0.9, nesterov=True)
    with pytest.warns(UserWarning, match=r"inner_lr=0\.01\)"):
        EntropySGD(parameter(), lr=torch.tensor(0.01))

    with pytest.warns(UserWarning, match=r"inner_lr=0\.02\)") as told:
        EntropySGD([{"params": parameter(), "lr": 0.02, "momentum": 0.9}])
    assert told[0].filename == __file__


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lr": 0.5},
        {"lr": 0.0},
        {"lr": 0.1, "inner_lr": 0.1},
        {"lr": 0.1, "inner": "adam"},
        {"lr": 0.1, "inner": torch.optim.Adam, "inner_options": {"lr": 1e-3}},
    ],
)
def test_an_outer_rate_chosen_on_purpose_does_not_warn(options: dict[str, Any]):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        EntropySGD(parameter(), **options)
        EntropySGD([{"params": parameter(), "lr": 1.0, "inner_lr": 0.05}], lr=0.3)
        EntropySGD.paper(parameter(), lr=0.1)


def test_the_rate_of_adam_is_told_to_be_slow():
    weights = [nn.Parameter(torch.ones(2))]
    with pytest.warns(
        UserWarning, match=r"L=3 .* at 0\.00033\. .*EntropyAdam\(params, lr=0\.003, inner_lr=0\.1\)"
    ) as told:
        EntropyAdam(weights, lr=1e-3)
    assert len(told) == 1
    for group, options in (({"lr": 2e-5}, {"L": 5}), ({"L": 5}, {"lr": 2e-5})):
        with pytest.warns(UserWarning, match=r"L=5 .*EntropyAdam\(params, lr=0\.0001, inner_lr=0\.1\)"):
            EntropyAdam([{"params": weights, **group}], **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        EntropyAdam(weights)
        EntropyAdam(weights, lr=1e-4, inner_lr=0.1)
        EntropyAdam([{"params": weights, "L": 1}], lr=1e-3)
        EntropyAdam(weights, lr=1e-3, L=1)
        EntropyAdam(weights, lr=0.0)
        EntropyAdam.paper(weights, lr=1e-4)
