"""The outer optimizer: its own weight decay, a step of it that fails, a state that it makes early."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from entropy_sgd import EntropyAdam, EntropySGD, LocalEntropy
from problem import Problem, flat


@pytest.mark.parametrize("alpha", [0.25, 0.5, 0.75])
def test_an_outer_rate_makes_up_for_the_steps_that_mu_lags_behind(alpha):
    """Down a slope mu ends (1 - alpha) / alpha steps behind x'; L over L less these keeps pace with SGD."""
    cycles, L, behind = 4, 20, (1 - alpha) / alpha
    reached = []
    for rate in (1.0, L / (L - behind)):
        p = nn.Parameter(torch.zeros(3, dtype=torch.float64))
        options = {"inner_lr": 0.1, "inner_momentum": 0.0, "noise": 0.0, "gamma": 0.0}
        optimizer = EntropySGD([p], lr=rate, L=L, alpha=alpha, **options)
        for _ in range(cycles * L):
            p.grad = torch.ones_like(p)
            optimizer.step()
        reached.append(-p[0].item() / 0.1)  # in steps of SGD
    assert reached == pytest.approx([cycles * (L - behind), cycles * L], rel=1e-3)


@pytest.mark.parametrize(
    ("kind", "options", "name"),
    [(EntropySGD, {"momentum": 0.9}, "momentum_buffer"), (EntropyAdam, {}, "exp_avg")],
)
def test_an_outer_state_of_another_size_is_an_error(kind, options, name):
    """torch's fused step does not look at sizes, and would write beyond the end."""
    p = nn.Parameter(torch.ones(40))
    optimizer = kind([p], L=1, **options)
    p.grad = torch.ones(40)
    optimizer.step()
    memory = torch.zeros(40)
    optimizer.state[p][name] = memory[:10]
    with pytest.raises(RuntimeError, match="size"):
        optimizer.step()
    assert not memory[10:].any()


def test_outer_weight_decay_and_inner_weight_decay_are_two_things():
    """AdamW's decoupled decay shrinks x by 1 - lr wd in each cycle, whatever the gradient."""
    p = nn.Parameter(torch.ones(5, dtype=torch.float64))
    optimizer = LocalEntropy([p], torch.optim.AdamW, {"lr": 0.1, "weight_decay": 0.5}, L=2, noise=0.0)
    assert optimizer.param_groups[0]["weight_decay"] == 0.0
    assert optimizer.param_groups[0]["outer_weight_decay"] == 0.5
    for _ in range(6):
        p.grad = torch.zeros_like(p)
        optimizer.step()
    torch.testing.assert_close(p.detach(), torch.full_like(p, (1 - 0.05) ** 3))


@pytest.mark.parametrize("part", ["measure", "outer step", "lending"])
def test_a_failed_outer_update_gives_up_the_cycle_and_keeps_x(monkeypatch, part):
    problem = Problem()
    params = problem.parameters()
    optimizer = EntropySGD(params, L=3, momentum=0.0)
    closure = problem.closure(params, [0])
    optimizer.cycle(closure)
    x = flat(params).clone()

    def fail(*_) -> None:
        raise MemoryError

    group = optimizer.param_groups[0]
    shared = ("weight_decay", "nesterov", "foreach", "fused")  # what inner and outer loop each have
    options = [group[name] for name in shared]
    with monkeypatch.context() as patch:
        if part == "measure":
            patch.setattr(optimizer, "_measure", fail)
        elif part == "lending":
            patch.setattr(optimizer._outer, "adjust", fail)
        else:
            patch.setattr(optimizer.outer, "step", fail)
        with pytest.raises(MemoryError):
            optimizer.cycle(closure)
    assert [group[name] for name in shared] == options
    assert all("entropy_x" in state for state in optimizer.state.values())
    optimizer.eval()
    assert torch.equal(flat(params), x)
    optimizer.train()
    assert torch.equal(flat(params), x)
    before = [p.grad for p in params]
    assert all(g is not None for g in before)
    optimizer.cycle(closure)
    assert not torch.equal(flat(params), x)


def test_an_outer_optimizer_may_make_its_state_when_it_is_built():
    class Sum(torch.optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})
            for p in self.param_groups[0]["params"]:
                self.state[p]["sum"] = torch.zeros_like(p)

        @torch.no_grad()
        def step(self, closure=None):
            for p in self.param_groups[0]["params"]:
                self.state[p]["sum"] += p.grad
                p -= self.param_groups[0]["lr"] * self.state[p]["sum"]

    p = nn.Parameter(torch.zeros(2, dtype=torch.float64))
    inner = {"noise": 0.0, "alpha": 1.0, "inner_lr": 1.0, "inner_momentum": 0.0}
    optimizer = LocalEntropy([p], Sum, {"lr": 1.0}, L=1, **inner)
    for _ in range(3):
        p.grad = torch.ones_like(p)
        optimizer.step()
    torch.testing.assert_close(p.detach(), torch.full_like(p, -6.0))  # 1, then 2, then 3
