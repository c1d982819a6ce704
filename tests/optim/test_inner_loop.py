"""Any optimizer inside the loop, with a memory that is kept or reset: each against a naive transcription."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from entropy_sgd import EntropySGD, LocalEntropy
from entropy_sgd.optim.noise import Span, gaussian
from problem import SHAPES, Problem, flat

BARE = {"gamma": 0.0, "noise": 0.0, "alpha": 1.0}  # no spring, no noise, mu = the last x'


def run(optimizer, params, problem, steps):
    closure = problem.closure(params, [0])
    for _ in range(steps):
        closure()
        optimizer.step()
    return flat(params).detach()


@pytest.mark.parametrize("foreach", [None, True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_kept_momentum_with_the_outer_step_to_mu_is_plain_sgd(foreach, dtype):
    """lr = 1 moves x to x' and the momentum lives on: cycles leave no trace."""
    problem = Problem()
    params, plain = problem.parameters(dtype), problem.parameters(dtype)
    optimizer = EntropySGD(params, lr=1.0, L=5, inner_lr=0.05, inner_state="keep", foreach=foreach, **BARE)
    sgd = torch.optim.SGD(plain, lr=0.05, momentum=0.9, nesterov=True)
    got, expected = run(optimizer, params, problem, 40), run(sgd, plain, problem, 40)
    tolerance = 1e-11 if dtype is torch.float64 else 1e-3
    torch.testing.assert_close(got, expected, rtol=0, atol=tolerance)


def test_kept_adam_goes_on_with_its_bias_correction():
    problem = Problem()
    params, plain = problem.parameters(), problem.parameters()
    optimizer = EntropySGD(params, lr=1.0, L=3, inner="adam", inner_lr=0.01, inner_state="keep", **BARE)
    adam = torch.optim.Adam(plain, lr=0.01)
    got, expected = run(optimizer, params, problem, 30), run(adam, plain, problem, 30)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-11)


def lookahead(problem, steps, k, alpha, lr):
    """Zhang et al. (2019), Algorithm 1, around SGD with momentum 0.9, which is kept."""
    slow = problem.start.copy()
    fast, v = slow.copy(), np.zeros_like(slow)
    for i in range(steps):
        v = 0.9 * v + problem.gradient(fast, i)
        fast = fast - lr * v
        if (i + 1) % k == 0:
            slow = slow + alpha * (fast - slow)
            fast = slow.copy()
    return slow


def test_lookahead():
    problem = Problem()
    params = problem.parameters()
    optimizer = EntropySGD(
        params, lr=0.5, L=6, inner_lr=0.03, inner_nesterov=False, inner_state="keep", **BARE
    )
    got = run(optimizer, params, problem, 48)
    np.testing.assert_allclose(got.numpy(), lookahead(problem, 48, 6, 0.5, 0.03), rtol=0, atol=1e-11)


def adamw(x, g, m, s, k, lr, decay):
    x = x * (1 - lr * decay)
    m, s = 0.9 * m + 0.1 * g, 0.999 * s + 0.001 * g**2
    return x - lr * (m / (1 - 0.9**k)) / (np.sqrt(s / (1 - 0.999**k)) + 1e-8), m, s


def snoo(problem, steps, k, lr, momentum, inner_lr, decay):
    """A Nesterov step on the pseudo-gradient of k steps of AdamW, whose moments are kept.

    SNOO, and DiLoCo (Douillard et al., 2023) with one worker.
    """
    x = problem.start.copy()
    b, m, s = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    fast = x.copy()
    for i in range(steps):
        fast, m, s = adamw(fast, problem.gradient(fast, i), m, s, i + 1, inner_lr, decay)
        if (i + 1) % k == 0:
            d = x - fast
            b = momentum * b + d
            x = x - lr * (d + momentum * b)
            fast = x.copy()
    return x


def test_snoo_and_diloco_with_one_worker():
    problem = Problem()
    params = problem.parameters()
    optimizer = LocalEntropy(
        params,
        torch.optim.SGD,
        {"lr": 0.7, "momentum": 0.9, "nesterov": True},
        L=5,
        inner=torch.optim.AdamW,
        inner_options={"lr": 0.02, "weight_decay": 0.1},
        inner_state="keep",
        **BARE,
    )
    got = run(optimizer, params, problem, 50)
    np.testing.assert_allclose(got.numpy(), snoo(problem, 50, 5, 0.7, 0.9, 0.02, 0.1), rtol=0, atol=1e-10)


HOSTED = [
    (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    (torch.optim.AdamW, {"weight_decay": 0.1}),
    (torch.optim.RMSprop, {}),
    (torch.optim.Adagrad, {}),
    (torch.optim.NAdam, {}),
]


def by_hand(problem, kind, options, state, cycles, L, inner_lr, epsilon, seed):
    """Algorithm 1 with the optimizer stepped by hand on dx' of line 4."""
    gamma, decay, alpha = 0.2, 0.03, 0.6
    x = torch.tensor(problem.start)
    inner, y = None, None
    for t in range(cycles):
        if inner is None or state == "reset":
            y = nn.Parameter(x.clone())
            inner = kind([y], lr=inner_lr, **options)
        else:
            y.data.copy_(x)
        mu = x.clone()
        for ell in range(L):
            g = torch.tensor(problem.gradient(y.detach().numpy(), t * L + ell))
            y.grad = g + decay * y.detach() - gamma * (x - y.detach())
            inner.step()
            spans = [Span(i, 0, int(np.prod(s))) for i, s in enumerate(SHAPES)]
            z = torch.cat(gaussian(spans, seed, t, ell, torch.device("cpu"))).double()
            y.data += inner_lr**0.5 * epsilon * z
            mu = (1 - alpha) * mu + alpha * y.detach()
        x = x - 0.8 * (x - mu)
    return x


@pytest.mark.parametrize("state", ["reset", "keep"])
@pytest.mark.parametrize(("kind", "options"), HOSTED, ids=[kind.__name__ for kind, _ in HOSTED])
def test_a_torch_optimizer_inside(kind, options, state):
    problem = Problem()
    params = problem.parameters()
    optimizer = LocalEntropy(
        params, torch.optim.SGD, {"lr": 0.8}, L=4, gamma=0.2, weight_decay=0.03, alpha=0.6, noise=0.05,
        seed=5, inner=kind, inner_options=options, inner_lr=0.02, inner_state=state,
    )  # fmt: skip
    got = run(optimizer, params, problem, 24)
    expected = by_hand(problem, kind, options, state, 6, 4, 0.02, 0.05, 5)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)
    for name, value in options.items():
        assert optimizer.param_groups[0][f"inner_{name}"] == value


@pytest.mark.parametrize("state", ["reset", "keep"])
@pytest.mark.parametrize("inner", ["sgd", "adam", "sghmc", "sgnht", torch.optim.AdamW, torch.optim.RMSprop])
def test_every_inner_loop_resumes_and_copies_to_the_same_bits(inner, state):
    problem = Problem()

    def make(params):
        return EntropySGD(params, L=4, noise=0.1, inner=inner, inner_lr=0.01, inner_state=state, momentum=0.5)

    whole = problem.parameters(torch.float32)
    run(make(whole), whole, problem, 19)
    params = problem.parameters(torch.float32)
    optimizer, counter = make(params), [0]
    closure = problem.closure(params, counter)
    for _ in range(6):
        closure()
        optimizer.step()
    copied, twin = copy.deepcopy((params, optimizer))
    second = [nn.Parameter(p.detach().clone()) for p in params]
    resumed = make(second)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for ps, o in ((second, resumed), (copied, twin)):
        closure = problem.closure(ps, counter.copy())
        for _ in range(13):
            closure()
            o.step()
        assert torch.equal(flat(ps), flat(whole))


def test_options_of_a_group_reach_the_optimizer_inside():
    a, b = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    optimizer = LocalEntropy(
        [{"params": [a], "inner_lr": 0.5}, {"params": [b], "inner_weight_decay": 0.25}],
        torch.optim.SGD,
        {"lr": 1.0},
        L=9,
        inner=torch.optim.SGD,
        inner_lr=0.1,
        **BARE,
    )
    a.grad, b.grad = torch.ones(3), torch.ones(3)
    optimizer.step()
    torch.testing.assert_close(a.detach(), torch.full((3,), 1 - 0.5))
    torch.testing.assert_close(b.detach(), torch.full((3,), 1 - 0.1 * 1.25))
    assert torch.equal(a.grad, torch.ones(3))  # the user's gradient is put back


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inner": torch.optim.LBFGS}, "inner must be"),
        ({"inner": 7}, "'sgnht', or a class"),
        ({"inner": EntropySGD}, "inner must be an optimizer that has no inner loop of its own"),
        ({"inner": torch.optim.AdamW, "inner_options": {"maximize": True}}, "must not set maximize"),
        ({"inner": torch.optim.AdamW, "inner_options": {"learning_rate": 1.0}}, "learning_rate"),
        ({"inner": "sgd", "inner_options": {"lr": 1.0}}, "inner_options must be left out"),
        ({"inner_state": "forget"}, "inner_state must be 'reset' or 'keep'"),
    ],
)
def test_inner_loops_that_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        LocalEntropy([nn.Parameter(torch.ones(2))], torch.optim.SGD, {"lr": 1.0}, **options)


def test_a_rule_that_is_not_there_is_refused_when_it_is_met():
    p = nn.Parameter(torch.ones(200))
    optimizer = EntropySGD([p], noise=0.0)
    p.grad = torch.ones(200)
    optimizer.step()
    before = p.detach().clone()
    saved = optimizer.state_dict()
    saved["param_groups"][0]["inner"] = "psgld"
    with pytest.raises(ValueError, match="inner='psgld', but this optimizer has 'sgd'"):
        optimizer.load_state_dict(saved)
    optimizer.param_groups[0]["inner"] = "psgld"
    with pytest.raises(ValueError, match=r"inner must be 'adam' or .*, got 'psgld'"):
        optimizer.step()
    assert torch.equal(p, before)
    optimizer.param_groups[0]["inner"] = "sgd"
    optimizer.step()
    assert optimizer.inner_steps == 2


def test_another_optimizer_inside_is_refused_at_loading():
    p = [nn.Parameter(torch.ones(2))]
    saved = EntropySGD(p, inner=torch.optim.AdamW).state_dict()
    for inner in ("sgd", torch.optim.RMSprop):
        with pytest.raises(ValueError, match="AdamW"):
            EntropySGD(p, inner=inner).load_state_dict(saved)


@pytest.mark.parametrize("inner", ["sgd", "adam", torch.optim.AdamW])
@pytest.mark.parametrize("steps", [4, 6])
def test_restart_forgets_kept_moments_at_a_cycles_end_too(inner, steps):
    """From there on it is an optimizer that has just been built at these weights."""
    problem = Problem()
    params = problem.parameters()
    options = {"L": 4, "inner": inner, "inner_state": "keep", **BARE}
    optimizer = EntropySGD(params, **options)
    run(optimizer, params, problem, steps)
    optimizer.restart()
    fresh = [nn.Parameter(p.detach().clone()) for p in params]
    other = EntropySGD(fresh, **options)
    assert torch.equal(run(optimizer, params, problem, 7), run(other, fresh, problem, 7))
