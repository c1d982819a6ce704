"""The sketch against the inner products it estimates, compiled against torch, shards against the whole."""

from __future__ import annotations

import math

import pytest
import torch

from entropy_sgd.optim import angle, kernel, kernel_outer, sketch
from entropy_sgd.optim.noise import Span

SIZES = [1, 64, 100, 0, 30_001]
SPANS = [Span(i, start, n) for i, (start, n) in enumerate(zip([0, 63, 5, 9, 2**33 + 7], SIZES, strict=True))]


def vectors(seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(n, generator=generator) for n in SIZES]


@pytest.mark.parametrize("instruction_set", [0, 1, 2])
@pytest.mark.parametrize("half", [False, True])
def test_the_compiled_sketch_is_that_of_torch(instruction_set, half):
    library = kernel.library()
    assert library is not None
    try:
        if library.entropy_choose(instruction_set) != instruction_set:
            pytest.skip("this processor lacks the instruction set")
        a = [] if half else vectors(0)
        b = [x.bfloat16() for x in vectors(1)] if half else vectors(1)
        fast, slow = torch.zeros(sketch.BUCKETS), torch.zeros(sketch.BUCKETS)
        assert kernel_outer.sketches(a, b)
        square = kernel_outer.sketch_(fast, a, b, (0.5, -2.0), SPANS, 2**63 + 1, 3)
        expected = sketch.add_by_torch_(slow, a, b, (0.5, -2.0), SPANS, 2**63 + 1, 3)
        torch.testing.assert_close(fast, slow, rtol=1e-5, atol=1e-5)
        assert square == pytest.approx(float(expected), rel=1e-5)
    finally:
        library.entropy_choose(kernel.AVX512)


def test_the_inner_product_is_that_of_torch():
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(sketch.BUCKETS, generator=generator) for _ in range(2))
    expected = float(a.double() @ b.double())
    assert kernel_outer.dot(a, b) == pytest.approx(expected, rel=1e-12)
    assert angle.dot(a, b) == pytest.approx(expected, rel=1e-12)
    assert float(angle.dot(a[:10].double(), b.double())) == pytest.approx(float(a[:10] @ b[:10]), rel=1e-5)


def test_nor_does_it_depend_on_the_number_of_threads():
    x = torch.randn(3_000_000, generator=torch.Generator().manual_seed(0))
    results = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            out = torch.zeros(sketch.BUCKETS)
            square = sketch.add_(out, [], [x], (0.0, 1.0), [Span(0, 0, len(x))], 1, 2)
            results.append((out, float(square)))
    finally:
        torch.set_num_threads(1)
    for out, square in results[1:]:
        assert torch.equal(out, results[0][0])
        assert square == results[0][1]
    assert results[0][1] == pytest.approx(float(x.double().square().sum()), rel=1e-6)


def test_shards_add_up_to_the_whole():
    x = torch.randn(10_000, generator=torch.Generator().manual_seed(0))
    whole, parts = torch.zeros(sketch.BUCKETS), torch.zeros(sketch.BUCKETS)
    sketch.add_(whole, [], [x], (0.0, 1.0), [Span(4, 0, len(x))], 1, 2)
    for low, high in [(0, 100), (100, 3_333), (3_333, 10_000)]:
        sketch.add_(parts, [], [x[low:high]], (0.0, 1.0), [Span(4, low, high - low)], 1, 2)
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("cosine", [0.0, 0.3, 1.0])
def test_the_error_of_the_cosine_is_what_is_said(cosine):
    """No bias, and the standard deviation of the docstring, over the hashes of many cycles."""
    generator = torch.Generator().manual_seed(0)
    a, c = torch.randn(2, 50_000, generator=generator).double()
    c -= (a @ c) / (a @ a) * a
    b = cosine * a / a.norm() + math.sqrt(1 - cosine**2) * c / c.norm()
    span = [Span(0, 5, len(a))]
    found = []
    for t in range(200):
        sketches = torch.zeros(2, sketch.BUCKETS)
        squares = [
            float(sketch.add_(s, [], [v.float()], (0.0, 1.0), span, 3, t))
            for s, v in zip(sketches, (a, b), strict=True)
        ]
        found.append(float(sketches[0] @ sketches[1]) / math.sqrt(squares[0] * squares[1]))
    values = torch.tensor(found)
    expected = math.sqrt((1 + cosine**2) / sketch.BUCKETS)
    assert abs(float(values.mean()) - cosine) < 4 * expected / math.sqrt(len(values))
    assert 0.8 * expected < float(values.std()) < 1.2 * expected
