"""Which weights the model holds: cycles ended early, weights that others write, freeze, convert or save."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest
import torch
from torch import nn

from entropy_sgd import EntropySGD, LocalEntropy
from entropy_sgd.optim.bucket import Bucket
from problem import KINDS, Problem, flat

OPTIONS = {"momentum": 0.9, "noise": 1e-2, "gamma": 0.1}


def stepped(optimizer, params, problem, steps, counter=None):
    counter = [0] if counter is None else counter
    closure = problem.closure(params, counter)
    for _ in range(steps):
        closure()
        optimizer.step()
    return counter


# ---- finish ----


@pytest.mark.parametrize("steps", [1, 3, 6])
@pytest.mark.parametrize("evaluating", [False, True])
def test_finish_is_a_cycle_of_a_smaller_L(steps, evaluating):
    problem = Problem()
    a, b = problem.parameters(), problem.parameters()
    long, short = EntropySGD(a, L=20, **OPTIONS), EntropySGD(b, L=steps, **OPTIONS)
    stepped(long, a, problem, steps)
    if evaluating:
        long.eval()
    long.finish()
    stepped(short, b, problem, steps)
    assert torch.equal(flat(a), flat(b))
    assert long.evaluating is evaluating
    assert long.diagnostics() == short.diagnostics()
    before = flat(a).clone()
    long.finish()  # at a cycle's end there is nothing to finish
    long.eval()
    assert torch.equal(flat(a), before)
    assert (long.outer_steps, long.inner_steps) == (1, 0)


def test_finish_uses_the_last_partial_cycle():
    problem = Problem()
    params = problem.parameters()
    optimizer = EntropySGD(params, L=4, **OPTIONS)
    stepped(optimizer, params, problem, 7)
    optimizer.eval()
    dropped = flat(params).clone()
    optimizer.finish()
    assert optimizer.outer_steps == 2
    assert not torch.equal(flat(params), dropped)


# ---- restart, and weights that someone else wrote ----


def load(params, weights):
    with torch.no_grad():
        for p, w in zip(params, weights, strict=True):
            p.copy_(w)


def assign(params, weights):
    for p, w in zip(params, weights, strict=True):
        p.data = w.clone()


def by_module(params, weights):
    module = nn.ParameterList(params)
    module.load_state_dict({str(i): w for i, w in enumerate(weights)})


@pytest.mark.parametrize("write", [load, assign, by_module])
@pytest.mark.parametrize("evaluating", [False, True])
@pytest.mark.parametrize("after", ["eval", "step", "finish", "state_dict"])
def test_weights_written_in_mid_cycle_become_x(write, evaluating, after):
    problem = Problem()
    params = problem.parameters()
    optimizer = EntropySGD(params, L=5, **OPTIONS)
    counter = stepped(optimizer, params, problem, 8)
    best = [torch.full_like(p, 0.25) for p in params]
    if evaluating:
        optimizer.eval()
    write(params, best)
    with pytest.warns(UserWarning, match="changed from outside"):
        if after == "step":
            optimizer.train()
            problem.closure(params, counter)()
            optimizer.step()
            optimizer.eval()
        elif after == "state_dict":
            optimizer.state_dict()
            optimizer.train()
        else:
            getattr(optimizer, after)()
            optimizer.train()
    assert all(torch.equal(p, w) for p, w in zip(params, best, strict=True))
    with warnings.catch_warnings():  # said once
        warnings.simplefilter("error")
        optimizer.train()
        stepped(optimizer, params, problem, 2)
        write(params, best)
        optimizer.eval()


@pytest.mark.parametrize("evaluating", [False, True])
def test_restart_does_the_same_silently(evaluating):
    problem = Problem()
    a, b = problem.parameters(), problem.parameters()
    first, second = EntropySGD(a, L=5, **OPTIONS), EntropySGD(b, L=5, **OPTIONS)
    best = [torch.full_like(p, 0.25) for p in a]
    for optimizer, params, silent in ((first, a, True), (second, b, False)):
        stepped(optimizer, params, problem, 7)
        if evaluating:
            optimizer.eval()
        load(params, best)
        if silent:
            optimizer.restart()
        else:
            with pytest.warns(UserWarning, match="changed from outside"):
                optimizer.train()
                optimizer.eval()
                optimizer.train()
        assert not optimizer.evaluating
        assert optimizer.inner_steps == 0
        stepped(optimizer, params, problem, 9, [20])
    assert torch.equal(flat(a), flat(b))


def in_mid_cycle():
    problem = Problem()
    params = problem.parameters()
    optimizer = EntropySGD(params, L=5, **OPTIONS)
    return problem, params, optimizer, stepped(optimizer, params, problem, 7)


COPIES = [copy.deepcopy, lambda both: pickle.loads(pickle.dumps(both))]


@pytest.mark.parametrize("copied", COPIES)
def test_weights_written_into_a_copy_are_noticed(copied):
    problem, params, optimizer, counter = in_mid_cycle()
    params, optimizer = copied((params, optimizer))
    best = [torch.full_like(p, 0.25) for p in params]
    load(params, best)
    with pytest.warns(UserWarning, match="changed from outside"):
        stepped(optimizer, params, problem, 1, counter)
    optimizer.eval()
    assert all(torch.equal(p, w) for p, w in zip(params, best, strict=True))


@pytest.mark.parametrize("copied", COPIES)
def test_weights_written_before_a_copy_are_in_it(copied):
    problem, params, optimizer, counter = in_mid_cycle()
    load(params, [torch.full_like(p, 0.25) for p in params])
    with pytest.warns(UserWarning, match="changed from outside"):
        others, other = copied((params, optimizer))
    stepped(optimizer, params, problem, 4, [*counter])
    stepped(other, others, problem, 4, [*counter])
    assert torch.equal(flat(params), flat(others))


def test_cycle_ends_if_the_closure_writes_all_weights():
    p = nn.Parameter(torch.full((3,), 2.0))
    optimizer = EntropySGD([p], L=4)

    def closure():
        with torch.no_grad():
            p.clamp_(-1, 1)
        optimizer.zero_grad()
        loss = p.square().sum()
        loss.backward()
        return loss

    with (
        pytest.warns(UserWarning, match="changed from outside"),
        pytest.raises(RuntimeError, match="writes the weights"),
    ):
        optimizer.cycle(closure)


@pytest.mark.parametrize("options", [{}, {"fused": False}, {"momentum": 0.9}])
@pytest.mark.parametrize("fails_at", [0, 2])
def test_a_step_that_fails_loses_nothing(monkeypatch, options, fails_at):
    """Ctrl-C or a lack of memory, before the second group is stepped."""
    a, b = (nn.Parameter(torch.full((5000,), 5.0)) for _ in range(2))
    optimizer = EntropySGD([{"params": [a]}, {"params": [b]}], L=4, inner_lr=1e-3, **options)
    a.grad, b.grad = torch.full((5000,), 0.1), torch.full((5000,), 0.1)
    for _ in range(fails_at):
        optimizer.step()
    langevin = Bucket.langevin

    def interrupted(bucket, *arguments, **keywords):
        if bucket.params[0] is b:
            raise KeyboardInterrupt
        return langevin(bucket, *arguments, **keywords)

    with monkeypatch.context() as patched:
        patched.setattr(Bucket, "langevin", interrupted)
        with pytest.raises(KeyboardInterrupt):
            optimizer.step()
    if fails_at:
        optimizer.eval()
        assert torch.equal(b, torch.full((5000,), 5.0))
        optimizer.train()
    for _ in range(8):
        optimizer.step()
    optimizer.finish()
    assert bool(((b > 4.9) & (b < 5.0)).all())
    assert bool(((a > 4.9) & (a < 5.0)).all())


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}])
def test_half_weights_keep_the_node_of_their_gradient(options):
    """DistributedDataParallel has its hooks there."""
    p = nn.Parameter(torch.randn(7, dtype=torch.bfloat16))
    node = p.expand_as(p).grad_fn.next_functions[0][0]
    optimizer = EntropySGD([p], L=2, **options)
    for _ in range(4):
        p.grad = torch.ones_like(p)
        optimizer.step()
    assert p.expand_as(p).grad_fn.next_functions[0][0] is node


def test_a_restarted_cycle_draws_fresh_noise():
    p = nn.Parameter(torch.zeros(1000))
    optimizer = EntropySGD([p], L=9, noise=1.0, inner_momentum=0.0)
    moves = []
    for _ in range(2):
        with torch.no_grad():
            p.zero_()
        optimizer.restart()
        p.grad = torch.zeros_like(p)
        optimizer.step()
        moves.append(p.detach().clone())
    assert torch.corrcoef(torch.stack(moves))[0, 1].abs() < 0.2


def test_a_single_parameter_that_was_written_starts_over_alone():
    problem = Problem()
    params = problem.parameters()
    optimizer = EntropySGD(params, L=4, **OPTIONS)
    x = [p.detach().clone() for p in params]
    stepped(optimizer, params, problem, 2)
    with torch.no_grad():
        params[0].fill_(0.5)
    with pytest.warns(UserWarning, match="1 parameters"):
        optimizer.eval()
    assert torch.equal(params[0], torch.full_like(params[0], 0.5))
    assert all(torch.equal(p, w) for p, w in zip(params[1:], x[1:], strict=True))


def test_looking_and_saving_are_no_changes():
    problem = Problem()
    params = problem.parameters()
    optimizer = EntropySGD(params, L=5, **OPTIONS)
    for i in range(12):
        stepped(optimizer, params, problem, 1, [i])
        optimizer.eval()
        copy.deepcopy([p.detach().clone() for p in params])
        optimizer.state_dict()
        optimizer.train()
        optimizer.zero_grad()


# ---- frozen and converted ----


@pytest.mark.parametrize("clear", [True, False])
def test_a_frozen_parameter_does_not_move(clear):
    problem = Problem()
    params = problem.parameters()
    optimizer = EntropySGD(params, L=5, weight_decay=0.1, **OPTIONS)
    counter = stepped(optimizer, params, problem, 7)
    frozen = params[0].detach().clone()
    params[0].requires_grad_(False)
    for i in range(12):
        for p in params[1:]:
            p.grad = torch.ones_like(p)
        if clear:
            params[0].grad = None
        optimizer.step()
        assert torch.equal(params[0], frozen), i
        optimizer.eval()
        assert torch.equal(params[0], frozen), i
        optimizer.train()
    params[0].requires_grad_(True)
    stepped(optimizer, params, problem, 5, counter)
    assert not torch.equal(params[0], frozen)


def test_a_parameter_frozen_while_evaluating_keeps_x():
    problem = Problem()
    params = problem.parameters()
    optimizer = EntropySGD(params, L=5, **OPTIONS)
    stepped(optimizer, params, problem, 7)
    optimizer.eval()
    x = params[0].detach().clone()
    params[0].requires_grad_(False)
    optimizer.train()
    assert torch.equal(params[0], x)


@pytest.mark.parametrize("kind", KINDS)
def test_double_in_mid_cycle_works(kind):
    problem = Problem()
    params = problem.parameters(torch.float32)
    model = nn.ParameterList(params)
    optimizer = KINDS[kind](params)
    counter = stepped(optimizer, params, problem, 6)
    reference = copy.deepcopy((params, optimizer, counter))
    model.double()
    stepped(optimizer, params, problem, 6, counter)
    assert flat(params).dtype is torch.float64
    stepped(reference[1], reference[0], problem, 6, reference[2])
    torch.testing.assert_close(flat(params).float(), flat(reference[0]), rtol=1e-3, atol=1e-3)


# ---- saved in two modes ----


@pytest.mark.parametrize("model_in_eval", [False, True])
def test_model_and_optimizer_saved_in_different_modes(model_in_eval):
    problem = Problem()
    params = problem.parameters()
    optimizer = EntropySGD(params, L=5, **OPTIONS)
    counter = stepped(optimizer, params, problem, 7)
    saved = {}
    for evaluating in (False, True):
        if evaluating:
            optimizer.eval()
        saved[evaluating] = ([p.detach().clone() for p in params], copy.deepcopy(optimizer.state_dict()))
    weights = saved[model_in_eval][0]
    for order in ("model first", "optimizer first"):
        resumed = problem.parameters()
        other = EntropySGD(resumed, L=5, **OPTIONS)
        if order == "model first":
            load(resumed, weights)
        other.load_state_dict(copy.deepcopy(saved[not model_in_eval][1]))
        if order == "optimizer first":
            load(resumed, weights)
        problem.closure(resumed, counter.copy())()
        with pytest.warns(UserWarning, match="saved in different modes"):
            other.train()
            other.step()
        other.eval()
        assert all(torch.equal(p, w) for p, w in zip(resumed, weights, strict=True))


def test_modes_that_agree_resume_in_either_order():
    problem = Problem()
    whole = problem.parameters()
    reference = EntropySGD(whole, L=5, **OPTIONS)
    stepped(reference, whole, problem, 16)
    for evaluating in (False, True):
        params = problem.parameters()
        optimizer = EntropySGD(params, L=5, **OPTIONS)
        counter = stepped(optimizer, params, problem, 7)
        if evaluating:
            optimizer.eval()
        weights, state = [p.detach().clone() for p in params], copy.deepcopy(optimizer.state_dict())
        resumed = problem.parameters()
        other = EntropySGD(resumed, L=5, **OPTIONS)
        other.load_state_dict(state)
        load(resumed, weights)
        other.train()
        stepped(other, resumed, problem, 9, counter)
        assert torch.equal(flat(resumed), flat(whole))


def test_a_first_step_that_did_not_move_is_no_sign_of_two_modes():
    """x' is x after a step of a warm-up that begins at 0."""
    problem = Problem()
    params = problem.parameters()
    optimizer = EntropySGD(params, L=5)
    warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: t / 10)
    counter = stepped(optimizer, params, problem, 1)
    warm_up.step()
    weights, state = [p.detach().clone() for p in params], copy.deepcopy(optimizer.state_dict())
    stepped(optimizer, params, problem, 9, counter.copy())
    resumed = problem.parameters()
    other = EntropySGD(resumed, L=5)
    load(resumed, weights)
    other.load_state_dict(state)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stepped(other, resumed, problem, 9, counter)
    assert torch.equal(flat(resumed), flat(params))


def test_a_parameter_taken_out_of_its_group_leaves_the_cycle():
    problem = Problem()
    params = problem.parameters()
    optimizer = EntropySGD(params, L=4, **OPTIONS)
    counter = stepped(optimizer, params, problem, 2)
    out = optimizer.param_groups[0]["params"].pop()
    held = out.detach().clone()
    stepped(optimizer, params, problem, 1, counter)
    assert optimizer._steady is not None
    stepped(optimizer, params, problem, 2, counter)
    optimizer.eval()
    optimizer.train()
    assert optimizer.outer_steps == 1
    assert torch.equal(out, held)


def test_an_outer_optimizer_with_modes_is_told():
    """Schedule-Free's step refuses to work in eval mode, and its eval() shows its own average."""
    schedulefree = pytest.importorskip("schedulefree")
    problem = Problem()
    params, by_hand = problem.parameters(), problem.parameters()
    inner = {"L": 1, "alpha": 1.0, "noise": 0.0, "gamma": 0.0, "inner_momentum": 0.0, "inner_lr": 0.1}
    optimizer = LocalEntropy(params, schedulefree.SGDScheduleFree, {"lr": 0.5}, **inner)
    plain = schedulefree.SGDScheduleFree(by_hand, lr=0.5)
    plain.train()
    for i in range(12):
        problem.closure(params, [i])()
        optimizer.step()
        problem.closure(by_hand, [i])()
        for p in by_hand:
            p.grad *= 0.1  # x - mu is inner_lr times the gradient
        plain.step()
        optimizer.eval()
        plain.eval()
        torch.testing.assert_close(flat(params), flat(by_hand), rtol=0, atol=1e-12)
        optimizer.train()
        plain.train()
        torch.testing.assert_close(flat(params), flat(by_hand), rtol=0, atol=1e-12)
