"""`eval` shows x, `train` shows x'."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
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
            closures[0]()
            careless.step()
            careless.eval()
            careless.train()
            closures[0]()  # the gradient at x'
            careless.eval()
            careless.step()
    for _ in range(20):
        closures[1]()
        careful.step()
    careless.train()
    starts = [str(w.message)[:20] for w in caught]
    assert starts.count("step() in eval mode:") == 1
    assert torch.equal(flat(a), flat(b))


def test_step_with_a_closure_in_eval_mode_is_exact_and_silent():
    problem = Problem()
    a, b = problem.parameters(), problem.parameters()
    careless, careful = EntropySGD(a, L=4), EntropySGD(b, L=4)
    closures = problem.closure(a, [0]), problem.closure(b, [0])
    for _ in range(10):
        careless.step(closures[0])
        careless.eval()
        careful.step(closures[1])
    careless.train()
    assert torch.equal(flat(a), flat(b))


def test_eval_before_the_first_outer_update_says_once_that_x_is_the_initial_weights():
    problem = Problem()
    params = problem.parameters()
    optimizer, closure = EntropySGD(params, L=4), problem.closure(params, [0])
    optimizer.eval()  # nothing was trained yet: nothing to say
    optimizer.step(closure)
    with pytest.warns(UserWarning, match=r"1 of L=4 steps; finish\(\)"):
        optimizer.eval()
    np.testing.assert_array_equal(flat(params).detach().numpy(), problem.start)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.train()
        optimizer.eval()
