"""Properties over randomly chosen settings and moments."""

from __future__ import annotations

import copy

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from entropy_sgd import EntropySGD, scoping
from problem import Problem, flat

OPTIONS = st.fixed_dictionaries(
    {
        "L": st.integers(1, 6),
        "lr": st.floats(0, 1),
        "momentum": st.sampled_from([0.0, 0.5, 0.9]),
        "nesterov": st.booleans(),
        "inner": st.sampled_from(["sgd", "adam"]),
        "inner_lr": st.floats(0, 0.2),
        "inner_momentum": st.sampled_from([0.0, 0.9]),
        "inner_nesterov": st.booleans(),
        "weight_decay": st.sampled_from([0.0, 0.01]),
        "noise": st.sampled_from([0.0, 1e-2]),
        "alpha": st.floats(0, 1),
        "scale_by_gamma": st.booleans(),
        "seed": st.integers(0, 2**64 - 1),
        "gamma": st.sampled_from([0.0, 0.3, scoping.Exponential(0.01, 0.1), scoping.MatchGradient()]),
        "foreach": st.sampled_from([None, False]),
    }
)
SOME = settings(max_examples=25)


def train(params: list[nn.Parameter], optimizer: EntropySGD, first: int, steps: int) -> None:
    closure = Problem().closure(params, [first])
    for _ in range(steps):
        optimizer.step(closure)


@SOME
@given(OPTIONS, st.integers(0, 15), st.booleans())
def test_resume_at_any_step(options, stop, in_eval):
    whole = Problem().parameters()
    train(whole, EntropySGD(whole, **options), 0, 15)
    params = Problem().parameters()
    optimizer = EntropySGD(params, **options)
    train(params, optimizer, 0, stop)
    if in_eval:
        optimizer.eval()
    again = [nn.Parameter(p.detach().clone()) for p in params]
    resumed = EntropySGD(again, **options)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    resumed.train()
    train(again, resumed, stop, 15 - stop)
    assert torch.equal(flat(whole), flat(again))


@SOME
@given(OPTIONS, st.integers(1, 3))
def test_step_equals_cycle(options, cycles):
    a, b = Problem().parameters(), Problem().parameters()
    train(a, EntropySGD(a, **options), 0, cycles * options["L"])
    optimizer, closure = EntropySGD(b, **options), Problem().closure(b, [0])
    for _ in range(cycles):
        optimizer.cycle(closure)
    assert torch.equal(flat(a), flat(b))


@SOME
@given(OPTIONS, st.lists(st.sampled_from(["step", "eval", "train"]), max_size=30))
def test_looking_at_the_outer_weights_changes_nothing(options, actions):
    a, b = Problem().parameters(), Problem().parameters()
    looked, plain = EntropySGD(a, **options), EntropySGD(b, **options)
    steps = 0
    for action in actions:
        if action == "step":
            looked.train()
            train(a, looked, steps, 1)
            train(b, plain, steps, 1)
            steps += 1
        else:
            getattr(looked, action)()
    looked.train()
    assert torch.equal(flat(a), flat(b))


@SOME
@given(OPTIONS, st.integers(1, 2))
def test_splitting_into_groups_changes_nothing(options, cut):
    a, b = Problem().parameters(), Problem().parameters()
    one = EntropySGD(a, **options)
    two = EntropySGD([{"params": b[:cut]}, {"params": b[cut:]}], **options)
    train(a, one, 0, 12)
    train(b, two, 0, 12)
    if isinstance(options["gamma"], scoping.MatchGradient):  # the norms are summed in another order
        torch.testing.assert_close(flat(a), flat(b), rtol=1e-9, atol=1e-9)
    else:
        assert torch.equal(flat(a), flat(b))
