"""Each peer's update against its paper, transcribed naively, on a quadratic in float64."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from entropy_sgd.lab import methods
from entropy_sgd.lab.methods.base import Hints

STEPS, LR, MOMENTUM, DECAY = 23, 0.05, 0.7, 0.01
H = torch.diag(torch.tensor([1.0, 3.0, 0.2], dtype=torch.float64)) + 0.1
TARGET = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
START = torch.tensor([2.0, 0.0, -1.0], dtype=torch.float64)  # one weight is zero


def gradient(x: Tensor) -> Tensor:
    return H @ (x - TARGET)


class Quadratic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.x = nn.Parameter(START.clone())

    def closure(self) -> Tensor:
        self.zero_grad()
        d = self.x - TARGET
        loss = 0.5 * d @ H @ d
        loss.backward()
        return loss


def trained(name: str, **options) -> tuple[list[Tensor], list[Tensor]]:
    """The weights that the method trains and those that it judges, after each step."""
    method, model = methods.get(name), Quadratic()
    chosen = replace(method.defaults(Hints(lr=LR, momentum=MOMENTUM, weight_decay=DECAY)), **options)
    optimizer = methods.build(chosen, model, seed=0, steps=STEPS)
    weights, judged = [], []
    for _ in range(STEPS):
        method.step(optimizer, model.closure)
        before = model.x.detach().clone()
        with method.judged(optimizer):
            judged.append(model.x.detach().clone())
        assert torch.equal(model.x, before)
        weights.append(before)
    return weights, judged


class SGD:
    """Nesterov's form, with the penalty in the gradient."""

    def __init__(self, lr: float = LR, nesterov: bool = True) -> None:
        self.lr, self.nesterov, self.v = lr, nesterov, torch.zeros(3, dtype=torch.float64)

    def step(self, x: Tensor, g: Tensor) -> Tensor:
        g = g + DECAY * x
        self.v = MOMENTUM * self.v + g
        return x - self.lr * (g + MOMENTUM * self.v if self.nesterov else self.v)


def sgd() -> list[Tensor]:
    rule, x, found = SGD(), START, []
    for _ in range(STEPS):
        x = rule.step(x, gradient(x))
        found.append(x)
    return found


def close(found: list[Tensor], expected: list[Tensor], rtol: float = 1e-10) -> None:
    torch.testing.assert_close(torch.stack(found), torch.stack(expected), rtol=rtol, atol=rtol)


def test_sgd():
    weights, judged = trained("sgd")
    close(weights, sgd())
    close(judged, sgd())


def test_sam_is_foret_et_als():
    rule, x, expected = SGD(), START, []
    for _ in range(STEPS):
        g = gradient(x)
        x = rule.step(x, gradient(x + 0.3 * g / g.norm()))
        expected.append(x)
    weights, judged = trained("sam", rho=0.3)
    close(weights, expected, rtol=1e-6)  # the library sums the norm in float32
    close(judged, weights)


@pytest.mark.parametrize("eta", [0.0, 0.01])
def test_asam_is_kwon_et_als_and_perturbs_a_weight_of_zero(eta):
    rule, x, expected = SGD(), START, []
    for _ in range(STEPS):
        g, t = gradient(x), x.abs() + eta
        x = rule.step(x, gradient(x + 0.3 * t**2 * g / (t * g).norm()))
        expected.append(x)
    close(trained("asam", rho=0.3, eta=eta)[0], expected)


def test_the_librarys_adaptive_sam_is_kwon_et_als_without_eta():
    """Why asam.py has a perturbation of its own; if this fails, it may no longer be needed."""
    from pytorch_optimizer import SAM

    model = Quadratic()
    keywords = {"lr": LR, "momentum": MOMENTUM, "nesterov": True, "weight_decay": DECAY}
    optimizer = SAM(model.parameters(), torch.optim.SGD, rho=0.3, adaptive=True, **keywords)
    found = []
    for _ in range(STEPS):
        model.closure()
        optimizer.step(model.closure)
        found.append(model.x.detach().clone())
    close(found, trained("asam", rho=0.3, eta=0.0)[0], rtol=1e-6)


def test_lookahead_is_zhang_et_als():
    rule, fast, slow, weights, judged = SGD(), START, START, [], []
    for step in range(1, STEPS + 1):
        fast = rule.step(fast, gradient(fast))
        if step % 4 == 0:
            slow = slow + 0.3 * (fast - slow)
            fast = slow
        weights.append(fast)
        judged.append(slow)
    found = trained("lookahead", k=4, alpha=0.3)
    close(found[0], weights)
    close(found[1], judged)


def test_swa_is_the_mean_of_evenly_spaced_weights_at_a_constant_rate():
    rule, x, weights, averaged, judged = SGD(), START, [], [], []
    start = int(0.4 * STEPS)  # 9, so that 14 steps are left for 7 models: every second one
    for step in range(1, STEPS + 1):
        rule.lr = 0.02 if step > start else LR
        x = rule.step(x, gradient(x))
        weights.append(x)
        if step > start and (step - start) % 2 == 0:
            averaged.append(x)
        judged.append(torch.stack(averaged).mean(0) if averaged else x)
    found = trained("swa", start=0.4, models=7, swa_lr=0.02)
    close(found[0], weights)
    close(found[1], judged)


@pytest.mark.parametrize("warmup", [True, False])
def test_ema_is_the_exponential_mean_from_the_first_step_on(warmup: bool):
    mean, judged = None, []
    for t, x in enumerate(sgd()):
        decay = min(0.8, (1 + t) / (10 + t)) if warmup else 0.8
        mean = x if mean is None else decay * mean + (1 - decay) * x
        judged.append(mean)
    found = trained("ema", decay=0.8, warmup=warmup)
    close(found[0], sgd())
    close(found[1], judged)


def schedule_free(direction) -> tuple[list[Tensor], list[Tensor]]:
    """Defazio et al.'s Algorithm 1 with their weights lr² and a warm-up of 5 steps."""
    x = z = START
    total, ys, xs = 0.0, [], []
    for step in range(1, STEPS + 1):
        lr = LR * min(1.0, step / 5)
        y = 0.1 * z + 0.9 * x
        z = z - lr * direction(step, y)
        total += lr**2
        x = (1 - lr**2 / total) * x + lr**2 / total * z
        ys.append(0.1 * z + 0.9 * x)
        xs.append(x)
    return ys, xs


def test_schedule_free_sgd_is_defazio_et_als():
    ys, xs = schedule_free(lambda _, y: gradient(y) + DECAY * y)
    weights, judged = trained("schedule-free", lr=LR, warmup=5 / STEPS, momentum=0.9)
    close(weights, ys)
    close(judged, xs)


def test_schedule_free_adamw_is_defazio_et_als():
    v = torch.zeros(3, dtype=torch.float64)

    def direction(step, y):
        nonlocal v
        g = gradient(y)
        v = 0.99 * v + 0.01 * g**2
        return g / ((v / (1 - 0.99**step)).sqrt() + 1e-8) + DECAY * y

    ys, xs = schedule_free(direction)
    options = {"lr": LR, "warmup": 5 / STEPS, "momentum": 0.9, "beta2": 0.99, "base": "adamw"}
    weights, judged = trained("schedule-free", **options)
    close(weights, ys)
    close(judged, xs)


def test_adamw_decays_apart_from_its_moments():
    m = v = torch.zeros(3, dtype=torch.float64)
    x, expected = START, []
    for step in range(1, STEPS + 1):
        g = gradient(x)
        m, v = 0.8 * m + 0.2 * g, 0.9 * v + 0.1 * g**2
        x = x * (1 - LR * 0.3) - LR * (m / (1 - 0.8**step)) / ((v / (1 - 0.9**step)).sqrt() + 1e-8)
        expected.append(x)
    close(trained("adamw", lr=LR, betas=(0.8, 0.9), weight_decay=0.3)[0], expected)


def test_local_entropy_with_the_options_of_entropy_sgd_is_entropy_sgd():
    common = {"L": 4, "noise": 0.01, "gamma0": 0.1, "gamma1": 0.05}
    paper = {"alpha": 0.75, "inner_state": "reset", "anneal": "outer"}
    weights, judged = trained("entropy-sgd", momentum=0.6, **common, **paper)
    outer = ("momentum=0.6", "nesterov=True")
    again = trained("local-entropy", outer="SGD", outer_options=outer, **common)
    assert torch.equal(torch.stack(again[0]), torch.stack(weights))
    assert torch.equal(torch.stack(again[1]), torch.stack(judged))
    adam = trained("entropy-adam", lr=0.1, betas=(0.5, 0.9), **common)
    outer = ("betas=(0.5, 0.9)",)
    again = trained("local-entropy", lr=0.1, outer="adam", outer_options=outer, **common)
    assert torch.equal(torch.stack(again[1]), torch.stack(adam[1]))
