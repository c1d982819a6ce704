"""The Triton kernels in Triton's interpreter, against the compiled ones and the readable ones.

test_triton.py runs this file in a process of its own: TRITON_INTERPRET must be set before Triton is imported.
Without fused multiply-adds, which the interpreter lacks, the compiled kernel does the same operations.
"""

from __future__ import annotations

import pytest
import torch

from entropy_sgd.optim import kernel, kernel_outer, sketch, triton_step
from entropy_sgd.optim.descent import Descent
from entropy_sgd.optim.noise import Span, gaussian_by_torch
from steps import HalfStates, hyper_parameters

SIZES = [1, 64, 100, 0, 2_500]
OFFSETS = [0, 63, 5, 9, 1_000]
PARAMETERS = [0, 7, 2, 3, 2**31]


@pytest.fixture(autouse=True)
def without_fused_multiply_adds():
    library = kernel.library()
    assert library is not None
    library.entropy_choose(0)
    yield
    library.entropy_choose(kernel.AVX512)


def lists(mean=True, momentum=True, half=False):
    """x', gradient, x, mu and v of tensors of every awkward size."""
    generator = torch.Generator().manual_seed(0)
    made = [[torch.randn(n, generator=generator) for n in SIZES] for _ in range(5)]
    if half:
        made[3:5] = [[t.bfloat16() for t in tensors] for tensors in made[3:5]]
    wanted = (True, True, True, mean, momentum)
    return [tensors if want else [] for tensors, want in zip(made, wanted, strict=True)]


CASES = [
    ({}, {}, {}),
    ({"inner_nesterov": False, "weight_decay": 0.0}, {}, {"maximize": True}),
    ({"inner_momentum": 0.0, "alpha": 0.3}, {"momentum": False}, {"first": True}),
    ({}, {}, {"first": True, "reset": True}),
    ({"noise": 0.0}, {}, {"first": True, "reset": False}),
    ({"alpha": 1.0}, {"mean": False}, {}),
    ({}, {"half": True}, {}),
    ({}, {"half": True}, {"first": True, "reset": False}),
    ({"alpha": 1.0, "noise": 0.0}, {"half": True, "mean": False}, {"first": True, "reset": True}),
]


@pytest.mark.parametrize(("options", "kinds", "how"), CASES)
def test_the_step_has_the_bits_of_the_compiled_one(options, kinds, how):
    h = hyper_parameters(**options)
    mixed = [how.get("first", False), False, how.get("first", False), True, how.get("first", False)]
    flags = (mixed, [how.get("reset", False)] * 5, PARAMETERS, OFFSETS)
    address = (2**63 + 5, 2**32 - 1, 7, how.get("maximize", False))
    expected, found = lists(**kinds), lists(**kinds)
    sums = kernel.langevin_step_(h, *expected, *flags, *address)
    totals = triton_step.langevin_step_(h, *found, *flags, *address)
    for a, b in zip(expected, found, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
    for a, b in zip(sums, totals, strict=True):
        assert b.tolist() == pytest.approx(list(a), rel=1e-5)


def test_the_noise_has_the_same_bits():
    h = hyper_parameters(gamma=0.0, weight_decay=0.0, inner_momentum=0.0, inner_lr=1.0, noise=1.0)
    zeros = [[torch.zeros(n) for n in SIZES] for _ in range(4)]
    triton_step.langevin_step_(h, *zeros, [], [False] * 5, [False] * 5, PARAMETERS, OFFSETS, -3, 9, 4, False)
    spans = [Span(*values) for values in zip(PARAMETERS, OFFSETS, SIZES, strict=True)]
    for z, expected in zip(zeros[0], gaussian_by_torch(spans, -3, 9, 4, torch.device("cpu")), strict=True):
        assert torch.equal(z, expected)


def test_elements_beyond_2_to_the_32_round_with_bits_of_their_own():
    h = hyper_parameters()
    expected, found = lists(half=True), lists(half=True)
    flags = ([False] * 5, [False] * 5, PARAMETERS, [2**32 - 70] * 5, 1, 2, 3, False)
    kernel.langevin_step_(h, *expected, *flags)
    triton_step.langevin_step_(h, *found, *flags)
    assert torch.equal(expected[4][4], found[4][4])


def test_many_tensors_take_one_launch(monkeypatch):
    kernels = pytest.importorskip("entropy_sgd.optim.triton_kernels")
    launched = []
    for name in ("langevin", "by_tensor"):
        function = getattr(kernels, name)

        class Counted:
            def __init__(self, name, function):
                self.name, self.function = name, function

            def __getitem__(self, grid):
                launched.append(self.name)
                return self.function[grid]

        monkeypatch.setattr(kernels, name, Counted(name, function))
    h = hyper_parameters(noise=0.0)
    for count in (2, 40):
        tensors = [[torch.ones(3) for _ in range(count)] for _ in range(5)]
        expected = [[t.clone() for t in row] for row in tensors]
        flags = ([False] * count, [False] * count, list(range(count)), [0] * count, 0, 0, 0, False)
        triton_step.langevin_step_(h, *tensors, *flags)
        launched.clear()
        triton_step.langevin_step_(h, *tensors, *flags)
        assert launched == ["langevin", "by_tensor"]
        for _ in range(2):
            kernel.langevin_step_(h, *expected, *flags)
        assert all(torch.equal(a, b) for a, b in zip(tensors[0], expected[0], strict=True))


def test_bfloat16_weights_are_rounded_as_the_readable_path_rounds_them():
    h = hyper_parameters()
    x_prime = torch.randn(1_500, generator=torch.Generator().manual_seed(0)).bfloat16()
    readable = HalfStates(h, x_prime.clone(), parameter=5, start=70, seed=9)
    x, mu, v = x_prime.float(), torch.ones_like(x_prime), torch.ones_like(x_prime)
    for i in range(3):
        gradient = torch.randn(len(x), generator=torch.Generator().manual_seed(i)).bfloat16()
        readable.step(gradient, t=3, l=i, first=i == 0)
        triton_step.langevin_step_(
            h, [x_prime], [gradient], [x], [mu], [v], [i == 0], [True], [5], [70], 9, 3, i, False
        )
    assert torch.equal(x, readable.x)
    assert torch.equal(x_prime, readable.x_prime)
    assert torch.equal(mu, readable.mu_minus_x)
    assert torch.equal(v, readable.v)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("mean", [True, False])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_outer_update_has_the_bits_of_the_compiled_one(half, mean, momentum):
    h = Descent(0.3, momentum, dampening=0.1, weight_decay=0.2, nesterov=momentum != 0, scale=0.7)
    results = []
    for module in (kernel_outer, triton_step):
        p, _, x, mu, v = lists(mean=mean, momentum=momentum != 0, half=half)
        v = [t.float() for t in v]
        fresh = [True, False, True, False, False]
        squares = module.outer_step_(h, p, x, mu, v, fresh)
        results.append((p, v, [float(s) for s in squares]))
    for a, b in zip(results[0][0] + results[0][1], results[1][0] + results[1][1], strict=True):
        assert torch.equal(a, b)
    assert results[0][2] == pytest.approx(results[1][2], rel=1e-5)


def test_the_outer_update_of_bfloat16_weights_keeps_x():
    x = torch.randn(100, generator=torch.Generator().manual_seed(0))
    p, mu = x.bfloat16(), x + 1e-5
    h = Descent(1.0, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False, scale=1.0)
    triton_step.outer_step_(h, [p], [x], [mu], [], [False])
    torch.testing.assert_close(x, mu, rtol=0, atol=1e-6)
    assert torch.equal(p, x.bfloat16())


@pytest.mark.parametrize("half", [False, True])
def test_the_sketch_is_that_of_torch(half):
    _, a, _, b, _ = lists(half=half)
    spans = [Span(*values) for values in zip(PARAMETERS, OFFSETS, SIZES, strict=True)]
    slow, fast = torch.zeros(sketch.BUCKETS), torch.zeros(sketch.BUCKETS)
    expected = sketch.add_by_torch_(slow, a, b, (0.5, -2.0), spans, 2**63 + 1, 3)
    square = triton_step.sketch_(fast, a, b, (0.5, -2.0), spans, 2**63 + 1, 3)
    torch.testing.assert_close(fast, slow, rtol=1e-5, atol=1e-5)
    assert float(square) == pytest.approx(float(expected), rel=1e-5)
