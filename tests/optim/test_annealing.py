"""What a scheduler on `lr` moves, against the same rates written by hand."""

from __future__ import annotations

import copy
import re
import warnings
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

from entropy_sgd import EntropyAdam, EntropySGD, LocalEntropy
from entropy_sgd.optim import annealing

FACTORS = [1.0, 0.9, 0.7, 0.7, 0.4, 0.1, 0.05, 0.0, 1.5]


def problem(dtype: torch.dtype = torch.float32) -> tuple[torch.nn.Parameter, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return (
        torch.nn.Parameter(torch.randn(70, generator=generator).to(dtype)),
        torch.randn(len(FACTORS), 70, generator=generator).to(dtype),
    )


def train(optimizer: Any, p: torch.nn.Parameter, gradients: torch.Tensor, rates: Any = None) -> None:
    scheduler = None
    if rates is None:
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: FACTORS[min(epoch, 8)])
    for i, gradient in enumerate(gradients):
        if rates is not None:
            optimizer.param_groups[0].update(rates(FACTORS[i]))
        p.grad = gradient.clone()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()


KINDS = {
    "sgd": lambda ps, **o: EntropySGD(ps, lr=0.5, momentum=0.5, inner_lr=0.2, L=3, **o),
    "adam": lambda ps, **o: EntropyAdam(ps, lr=0.01, inner_lr=0.2, L=3, **o),
    "hosted": lambda ps, **o: LocalEntropy(
        ps, torch.optim.SGD, {"lr": 0.5}, L=3, inner=torch.optim.AdamW, inner_options={"lr": 0.2}, **o
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("anneal", ["outer", "inner", "both"])
def test_rates_are_those_written_by_hand(kind: str, anneal: str):
    p, gradients = problem()
    q, _ = problem()
    ours, plain = KINDS[kind]([p], anneal=anneal), KINDS[kind]([q], anneal="outer")
    lr, inner_lr = plain.param_groups[0]["lr"], plain.param_groups[0]["inner_lr"]

    def rates(factor: float) -> dict[str, float]:
        outer = lr if anneal == "inner" else lr * factor
        return {"lr": outer, "inner_lr": inner_lr if anneal == "outer" else inner_lr * (lr * factor / lr)}

    train(ours, p, gradients)
    train(plain, q, gradients, rates)
    assert torch.equal(p, q)
    assert ours.param_groups[0]["inner_lr"] == inner_lr  # the options are as they were given


def test_resumes_with_the_first_rate():
    p, gradients = problem()
    whole = KINDS["sgd"]([p], anneal="inner")
    scheduler = torch.optim.lr_scheduler.ExponentialLR(whole, 0.7)
    for i, gradient in enumerate(gradients):
        if i == 4:
            saved = copy.deepcopy((whole.state_dict(), scheduler.state_dict(), p.detach()))
        p.grad = gradient.clone()
        whole.step()
        scheduler.step()

    q = torch.nn.Parameter(saved[2].clone())
    resumed = EntropySGD([q], lr=123.0, momentum=0.5, inner_lr=0.2, L=3, anneal="inner")
    scheduler = torch.optim.lr_scheduler.ExponentialLR(resumed, 0.7)
    resumed.load_state_dict(saved[0])
    scheduler.load_state_dict(saved[1])
    for gradient in gradients[4:]:
        q.grad = gradient.clone()
        resumed.step()
        scheduler.step()
    assert torch.equal(p, q)


def test_a_group_may_have_a_base_lr_of_its_users():
    p, q = problem()[0], problem()[0]
    optimizer = EntropySGD([{"params": [p], "base_lr": 0.1}, {"params": [q]}], noise=0.0)
    p.grad, q.grad = torch.ones_like(p), torch.ones_like(q)
    optimizer.step()
    assert torch.equal(p, q)
    assert optimizer.param_groups[0]["base_lr"] == 0.1


def test_a_state_with_the_older_name_of_the_base_rate_loads():
    p, gradients = problem()
    optimizer = KINDS["sgd"]([p], anneal="inner")
    train(optimizer, p, gradients)
    optimizer.param_groups[0]["lr"] = 0.01
    saved = optimizer.state_dict()
    saved["param_groups"][0]["base_lr"] = saved["param_groups"][0].pop(annealing.BASE)
    other = KINDS["sgd"]([problem()[0]], anneal="inner")
    other.load_state_dict(saved)
    assert annealing.factor(other.param_groups[0]) == annealing.factor(optimizer.param_groups[0]) < 0.1


def test_a_state_of_a_version_without_it_loads():
    p, gradients = problem()
    optimizer = KINDS["sgd"]([p])
    train(optimizer, p, gradients)
    saved = optimizer.state_dict()
    for name in ("anneal", annealing.BASE):
        del saved["param_groups"][0][name]
    other = KINDS["sgd"]([problem()[0]], anneal="both")
    other.load_state_dict(saved)
    assert other.param_groups[0][annealing.BASE] == 0.5
    assert other.param_groups[0]["anneal"] == "outer"  # as that version did


def test_a_rate_that_is_a_tensor():
    p, gradients = problem()
    q, _ = problem()
    optimizer = EntropySGD([p], lr=torch.tensor(0.5), inner_lr=0.2, L=3, anneal="inner")
    train(optimizer, p, gradients)
    train(EntropySGD([q], lr=0.5, inner_lr=0.2, L=3, anneal="inner"), q, gradients)
    torch.testing.assert_close(p, q)
    assert isinstance(optimizer.param_groups[0]["lr"], torch.Tensor)


def test_finish_takes_the_rates_of_the_last_step():
    p, gradients = problem()
    optimizer = KINDS["sgd"]([p], anneal="inner")
    optimizer.param_groups[0]["lr"] = 0.25
    for gradient in gradients[:2]:
        p.grad = gradient.clone()
        optimizer.step()
    mu, x = optimizer.state[p]["entropy_mu"].clone(), optimizer.state[p]["entropy_x"].clone()
    optimizer.finish()
    torch.testing.assert_close(
        p.detach(), x - 0.5 * 1.5 * (x - mu)
    )  # lr as given at first, Nesterov's first step


def test_refuses_other_words():
    with pytest.raises(ValueError, match="anneal must be"):
        EntropySGD([problem()[0]], anneal="none")


@pytest.mark.parametrize("anneal", ["inner", "both"])
def test_a_rate_of_zero_at_first(anneal):
    """A warm-up by hand: built with 0, then raised to 1, as if it had been built with 1."""
    p, gradients = problem()
    q, _ = problem()
    zero = EntropySGD([p], lr=0.0, inner_lr=0.2, L=3, anneal=anneal)
    one = EntropySGD([q], lr=1.0, inner_lr=0.2, L=3, anneal=anneal)
    for i, gradient in enumerate(gradients):
        for optimizer, weights in ((zero, p), (one, q)):
            optimizer.param_groups[0]["lr"] = min(1.0, (i + 1) / 4)
            weights.grad = gradient.clone()
            optimizer.step()
    assert torch.equal(p, q)


def test_a_rate_of_zero_in_a_state_of_an_older_version():
    """It was saved as the rate to be relative to, until another came."""
    p, _ = problem()
    optimizer = EntropySGD([p], lr=0.0, inner_lr=0.2, L=3)
    saved = optimizer.state_dict()
    saved["param_groups"][0][annealing.BASE] = 0.0
    optimizer.load_state_dict(saved)
    optimizer.param_groups[0]["lr"] = 0.25
    p.grad = torch.ones_like(p)
    optimizer.step()
    assert annealing.inner_rate(optimizer.param_groups[0]) == pytest.approx(0.05)


@pytest.mark.parametrize("anneal", ["inner", "outer", "both"])
def test_a_rate_that_stays_zero_holds_x_while_the_inner_loop_walks(anneal):
    p, gradients = problem()
    q, _ = problem()
    start = p.detach().clone()
    held = EntropySGD([p], lr=0.0, inner_lr=0.2, L=len(gradients) + 1, anneal=anneal)
    free = EntropySGD([q], lr=1.0, inner_lr=0.2, L=len(gradients) + 1, anneal=anneal)
    for gradient in gradients:
        for optimizer, weights in ((held, p), (free, q)):
            weights.grad = gradient.clone()
            optimizer.step()
    assert torch.equal(p, q)
    held.finish()
    assert torch.equal(p, start)


@pytest.mark.parametrize("built", [0.0, 1.0])
@pytest.mark.parametrize("risen", [0.0, 0.25])
def test_a_state_with_a_rate_of_zero_resumes_whatever_the_optimizer_was_built_with(built, risen):
    p, gradients = problem()
    optimizer = EntropySGD([p], lr=0.0, inner_lr=0.2, L=3)
    train(optimizer, p, gradients[:4], lambda factor: {})
    q = torch.nn.Parameter(p.detach().clone())
    resumed = EntropySGD([q], lr=built, inner_lr=0.2, L=3)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for one, weights in ((optimizer, p), (resumed, q)):
        one.param_groups[0]["lr"] = risen
        train(one, weights, gradients[4:], lambda factor: {})
    assert torch.equal(p, q)


def test_around_another_optimizer_the_first_rate_above_zero_counts():
    """Nobody knows what its rate would be."""
    p, gradients = problem()
    q, _ = problem()
    optimizer = LocalEntropy([p], torch.optim.SGD, {"lr": 0.0}, inner_lr=0.2, L=3, anneal="inner")
    optimizer.param_groups[0]["lr"] = 0.5
    train(optimizer, p, gradients)
    train(LocalEntropy([q], torch.optim.SGD, {"lr": 0.5}, inner_lr=0.2, L=3, anneal="inner"), q, gradients)
    assert torch.equal(p, q)


@pytest.mark.parametrize(
    ("built", "written", "warns"),
    [({}, 0.1, True), ({}, 0.5, False), ({"lr": 0.1}, 0.1, False), ({"anneal": "outer"}, 0.1, False)],
)
def test_the_rate_of_sgd_written_by_hand_is_warned_of(built, written, warns):
    p, gradients = problem()
    optimizer = EntropySGD([p], **{"inner_lr": 0.1, "L": 3, **built})
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for gradient in gradients:
            optimizer.param_groups[0]["lr"] = written
            p.grad = gradient.clone()
            optimizer.step()
    assert len(found) == warns
    assert all("write lr=1 times its decay" in str(w.message) for w in found)


@pytest.mark.parametrize("rate", [lambda i: 1.0 if i < 4 else 0.1, lambda i: min(1.0, (i + 1) / 10)])
def test_a_factor_that_is_the_inner_rate_at_another_time_is_no_mistake(rate):
    """A drop to a tenth, a warm-up in ten steps."""
    p, gradients = problem()
    optimizer = EntropySGD([p], inner_lr=0.1, L=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i, gradient in enumerate(gradients):
            optimizer.param_groups[0]["lr"] = rate(i)
            p.grad = gradient.clone()
            optimizer.step()


@pytest.mark.parametrize(
    ("make", "warning"),
    [
        (lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=9), "peaks at 0.02.*cycle_momentum=False"),
        (lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=9, cycle_momentum=False), "peaks at 0.02"),
        (lambda o: lr_scheduler.OneCycleLR(o, 0.5, total_steps=9), "cycle_momentum=False"),
        (lambda o: lr_scheduler.CyclicLR(o, 0.1, 0.5), "cycle_momentum=False, and give rates relative to lr"),
        (lambda o: lr_scheduler.OneCycleLR(o, 0.5, total_steps=9, cycle_momentum=False), None),
        (lambda o: lr_scheduler.CosineAnnealingLR(o, 9), None),
    ],
)
@pytest.mark.parametrize("anneal", ["inner", "both", "outer"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_schedulers_with_absolute_values_are_warned_of(make, warning, anneal, momentum):
    p, gradients = problem()
    optimizer = EntropySGD([p], lr=0.5, momentum=momentum, inner_lr=0.1, L=3, anneal=anneal)
    scheduler = make(optimizer)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for gradient in gradients:
            p.grad = gradient.clone()
            optimizer.step()
            scheduler.step()
    if warning and anneal == "outer":  # the rate is what it says, and an outer momentum may be wanted
        warning = "cycle_momentum=False" if momentum == 0 and "cycle_momentum" in warning else None
    assert len(found) == (warning is not None)
    assert all(re.search(str(warning), str(w.message)) and w.filename == __file__ for w in found)


@pytest.mark.parametrize("entry", [[1, 2], torch.ones(2), "high", None])
def test_a_foreign_entry_of_a_group_is_left_alone(entry):
    p, gradients = problem()
    optimizer = EntropySGD([{"params": [p], "max_lr": entry}], L=3)
    p.grad = gradients[0]
    optimizer.step()
