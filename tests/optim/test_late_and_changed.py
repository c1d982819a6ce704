"""Parameters that take part late, options that change in mid-cycle, looks at the state on the way."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from torch import nn

from entropy_sgd import EntropyAdam, EntropySGD, LocalEntropy, scoping

SGD = torch.optim.SGD


class Subclass(SGD):
    """Which the compiled outer update does not know."""


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("outer", [SGD, Subclass])
@pytest.mark.parametrize("fused", [None, True])
def test_a_parameter_that_takes_part_from_a_later_cycle_on(dtype, outer, fused):
    """By hand: with alpha = 1, L = 1, no noise, no inner momentum, x - mu is inner_lr times the gradient."""
    a, b = (nn.Parameter(torch.ones(3, dtype=dtype)) for _ in range(2))
    options = {"lr": 1.0, "momentum": 0.5, "fused": fused}
    optimizer = LocalEntropy(
        [a, b], outer, options, L=1, inner_lr=0.125, inner_momentum=0.0, noise=0.0, alpha=1.0, gamma=0.0
    )
    expected, speed = {a: 1.0, b: 1.0}, {a: 0.0, b: 0.0}
    for step in range(4):
        taking_part = [a, b] if step >= 2 else [a]
        optimizer.zero_grad()
        for p in taking_part:
            p.grad = torch.ones_like(p)
            speed[p] = 0.5 * speed[p] + 0.125
            expected[p] -= speed[p]
        optimizer.step()
    for p, value in expected.items():
        assert p.tolist() == pytest.approx([value] * 3, abs=4e-3 if dtype is torch.bfloat16 else 1e-6)


@pytest.mark.parametrize("changed", [{"alpha": 1.0}, {"inner_momentum": 0.0}, {"inner_state": "keep"}])
def test_the_momentum_of_complex_weights_is_complex(changed):
    """Whatever makes the lists of the compiled step be laid out anew before the first outer update."""
    torch.manual_seed(0)
    start, results = torch.randn(2, 5, dtype=torch.complex64), []
    for fused in (None, False):
        p = nn.Parameter(start.clone())
        optimizer = EntropySGD([p], momentum=0.5, L=2, fused=fused)
        for step in range(8):
            if step == 1:
                optimizer.param_groups[0].update(changed)
            p.grad = (p - 1).detach()
            optimizer.step()
        assert optimizer.state[p]["momentum_buffer"].shape == p.shape
        results.append(p.detach())
    torch.testing.assert_close(*results)


@pytest.mark.parametrize(
    "make",
    [
        lambda ps: EntropySGD.paper(ps, L=4),
        lambda ps: EntropySGD(ps, L=4, anneal="both"),
        lambda ps: EntropyAdam(ps, L=4),
    ],
)
def test_a_save_between_the_optimizer_and_its_scheduler_changes_no_bit(make):
    def run(*, interrupted: bool) -> torch.Tensor:
        def build():
            torch.manual_seed(0)
            model = nn.Linear(4, 2)
            optimizer = make(model.parameters())
            return model, optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 6)

        made = build()
        for step in range(6):
            model, optimizer, scheduler = made
            optimizer.zero_grad()
            (model(torch.ones(3, 4)) - 1).square().mean().backward()
            optimizer.step()
            if interrupted and step == 5:
                file = io.BytesIO()
                torch.save([each.state_dict() for each in made], file)
                file.seek(0)
                model, optimizer, scheduler = made = build()
                for each, state in zip(made, torch.load(file, weights_only=True), strict=True):
                    each.load_state_dict(state)
            scheduler.step()
        optimizer.finish()
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    assert torch.equal(run(interrupted=False), run(interrupted=True))


@pytest.mark.parametrize("options", [{"inner": "adam"}, {"fused": False}])
def test_a_look_at_the_state_changes_no_bit(options):
    def run(*, looking: bool) -> tuple[torch.Tensor, dict[str, float]]:
        p = nn.Parameter(torch.linspace(-1, 2, 24))
        gamma = scoping.Focus(updates=10, growth=10.0)
        optimizer = EntropySGD([p], L=20, gamma=gamma, inner_lr=0.01, **options)

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = (p - 1).square().sum()
            loss.backward()
            return loss

        for _ in range(4):
            for _ in range(3):
                optimizer.step(closure)
            if looking:
                optimizer.state_dict()
            optimizer.finish()
        return p.detach(), optimizer.diagnostics()

    (p, seen), (other, plain) = run(looking=True), run(looking=False)
    assert torch.equal(p, other)
    assert seen == plain


@pytest.mark.parametrize(("dtype", "fused"), [(torch.float32, None), (torch.float64, False)])
def test_nor_does_it_where_only_some_parameters_have_a_gradient(dtype, fused):
    """The compiled step and torch's, and those of float64, measure with different precision."""

    def run(*, looking: bool) -> tuple[torch.Tensor, dict[str, float]]:
        a = nn.Parameter(torch.linspace(-1, 2, 24, dtype=dtype).view(6, 4).t())
        b = nn.Parameter(torch.linspace(0, 3, 24))
        optimizer = EntropySGD([a, b], L=6, gamma=scoping.MatchGradient(), fused=fused)
        for i in range(18):
            a.grad, b.grad = torch.cos(a.detach()), torch.sin(b.detach())
            if i % 3 == 0:
                b.grad = None
            elif i % 3 == 1:
                a.grad = None
            optimizer.step()
            if looking:
                optimizer.state_dict()
        return torch.cat([a.flatten(), b]).detach(), optimizer.diagnostics()

    (weights, seen), (other, plain) = run(looking=True), run(looking=False)
    assert torch.equal(weights, other)
    assert seen == plain


@pytest.mark.parametrize("fused", [None, False])
def test_the_momentum_goes_on_when_it_is_to_be_kept_from_mid_cycle_on(fused):
    """By hand: v = m v + dx', x' - eta' (dx' + m v), gamma too small to matter."""
    p = nn.Parameter(torch.ones(2))
    optimizer = EntropySGD(
        [p], L=4, noise=0.0, gamma=0.0, inner_state="reset", anneal="outer", alpha=1.0, fused=fused
    )
    v, expected = 0.0, 1.0
    for step in range(6):
        if step == 2:
            optimizer.param_groups[0]["inner_state"] = "keep"
        p.grad = torch.full((2,), 0.3)
        optimizer.step()
        v = 0.9 * v + 0.3
        expected -= 0.1 * (0.3 + 0.9 * v)
        assert p.tolist() == pytest.approx([expected] * 2)


@pytest.mark.parametrize("name", ["lr", "inner_lr", "noise", "alpha"])
def test_numbers_of_numpy_put_into_a_group_are_saved_as_plain_ones(name):
    p = nn.Parameter(torch.ones(2))
    optimizer = EntropySGD([p], L=2)
    optimizer.param_groups[0][name] = np.float64(0.5)
    p.grad = torch.ones(2)
    optimizer.step()
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    assert torch.load(file, weights_only=True)["param_groups"][0][name] == 0.5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: LocalEntropy([{"params": [p], "lr": "a"}]), "lr must be a number or a tensor with one"),
        (
            lambda p: EntropySGD([p], lr=torch.tensor(-1.0)),
            r"lr must be .* in \[0, inf\), got -1",
        ),
        (lambda p: EntropyAdam([p], lr=torch.tensor(float("nan"))), "lr must be a finite number"),
    ],
)
def test_rates_that_are_none(make, message):
    with pytest.raises(ValueError, match=message):
        make(nn.Parameter(torch.ones(2)))


def frozen_for_a_step(p, step):
    p.requires_grad_(step != 2)
    p.grad = None if step == 2 else p.grad


def written(p, step):
    if step == 2:
        with torch.no_grad():
            p.zero_()


@pytest.mark.filterwarnings("ignore:1 parameters were changed from outside")
@pytest.mark.parametrize("change", [frozen_for_a_step, written])
@pytest.mark.parametrize("fused", [None, False])
def test_a_gradient_at_x_is_not_counted_twice(change, fused):
    """A parameter that begins the cycle anew has another x: there is no one |grad f(x)| in that cycle."""
    a, b = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    schedule = scoping.MatchGradient(initial=0.5)
    optimizer = EntropySGD([a, b], L=4, gamma=schedule, monitor=True, noise=0.0, fused=fused)
    figures = []
    for step in range(12):
        a.grad, b.grad = torch.ones(3), torch.ones(3)
        change(b, step)
        optimizer.step()
        figures.append(optimizer.diagnostics())
    assert figures[3]["x_minus_mu"] > 0
    assert np.isnan(figures[3]["gradient"])
    assert np.isnan(figures[3]["cosine"])
    assert figures[7]["gamma"] == 0.5
    assert figures[7]["gradient"] == pytest.approx(6**0.5)
    assert figures[11]["gamma"] != 0.5
