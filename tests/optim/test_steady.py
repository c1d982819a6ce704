"""A step that finds everything as the last one left it takes its lists; after any change it searches anew."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable

import pytest
import torch

from entropy_sgd import EntropySGD, scoping
from entropy_sgd.optim import kernel_outer
from entropy_sgd.optim.bucket import Bucket

Change = Callable[[list[torch.nn.Parameter], EntropySGD], object]


def stepped(
    steps: int = 3, sizes: tuple[int, ...] = (5, 70), **options: object
) -> tuple[list[torch.nn.Parameter], EntropySGD]:
    params = [torch.nn.Parameter(torch.linspace(-1, 1, n)) for n in sizes]
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


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": False, "scale_by_gamma": True, "gamma": 0.3},
        {"state_dtype": torch.bfloat16},
        {"alpha": 1.0, "inner_momentum": 0.0, "weight_decay": 0.01},
    ],
    ids=["defaults", "momentum", "scaled", "bfloat16", "no mean"],
)
def test_the_ends_of_a_cycle_are_the_same_laid_out_or_not(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, object]
):
    sizes = (5, 64, 7001)  # more than a sketch has buckets
    calls: list[object] = []
    laid_out = kernel_outer.Ends.step_
    monkeypatch.setattr(
        kernel_outer.Ends, "step_", lambda self, *a, **k: calls.append(1) or laid_out(self, *a, **k)
    )
    params, optimizer = stepped(35, sizes, **options)
    assert len(calls) == 3
    monkeypatch.setattr("entropy_sgd.optim.bucket.Bucket.ends", lambda _: None)
    searched, other = stepped(35, sizes, **options)
    assert len(calls) == 3
    for p, q in zip(params, searched, strict=True):
        assert torch.equal(p, q)
    assert optimizer.diagnostics() == other.diagnostics()
    assert optimizer.state_dict()["param_groups"] == other.state_dict()["param_groups"]  # the sketch too


def test_states_that_move_in_memory_within_a_cycle_are_followed():
    params, optimizer = stepped(9, (5, 7001))
    same, other = stepped(9, (5, 7001))
    for p in params:
        for value in optimizer.state[p].values():
            if isinstance(value, torch.Tensor):
                value.data = value.data.clone()
    step(params, optimizer)
    step(same, other)
    assert all(torch.equal(p, q) for p, q in zip(params, same, strict=True))
    assert optimizer.diagnostics() == other.diagnostics()


def test_weights_that_move_beside_a_subclass_are_followed():
    class Subclass(torch.nn.Parameter):
        pass

    p, other = torch.nn.Parameter(torch.zeros(1000)), Subclass(torch.zeros(3))
    optimizer = EntropySGD([{"params": [p]}, {"params": [other]}], lr=1.0, L=20, noise=0.0)

    def step() -> None:
        p.grad, other.grad = torch.ones(1000), torch.ones(3)
        optimizer.step()

    for _ in range(3):
        step()
    old = p.data
    kept = old.clone()
    p.data = torch.zeros(1000)
    with pytest.warns(UserWarning, match="changed from outside"):
        step()
    assert torch.equal(old, kept)
    assert (p < 0).all()


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_an_interrupt_before_the_step_is_counted_takes_nothing_back(monkeypatch: pytest.MonkeyPatch):
    params, optimizer = stepped(11)  # one step into the second cycle
    with monkeypatch.context() as patch:
        patch.setattr(Bucket, "_unchanged", interrupted)
        with pytest.raises(KeyboardInterrupt):
            step(params, optimizer)
    x = [optimizer.state[p]["entropy_x"].clone() for p in params]
    assert [optimizer.state[p]["entropy_step"] for p in params] == [1, 1]
    step(params, optimizer)
    for p, centre in zip(params, x, strict=True):
        assert torch.equal(optimizer.state[p]["entropy_x"], centre)


def test_options_that_are_tensors_may_change_in_place():
    p = torch.nn.Parameter(torch.zeros(10))
    optimizer = EntropySGD([p], lr=1.0, L=50, noise=0.0, inner_momentum=0.0, gamma=0.0, anneal="outer")
    rate = optimizer.param_groups[0]["inner_lr"] = torch.tensor(0.1)
    for _ in range(3):
        p.grad = torch.ones(10)
        optimizer.step()
    before = p.detach().clone()
    rate.fill_(0.01)
    optimizer.step()
    torch.testing.assert_close(before - p.detach(), torch.full((10,), 0.01))


def test_a_resumed_run_of_several_groups_measures_the_same():
    def made() -> tuple[list[torch.nn.Parameter], EntropySGD]:
        params = [torch.nn.Parameter(torch.linspace(-1, 1, n)) for n in (300_000, 200_000)]
        groups = [{"params": [p]} for p in params]
        return params, EntropySGD(groups, lr=1.0, L=8, gamma=scoping.MatchGradient(), seed=1)

    def run(params: list[torch.nn.Parameter], optimizer: EntropySGD, steps: int) -> None:
        for _ in range(steps):
            for p in params:
                p.grad = 1 + 0.1 * torch.sin(3 * p.detach())
            optimizer.step()

    params, optimizer = made()
    run(params, optimizer, 15)
    again, resumed = made()
    with torch.no_grad():
        for p, q in zip(params, again, strict=True):
            q.copy_(p)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    run(params, optimizer, 20)
    run(again, resumed, 20)
    assert optimizer.diagnostics() == resumed.diagnostics()
    assert all(torch.equal(p, q) for p, q in zip(params, again, strict=True))


def test_a_sketch_loaded_under_another_default_device_is_on_the_cpu():
    _, optimizer = stepped(13, (5, 7001))
    saved = copy.deepcopy(optimizer.state_dict())
    torch.set_default_device("meta")
    try:
        optimizer.load_state_dict(saved)
    finally:
        torch.set_default_device(None)
    assert optimizer._gradient.device.type == "cpu"
