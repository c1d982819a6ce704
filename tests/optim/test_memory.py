"""How little is kept, that it trains as if more were kept, and that it comes back from a checkpoint."""

from __future__ import annotations

import copy
import math
import sys
import weakref

import pytest
import torch
from torch import nn

from entropy_sgd import EntropyAdam, EntropySGD, LocalEntropy
from entropy_sgd.optim import kernel, triton_step


def bytes_kept(optimizer: torch.optim.Optimizer, p: nn.Parameter) -> float:
    tensors = [v for v in optimizer.state[p].values() if isinstance(v, torch.Tensor) and v.dim() > 0]
    return sum(t.untyped_storage().nbytes() for t in tensors) / p.numel()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 16),
        ({"state_dtype": torch.bfloat16}, 12),
        ({"state_dtype": torch.float32}, 16),
        ({"alpha": 1.0, "inner_momentum": 0.0}, 8),
        ({"alpha": 1.0, "inner_momentum": 0.0, "state_dtype": torch.bfloat16}, 8),
        ({"monitor": False}, 16),
    ],
)
def test_bytes_of_state_a_parameter(options, expected):
    p = nn.Parameter(torch.ones(100, 100))
    optimizer = EntropySGD([p], L=2, momentum=0.9, **options)
    for _ in range(3):
        p.grad = torch.ones_like(p)
        optimizer.step()
    assert bytes_kept(optimizer, p) == expected


PATHS = [{}, {"foreach": True}, {"foreach": False}, {"inner": "adam"}, {"inner": torch.optim.Adam}]


def descend(p: nn.Parameter, optimizer: torch.optim.Optimizer, steps: int, first: int = 0) -> None:
    """A noisy quadratic with its minimum at 1."""
    for i in range(first, first + steps):
        noise = torch.randn(p.shape, generator=torch.Generator().manual_seed(i)).to(p.dtype)
        p.grad = p.detach() - 1 + 0.1 * noise
        optimizer.step()


@pytest.mark.parametrize("path", PATHS, ids=str)
def test_bfloat16_states_give_nearly_the_weights_of_float32(path):
    """Within the rounding of 8 bits of what was moved; the average over elements, much closer: no bias."""
    results = []
    for dtype in (None, torch.bfloat16):
        p = nn.Parameter(torch.linspace(-1, 0, 4_000))
        descend(p, EntropySGD([p], L=5, lr=0.5, inner_lr=0.01, noise=1e-3, state_dtype=dtype, **path), 40)
        results.append(p.detach().clone())
    moved = (results[0] - torch.linspace(-1, 0, 4_000)).abs()
    assert ((results[0] - results[1]).abs() < 0.03 * moved.max()).all()
    assert abs(float((results[0] - results[1]).mean())) < 5e-4 * float(moved.mean())


@pytest.mark.parametrize("path", PATHS, ids=str)
@pytest.mark.parametrize(
    "options", [{"state_dtype": torch.bfloat16}, {"alpha": 1.0}, {"weights": torch.bfloat16}]
)
@pytest.mark.parametrize("steps", [3, 7])
def test_a_resumed_run_has_the_bits_of_one_that_went_on(path, options, steps):
    options = dict(options)
    start = torch.linspace(-1, 1, 5_000).to(options.pop("weights", torch.float32))

    def make(p: nn.Parameter) -> EntropySGD:
        return EntropySGD([p], L=4, momentum=0.9, noise=1e-2, inner_lr=0.01, **options, **path)

    p = nn.Parameter(start.clone())
    optimizer = make(p)
    descend(p, optimizer, steps)
    q = nn.Parameter(p.detach().clone())
    resumed = make(q)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    descend(p, optimizer, 6, steps)
    descend(q, resumed, 6, steps)
    assert torch.equal(p, q)
    assert optimizer.diagnostics() == pytest.approx(resumed.diagnostics(), nan_ok=True)
    for name, value in optimizer.state[p].items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, resumed.state[q][name]), name


def test_the_compiled_path_and_that_of_torch_round_with_the_same_bits():
    library = kernel.library()
    assert library is not None
    library.entropy_choose(0)  # no fused multiply-adds
    try:
        results = []
        for path in ({}, {"foreach": True}):
            p = nn.Parameter(torch.linspace(-1, 1, 5_000))
            optimizer = EntropySGD(
                [p], L=50, noise=1e-2, weight_decay=0.01, state_dtype=torch.bfloat16, **path
            )
            descend(p, optimizer, 5)
            results.append(
                [p.detach(), *(optimizer.state[p][f"entropy_{n}"] for n in ("momentum", "mu_minus_x"))]
            )
    finally:
        library.entropy_choose(kernel.AVX512)
    for fast, slow in zip(*results, strict=True):  # torch's foreach orders some additions otherwise
        torch.testing.assert_close(fast, slow, rtol=0.02, atol=1e-3)
        assert fast.dtype is torch.float32 or (fast == slow).float().mean() > 0.97


def test_alpha_1_without_mu_gives_the_weights_of_alpha_1_with_it():
    results = []
    for nearly in (1.0, 1.0 - 1e-12):  # the second keeps mu
        p = nn.Parameter(torch.linspace(-1, 1, 300))
        optimizer = EntropySGD([p], L=4, momentum=0.5, alpha=nearly, noise=1e-2)
        descend(p, optimizer, 10)
        assert ("entropy_mu" in optimizer.state[p]) == (nearly < 1)
        results.append((p.detach().clone(), optimizer.diagnostics()))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-6, atol=1e-6)
    assert results[0][1] == pytest.approx(results[1][1], rel=1e-4)


@pytest.mark.parametrize("state_dtype", [None, torch.bfloat16])
def test_alpha_may_change_within_a_cycle(state_dtype):
    """mu of the steps with alpha = 1 is the last x'."""
    results = []
    for always in (False, True):
        p = nn.Parameter(torch.linspace(-1, 1, 300))
        alpha = 1.0 - 1e-12 if always else 1.0
        optimizer = EntropySGD([p], L=4, alpha=alpha, noise=0.0, inner_lr=0.01, state_dtype=state_dtype)
        descend(p, optimizer, 2)
        optimizer.param_groups[0]["alpha"] = 0.3
        descend(p, optimizer, 2, 2)
        results.append(p.detach())
    torch.testing.assert_close(*results, rtol=1e-2, atol=2e-3)


@pytest.mark.parametrize("state_dtype", [None, torch.bfloat16])
def test_a_run_whose_alpha_became_1_resumes_to_the_same_bits(state_dtype):
    """From the next cycle on no mean is kept, whether the optimizer was loaded anew or not."""
    results = []
    for resumed in (False, True):
        p = nn.Parameter(torch.linspace(-1, 1, 300))
        optimizer = EntropySGD([p], L=4, inner_lr=0.1, state_dtype=state_dtype)
        descend(p, optimizer, 2)
        optimizer.param_groups[0]["alpha"] = 1.0
        descend(p, optimizer, 2, 2)
        if resumed:
            saved = optimizer.state_dict()
            optimizer = EntropySGD([p], L=4, inner_lr=0.1, state_dtype=state_dtype)
            optimizer.load_state_dict(saved)
        descend(p, optimizer, 8, 4)
        results.append(p.detach())
    assert torch.equal(*results)


@pytest.mark.parametrize("path", [{}, {"foreach": True}, {"alpha": 1.0}])
def test_bfloat16_weights_move_by_steps_too_small_for_them(path):
    """At 1, half a unit in the last place is 2^-9 below and 2^-8 above; steps of 1e-4 would all be lost."""
    p = nn.Parameter(torch.ones(20_000, dtype=torch.bfloat16))
    path = {"alpha": 0.75, **path}
    optimizer = EntropySGD([p], L=5, inner_lr=1e-4, noise=0.0, gamma=0.0, inner_momentum=0.0, **path)
    for i in range(3):
        p.grad = torch.full_like(p, -1.0)
        optimizer.step()
        assert float(p.detach().double().mean()) == pytest.approx(1 + (i + 1) * 1e-4, abs=4e-5)
    for _ in range(37):
        p.grad = torch.full_like(p, -1.0)
        optimizer.step()
    x = optimizer.state[p]["entropy_x"]
    assert x.dtype is torch.float32
    assert float(x.mean()) == pytest.approx(1 + 0.004, abs=7e-4)
    assert torch.equal(p.detach(), x.bfloat16())


@pytest.mark.parametrize("make", [EntropySGD, EntropyAdam])
def test_eval_shows_x_of_bfloat16_weights_and_keeps_its_bits(make):
    p = nn.Parameter(torch.linspace(-1, 1, 300).bfloat16())
    optimizer = make([p], L=4, noise=1e-2)
    descend(p, optimizer, 6)
    x, x_prime = optimizer.state[p]["entropy_x"].clone(), p.detach().clone()
    optimizer.eval()
    assert torch.equal(p.detach(), x.bfloat16())
    optimizer.train()
    assert torch.equal(p.detach(), x_prime)
    assert torch.equal(optimizer.state[p]["entropy_x"], x)


def test_weights_written_between_cycles_are_the_new_x():
    p = nn.Parameter(torch.linspace(-1, 1, 300).bfloat16())
    optimizer = EntropySGD([p], L=2, noise=0.0, inner_lr=1e-6, gamma=0.0)
    descend(p, optimizer, 2)
    with torch.no_grad():
        p[:100] = 5.0
    descend(p, optimizer, 1)
    assert torch.equal(optimizer.state[p]["entropy_x"][:100], torch.full((100,), 5.0))


@pytest.mark.parametrize("bad", [torch.int8, torch.float16, "bfloat16", 16])
def test_a_state_dtype_that_is_not_offered_is_refused(bad):
    with pytest.raises(ValueError, match=r"state_dtype must be torch\.bfloat16, torch\.float32 or None, got"):
        EntropySGD([nn.Parameter(torch.ones(3))], state_dtype=bad)


def test_complex_parameters_have_no_bfloat16_states():
    with pytest.raises(ValueError, match="complex"):
        EntropySGD([nn.Parameter(torch.ones(3, dtype=torch.complex64))], state_dtype=torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_float32_states_of_other_weights_are_refused(dtype):
    with pytest.raises(ValueError, match=rf"float32 is for parameters of float32 and bfloat16, got {dtype}"):
        EntropySGD([nn.Parameter(torch.ones(3, dtype=dtype))], state_dtype=torch.float32)
    EntropySGD([nn.Parameter(torch.ones(3, dtype=torch.bfloat16))], state_dtype=torch.float32)


@pytest.mark.parametrize("options", [{}, {"fused": False}, {"foreach": False}, {"inner": torch.optim.SGD}])
def test_no_gradient_outlives_zero_grad(options):
    p = nn.Parameter(torch.ones(5000))
    optimizer = EntropySGD([p], L=3, **options)
    for _ in range(7):
        p.grad = torch.ones(5000)
        gradient = weakref.ref(p.grad)
        optimizer.step()
        optimizer.zero_grad()
        assert gradient() is None


# ---- the outer update in one pass ----


@pytest.mark.parametrize("state_dtype", [None, torch.bfloat16])
@pytest.mark.parametrize(
    "options",
    [
        {"lr": 0.7},
        {"lr": torch.tensor(0.7), "momentum": 0.9, "nesterov": True},
        {"lr": 0.7, "momentum": 0.5, "dampening": 0.1, "weight_decay": 0.01},
    ],
)
@pytest.mark.parametrize("scale_by_gamma", [False, True])
def test_one_pass_gives_the_weights_of_torchs_own_update(monkeypatch, state_dtype, options, scale_by_gamma):
    from entropy_sgd.optim import kernel_outer

    results, passes = [], []
    update = kernel_outer._Update.run
    monkeypatch.setattr(kernel_outer._Update, "run", lambda *a, **k: (passes.append(1), update(*a, **k))[1])
    for fused in (None, False):
        p = nn.Parameter(torch.linspace(-1, 1, 300))
        optimizer = LocalEntropy(
            [p], torch.optim.SGD, {**options, "fused": fused}, L=3, gamma=0.5, scale_by_gamma=scale_by_gamma,
            state_dtype=state_dtype, noise=1e-2, inner_lr=0.01,
        )  # fmt: skip
        descend(p, optimizer, 9)
        results.append((p.detach(), optimizer.state[p].get("momentum_buffer"), optimizer.diagnostics()))
    assert len(passes) == 3
    tolerance = {"rtol": 1e-5, "atol": 1e-6} if state_dtype is None else {"rtol": 2e-2, "atol": 1e-4}
    torch.testing.assert_close(results[0][0], results[1][0], **tolerance)
    if results[0][1] is not None:
        torch.testing.assert_close(results[0][1], results[1][1], **tolerance)
    assert results[0][2] == pytest.approx(results[1][2], rel=1e-3)


def test_hooks_of_the_outer_optimizer_still_run():
    p = nn.Parameter(torch.ones(3))
    optimizer = EntropySGD([p], L=2)
    called = []
    optimizer.outer.register_step_pre_hook(lambda *a: called.append(1))
    descend(p, optimizer, 4)
    assert called == [1, 1]


# ---- Triton that does not work ----


def test_a_triton_that_fails_is_given_up_without_loss(monkeypatch, caplog):
    """Its error comes before anything is written: the torch path makes the same step."""
    results = []
    monkeypatch.setattr(kernel, "serves", lambda *args: False)
    for broken in (True, False):
        p = nn.Parameter(torch.linspace(-1, 1, 300))
        optimizer = EntropySGD([p], L=3, momentum=0.9, noise=1e-2)
        if broken:

            class Kernels:
                def __getattr__(self, name):
                    raise RuntimeError("no ptxas")

            monkeypatch.setattr(triton_step, "DEVICES", ("cpu",))
            monkeypatch.setitem(sys.modules, "entropy_sgd.optim.triton_kernels", Kernels())
            monkeypatch.setattr("entropy_sgd.optim.bucket.HOST", "nowhere")
        descend(p, optimizer, 7)
        results.append(p.detach())
        if broken:
            assert triton_step._broken == {"cpu"}
            monkeypatch.undo()
            monkeypatch.setattr(kernel, "serves", lambda *args: False)
    triton_step._broken.clear()
    assert torch.equal(*results)
    assert [r.message for r in caplog.records if "no ptxas" in r.message] != []
    assert len(caplog.records) == 1
    assert math.isfinite(float(results[0].sum()))
