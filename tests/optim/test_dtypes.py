"""Weights of every type, also of several at once."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from entropy_sgd import SGLD, EntropyAdam, EntropySGD
from problem import KINDS


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_dtypes_keep_their_states_and_descend(dtype):
    p = nn.Parameter(torch.full((64,), 3.0, dtype=dtype))
    optimizer = EntropySGD([p], L=5, lr=0.5, noise=1e-2)
    for _ in range(50):
        optimizer.zero_grad()
        p.square().sum().div(2).backward()
        optimizer.step()
    assert p.detach().abs().max() < 0.5
    expected = torch.float32 if dtype is torch.bfloat16 else dtype  # bfloat16 weights have a master copy
    for name in ("entropy_x", "entropy_mu", "entropy_momentum"):
        assert optimizer.state[p][name].dtype == expected


@pytest.mark.parametrize(
    "dtypes", [(torch.float32, torch.float64), (torch.float64, torch.bfloat16, torch.float32)]
)
def test_parameters_of_several_dtypes(dtypes):
    params = [nn.Parameter(torch.ones(3, dtype=dtype)) for dtype in dtypes]
    optimizer = EntropySGD(params, L=2, lr=0.5)
    for _ in range(8):
        for p in params:
            p.grad = p.detach().clone()
        optimizer.step()
    assert all((p < 0.9).all() for p in params)
    assert math.isfinite(optimizer.diagnostics()["cosine"])


def test_half_precision_moves_with_fused_too():
    """torch 2.13's own fused SGD leaves such weights where they are."""
    p = nn.Parameter(torch.ones(8, dtype=torch.bfloat16))
    optimizer = EntropySGD([p], L=1, fused=True)
    p.grad = torch.ones_like(p)
    optimizer.step()
    assert (p < 1).all()


def test_a_complex_parameter_is_two_real_ones():
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(5, 2, generator=generator, dtype=torch.float64)
    gradients = torch.randn(12, 5, 2, generator=generator, dtype=torch.float64)
    results = []
    for view in (torch.view_as_complex, lambda x: x):
        for kind in (KINDS["sgd"], KINDS["match"], lambda ps: SGLD(ps, lr=0.1)):
            p = nn.Parameter(view(start.clone()).clone())
            optimizer = kind([p])
            for g in gradients:
                p.grad = view(g.clone()).clone()
                optimizer.step()
            results.append(torch.view_as_real(p.detach()) if p.is_complex() else p.detach())
    for with_complex, with_real in zip(results[:3], results[3:], strict=True):
        torch.testing.assert_close(with_complex, with_real, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("make", [EntropySGD, EntropyAdam])
def test_a_complex_number_is_two_real_ones(make):
    p, q = nn.Parameter(torch.tensor(1 + 2j)), nn.Parameter(torch.tensor([1.0, 2.0]))
    optimizers = make([p], L=2), make([q], L=2)
    for i in range(4):
        p.grad, q.grad = torch.tensor(1 - i * 1j), torch.tensor([1.0, -i])
        for optimizer in optimizers:
            optimizer.step()
    assert p.item().real < 1.0
    assert p.item().imag > 2.0
    torch.testing.assert_close(torch.view_as_real(p.detach()), q.detach(), rtol=0, atol=1e-6)


def test_complex_parameters_may_be_converted_in_mid_cycle():
    p = nn.Parameter(torch.ones(3, dtype=torch.complex64))
    optimizer = EntropySGD([p], L=4)
    for step in range(8):
        if step == 2:
            p.data = p.data.to(torch.complex128)
        p.grad = torch.ones_like(p)
        optimizer.step()
    assert optimizer.outer_steps == 2
    assert bool((p.real < 1.0).all())


def test_states_of_an_optimizer_inside_load_into_half_weights():
    options = {"inner": torch.optim.AdamW, "inner_lr": 1e-3}
    p = nn.Parameter(torch.randn(5))
    optimizer = EntropySGD([p], **options)
    p.grad = torch.ones(5)
    optimizer.step()
    half = nn.Parameter(p.detach().bfloat16())
    resumed = EntropySGD([half], **options)
    resumed.load_state_dict(optimizer.state_dict())
    half.grad = torch.ones_like(half)
    resumed.step()
    assert resumed.inner_steps == 2
