"""Every hyper-parameter can differ by parameter group."""

from __future__ import annotations

import copy
import inspect
import math
import pickle

import pytest
import torch
from torch import nn

from entropy_sgd import SGLD, EntropyAdam, EntropySGD, LocalEntropy, scoping
from entropy_sgd.optim import kernel_outer
from problem import Problem


def test_every_hyper_parameter_can_differ_by_group():
    """Two groups in one optimizer equal two optimizers, wherever the noise is off."""
    options = [
        {"lr": 0.5, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1, "inner_lr": 0.05, "alpha": 0.6},
        {
            "lr": 0.9,
            "momentum": 0.0,
            "nesterov": False,
            "inner": "adam",
            "inner_betas": (0.7, 0.9),
            "inner_eps": 1e-3,
            "scale_by_gamma": True,
            "maximize": True,
        },
    ]
    generator = torch.Generator().manual_seed(0)
    start = [torch.randn(4, generator=generator) for _ in options]
    gradients = [torch.randn(12, 4, generator=generator) for _ in options]
    together = [nn.Parameter(x.clone()) for x in start]
    optimizer = EntropySGD(
        [{"params": [p], **o} for p, o in zip(together, options, strict=True)], L=3, noise=0.0, gamma=0.2
    )
    for i in range(12):
        for p, g in zip(together, gradients, strict=True):
            p.grad = g[i].clone()
        optimizer.step()
    for x, g, o, p in zip(start, gradients, options, together, strict=True):
        alone = nn.Parameter(x.clone())
        single = EntropySGD([alone], L=3, noise=0.0, gamma=0.2, **o)
        for i in range(12):
            alone.grad = g[i].clone()
            single.step()
        assert torch.equal(alone, p)


def test_noise_can_differ_by_group():
    quiet, loud = nn.Parameter(torch.zeros(1000)), nn.Parameter(torch.zeros(1000))
    optimizer = EntropySGD([{"params": [quiet], "noise": 0.0}, {"params": [loud], "noise": 0.5}], L=9)
    quiet.grad, loud.grad = torch.zeros(1000), torch.zeros(1000)
    optimizer.step()
    assert quiet.abs().max() == 0
    assert loud.detach().std().item() == pytest.approx(math.sqrt(0.1) * 0.5, rel=0.1)


def test_a_group_can_choose_its_path_in_both_loops(monkeypatch):
    calls = []
    fused = kernel_outer.outer_step_
    monkeypatch.setattr(kernel_outer, "outer_step_", lambda *a: (calls.append(1), fused(*a))[1])
    for options, expected in (({}, 1), ({"foreach": False}, 0), ({"fused": False}, 0)):
        calls.clear()
        p = nn.Parameter(torch.ones(3))
        optimizer = EntropySGD([{"params": [p], **options}], L=1)
        p.grad = torch.ones(3)
        optimizer.step()
        assert len(calls) == expected, options


def test_parameters_added_later_join_in():
    problem = Problem()
    params = problem.parameters()
    optimizer = EntropySGD(params[:2], L=4, noise=0.0, gamma=0.1)
    for p in params[:2]:
        p.grad = torch.ones_like(p)
    optimizer.step()
    optimizer.add_param_group({"params": [params[2]], "lr": 0.5})
    assert optimizer.outer.param_groups is optimizer.param_groups
    start = params[2].detach().clone()
    for _ in range(3):
        params[2].grad = torch.ones_like(params[2])
        optimizer.step()
    assert not torch.equal(params[2], start)
    assert optimizer.param_groups[1]["lr"] == 0.5


@pytest.mark.parametrize(
    ("make", "torch_optimizer"),
    [
        (EntropySGD, torch.optim.SGD),
        (EntropyAdam, torch.optim.Adam),
        (lambda params, **_: LocalEntropy(params, torch.optim.AdamW, {"lr": 1e-3}), torch.optim.AdamW),
        (SGLD, None),
    ],
)
def test_repr_shows_options_and_no_state(make, torch_optimizer):
    layer = torch.nn.Linear(2, 1)
    optimizer = make([{"params": [layer.weight]}, {"params": [layer.bias], "noise": 0.5}], lr=0.1)
    known = set(inspect.signature(type(optimizer)).parameters)
    if torch_optimizer is not None:  # its options are those of the outer loop
        theirs = torch_optimizer([layer.weight]).defaults
        known |= {*theirs, *(f"outer_{name}" for name in theirs)}
    before = repr(optimizer)
    lines = [line.strip().partition(": ") for line in before.splitlines()]
    assert {name for name, colon, _ in lines if colon} <= known
    assert ("noise", ": ", "0.5") in lines
    assert before.startswith(f"{type(optimizer).__name__} (\nParameter Group 0\n")
    for _ in range(3):
        layer(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    assert repr(optimizer) == before


def test_repr_shows_the_schedule_of_gamma():
    layer = torch.nn.Linear(2, 1)
    assert "gamma: 0.25\n" in repr(EntropySGD(layer.parameters(), gamma=0.25))
    schedule = scoping.Linear(1e-3, 1e-4)
    assert f"gamma: {schedule!r}\n" in repr(EntropySGD(layer.parameters(), gamma=schedule))


@pytest.mark.parametrize("again", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o)), lambda o: o])
def test_a_group_added_later_has_the_defaults_of_its_momentum(again):
    optimizer = again(EntropySGD([nn.Parameter(torch.ones(3))], anneal="both"))
    for momentum in (0.0, 0.9):
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))], "momentum": momentum})
    assert [g["inner_state"] for g in optimizer.param_groups] == ["keep", "keep", "reset"]
    assert [g["anneal"] for g in optimizer.param_groups] == ["both"] * 3  # given for all


BACKBONE = {"params": [nn.Parameter(torch.ones(2))]}


@pytest.mark.parametrize(
    ("given", "group", "warns"),
    [
        ({"inner_lr": 0.1}, {"lr": 0.01}, True),
        ({}, {"lr": 0.01}, True),
        ({}, {"inner_lr": 0.01}, False),
        ({}, {"lr": 0.9}, False),
        ({}, {"lr": 0.01, "inner_lr": 0.1}, False),
        ({"momentum": 0.9, "inner_lr": 0.1}, {"lr": 0.01}, False),  # the paper's way: lr is the outer rate
    ],
)
@pytest.mark.parametrize("later", [False, True])
def test_the_rates_of_sgd_by_group_are_warned_of(given, group, warns, later, recwarn):
    head, backbone = nn.Parameter(torch.ones(2)), {**BACKBONE, **group}
    if later:
        EntropySGD([head], **given).add_param_group(backbone)
    else:
        EntropySGD([{"params": [head]}, backbone], **given)
    assert len(recwarn) == warns
    assert all("belong in inner_lr: {'params': ..., 'inner_lr': 0.01}" in str(w.message) for w in recwarn)


@pytest.mark.parametrize("change", [list.reverse, lambda groups: groups.pop(0)])
def test_the_first_group_must_stay_first(change):
    weights = [nn.Parameter(torch.ones(2)) for _ in range(2)]
    optimizer = EntropySGD([{"params": [p]} for p in weights])
    change(optimizer.param_groups)
    with pytest.raises(RuntimeError, match=r"param_groups\[0\] is not the same group as before"):
        optimizer.step()


def test_a_refused_group_does_not_stay():
    a, b = (nn.Parameter(torch.randn(3)) for _ in range(2))
    optimizer = EntropySGD([{"params": [a]}, {"params": [b]}], state_dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="for real parameters"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.randn(3, dtype=torch.cfloat))]})
    assert len(optimizer.param_groups) == 2


def test_a_copy_with_a_scheduler_on_its_outer_optimizer_moves_its_own_weights():
    p = nn.Parameter(torch.ones(2))
    optimizer = EntropySGD([p], L=2, noise=0.0)
    torch.optim.lr_scheduler.StepLR(optimizer.outer, 10)
    for _ in range(2):
        p.grad = torch.ones(2)
        optimizer.step()
    before = p.detach().clone()
    q, other = copy.deepcopy((p, optimizer))
    for _ in range(2):
        q.grad = torch.ones(2)
        other.step()
    assert torch.equal(p, before)
    assert bool((q < before).all())


@pytest.mark.parametrize("make", [EntropySGD, EntropySGD.paper])
def test_the_default_scope_is_bounded(make):
    """After 240,000 steps it still trains; without the bound gamma is so large by then that it does not."""
    found = []
    for options in ({}, {"gamma": scoping.Exponential(1e-4, 1e-3)}):
        p = nn.Parameter(torch.ones(5))
        optimizer = make([p], **options)
        optimizer.param_groups[0]["outer_step"] = 12_000
        for _ in range(400):
            p.grad = 0.1 * p.detach()
            optimizer.step()
        found.append(p.detach().norm().item())
    assert found[0] < 0.5
    assert not found[1] < 0.5
