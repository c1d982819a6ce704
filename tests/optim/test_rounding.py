"""Stochastic rounding: unbiased, a neighbour of the value, bits from their own address."""

from __future__ import annotations

import math

import torch
from scipy import stats

from entropy_sgd.optim import rounding

CPU = torch.device("cpu")


def draw(n: int, t: int = 0, l: int = 0, parameter: int = 0, seed: int = 0, start: int = 0) -> torch.Tensor:
    return rounding.words(torch.Size([n]), start, rounding.key(seed, t, l, parameter, 0), CPU)


def test_the_mean_is_the_value_and_the_results_its_neighbours():
    for value in (1.0, 1.001, -3.14159, 1e-30, 6.1e4):
        x = torch.full((200_000,), value)
        rounded = rounding.to_bfloat16(x, draw(len(x))).double()
        step = 2.0 ** (math.floor(math.log2(abs(value))) - 7)
        assert ((rounded - x.double()).abs() < step).all()
        assert abs(float(rounded.mean()) - float(x[0])) < 4 * step / 2 / math.sqrt(len(x))


def test_a_representable_value_and_what_is_not_finite_stay():
    x = torch.tensor([0.0, -0.0, 1.5, -math.inf, math.inf, 3.38e38])
    assert torch.equal(rounding.to_bfloat16(x, torch.full_like(x, 0, dtype=torch.int32)), x.bfloat16()[:6])
    for bits in (0, 0xFFFF):
        rounded = rounding.to_bfloat16(x[:5], torch.full((5,), bits, dtype=torch.int32))
        assert torch.equal(rounded.float(), x[:5])
    strange = torch.tensor([0x7FFFFFFF, 0x7F800001, -1], dtype=torch.int32).view(torch.float32)  # all NaN
    assert rounding.to_bfloat16(strange, torch.full((3,), 0xFFFF, dtype=torch.int32)).isnan().all()


def test_the_bits_are_uniform_and_independent_from_step_to_step_and_element_to_element():
    words = draw(200_000).long() & 0xFFFFFFFF
    for half in (words & 0xFFFF, words >> 16):
        assert stats.kstest((half / 65536).numpy(), "uniform").pvalue > 1e-3
    others = [draw(200_000, t=1), draw(200_000, l=1), draw(200_000, parameter=1), draw(200_000, seed=2**32)]
    shifted = [*others, draw(200_000, start=1)]
    low = (words & 0xFFFF).double()
    for other in shifted:
        correlation = torch.corrcoef(torch.stack([low, (other.long() & 0xFFFF).double()]))[0, 1]
        assert abs(float(correlation)) < 4 / math.sqrt(len(low))


def test_a_shard_has_the_bits_of_the_whole_beyond_2_to_the_32_too():
    start = 2**32 - 50
    whole = draw(100, start=start)
    assert torch.equal(whole[30:80], draw(50, start=start + 30))
    assert not torch.equal(whole[50:], draw(50))


def test_words_are_those_of_the_scalar_hash():
    key = rounding.key(7, 1, 2, 3, 0)
    expected = [rounding.mix(e ^ rounding.mix(key)) for e in range(100)]
    assert [int(w) & 0xFFFFFFFF for w in draw(100, t=1, l=2, parameter=3, seed=7)] == expected
