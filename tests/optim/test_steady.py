"""A step that finds everything as the last one left it takes its lists; after any change it searches anew."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch

from entropy_sgd import EntropySGD

Change = Callable[[list[torch.nn.Parameter], EntropySGD], object]


def stepped(steps: int = 3, **options: object) -> tuple[list[torch.nn.Parameter], EntropySGD]:
    params = [torch.nn.Parameter(torch.linspace(-1, 1, n)) for n in (5, 70)]
    optimizer = EntropySGD(params, lr=1.0, L=10, **options)
    for _ in range(steps):
        step(params, optimizer)
    return params, optimizer


def step(params: list[torch.nn.Parameter], optimizer: EntropySGD) -> None:
    optimizer.zero_grad()
    sum(p.square().sum() for p in params if p.requires_grad).backward()
    optimizer.step()


def holds(optimizer: EntropySGD) -> bool:
    steady = optimizer._steady
    return steady is not None and steady.holds(optimizer.param_groups, optimizer.state, optimizer._watch)


def write(params: list[torch.nn.Parameter], optimizer: EntropySGD) -> None:
    with torch.no_grad():
        params[0].zero_()


def another_address(params: list[torch.nn.Parameter], optimizer: EntropySGD) -> None:
    params[1].data = params[1].data.clone()


def freeze(params: list[torch.nn.Parameter], optimizer: EntropySGD) -> None:
    params[1].requires_grad_(False)


def no_gradient(params: list[torch.nn.Parameter], optimizer: EntropySGD) -> None:
    params[0].grad = None


def sparse(params: list[torch.nn.Parameter], optimizer: EntropySGD) -> None:
    params[0].grad = torch.ones(5).to_sparse()


def another_group(params: list[torch.nn.Parameter], optimizer: EntropySGD) -> None:
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(3))]})


def another_state(params: list[torch.nn.Parameter], optimizer: EntropySGD) -> None:
    optimizer.state[params[0]] = dict(optimizer.state[params[0]])


def load(params: list[torch.nn.Parameter], optimizer: EntropySGD) -> None:
    optimizer.load_state_dict(optimizer.state_dict())


def evaluate(params: list[torch.nn.Parameter], optimizer: EntropySGD) -> None:
    optimizer.eval()
    optimizer.train()


CHANGES = [write, another_address, freeze, no_gradient, sparse, another_group, another_state, load, evaluate]


@pytest.mark.parametrize("steps", [1, 3, 10, 11])  # 10 are a cycle
def test_holds_from_step_to_step(steps: int):
    _, optimizer = stepped(steps)
    assert holds(optimizer)


@pytest.mark.parametrize("steps", [3, 10])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_breaks_with_any_change(change: Change, steps: int):
    params, optimizer = stepped(steps)
    change(params, optimizer)
    assert not holds(optimizer)


@pytest.mark.parametrize("change", [write, another_address], ids=lambda change: change.__name__)
def test_weights_written_between_two_cycles_are_the_new_x(change: Change):
    params, optimizer = stepped(10)
    change(params, optimizer)
    x = [p.detach().clone() for p in params]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step(params, optimizer)
    assert all(torch.equal(optimizer.state[p]["entropy_x"], w) for p, w in zip(params, x, strict=True))


def test_an_optimizer_inside_may_rebind_its_weights():
    class Rebinding(torch.optim.Optimizer):
        def __init__(self, params: object, lr: float) -> None:
            super().__init__(params, {"lr": lr})

        def step(self, closure: None = None) -> None:
            for p in self.param_groups[0]["params"]:
                p.data = p.data - self.param_groups[0]["lr"] * p.grad

    _, optimizer = stepped(10, inner=Rebinding, inner_lr=0.01)
    assert optimizer.outer_steps == 1


@pytest.mark.parametrize("inner_state", ["reset", "keep"])
def test_same_weights_as_without(monkeypatch: pytest.MonkeyPatch, inner_state: str):
    params, _ = stepped(25, inner_state=inner_state)
    monkeypatch.setattr("entropy_sgd.optim.steady.Steady.holds", lambda *_: False)
    searched, _ = stepped(25, inner_state=inner_state)
    for p, q in zip(params, searched, strict=True):
        assert torch.equal(p, q)
