"""`eval` shows x, `train` shows x'."""

from __future__ import annotations

import warnings

import torch

from entropy_sgd import EntropySGD
from problem import Problem, flat


def test_eval_shows_x_and_train_shows_x_prime(make):
    problem = Problem()
    params = problem.parameters()
    optimizer, closure = make(params), problem.closure(params, [0])
    for step in range(11):
        x_before = flat(params).clone() if step % 4 == 0 else x_before  # noqa: F821  set at step 0
        optimizer.step(closure)
        x_prime = flat(params).clone()
        x = x_prime if step % 4 == 3 else x_before
        for _ in range(2):
            optimizer.eval()
            assert torch.equal(flat(params), x)
        for _ in range(2):
            optimizer.train()
            assert torch.equal(flat(params), x_prime)


def test_step_in_eval_mode_swaps_back_and_warns_once():
    problem = Problem()
    a, b = problem.parameters(), problem.parameters()
    careless, careful = EntropySGD(a, L=4), EntropySGD(b, L=4)
    closures = problem.closure(a, [0]), problem.closure(b, [0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(10):
            careless.step(closures[0])
            careless.eval()
    for _ in range(10):
        careful.step(closures[1])
    careless.train()
    assert [str(w.message).startswith("step() in eval mode") for w in caught] == [True]
    assert torch.equal(flat(a), flat(b))
