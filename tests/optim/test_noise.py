"""Philox against its published answers, the normals against scipy, the addressing against itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from entropy_sgd import EntropySGD
from entropy_sgd.optim.noise import CHUNK, TILE, Span, box_muller, gaussian, gaussian_by_torch, philox
from launches import Launches

CPU = torch.device("cpu")


def draw(
    parameter: int = 0, n: int = 200_000, seed: int = 0, t: int = 0, l: int = 0, start: int = 0
) -> torch.Tensor:
    return gaussian([Span(parameter, start, n)], seed, t, l, CPU)[0]


def unsigned(even: torch.Tensor, odd: torch.Tensor) -> list[int]:
    """The four words of the only block."""
    return [int(w) & 0xFFFFFFFF for pair in zip(even, odd, strict=True) for w in pair]


@pytest.mark.parametrize(
    ("counter", "key", "rounds", "words"),
    [  # kat_vectors of the Random123 library (Salmon et al.)
        ([0] * 4, [0] * 2, 7, [0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, 7, [0x5207DDC2, 0x45165E59, 0x4D8EE751, 0x8C52F662]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            7,
            [0x4DFCCABA, 0x190A87F0, 0xC47362BA, 0xB6B5242A],
        ),
        ([0] * 4, [0] * 2, 10, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ],
)
def test_philox_gives_the_published_words(counter, key, rounds, words):
    tensors = tuple(torch.tensor([c]) for c in counter)
    assert unsigned(*philox(tensors, tuple(key), rounds)) == words
    mixed = (tensors[0], *counter[1:])  # plain integers stand for constant counters
    assert unsigned(*philox(mixed, tuple(key), rounds)) == words


def test_the_transform_is_box_muller_on_every_kind_of_word():
    """Against the textbook formula in float64, at the ends of the range and at random."""
    rng = np.random.default_rng(0)
    ends = [
        0,
        1,
        2,
        0x7FFFFFFF,
        0x80000000,
        0x3FFFFFFF,
        0x40000000,
        0xBFFFFFFF,
        0xC0000000,
        0xFFFFFFFE,
        0xFFFFFFFF,
    ]
    w0 = np.concatenate([np.repeat(ends, len(ends)), rng.integers(0, 2**32, 50_000)])
    w1 = np.concatenate([np.tile(ends, len(ends)), rng.integers(0, 2**32, 50_000)])
    z0, z1 = (z.double().numpy() for z in box_muller(*(torch.tensor(w).to(torch.int32) for w in (w0, w1))))
    r = np.sqrt(-2 * np.log(((w0 >> 1) | 1) / 2**31))
    low = w1 & 0x3FFFFFFF
    phi = np.where(low < 2**29, low, low - 2**30) / 2**30 * np.pi / 2 + np.pi / 4
    expected = np.where(w1 >> 31, -1, 1) * r * np.cos(phi), np.where((w1 >> 30) & 1, -1, 1) * r * np.sin(phi)
    # v is rounded to 24 bits before its logarithm, which matters near u = 1 only, where r is tiny.
    np.testing.assert_allclose(z0, expected[0], rtol=2e-6, atol=3e-4)
    np.testing.assert_allclose(z1, expected[1], rtol=2e-6, atol=3e-4)
    body = r > 0.1
    np.testing.assert_allclose(z0[body], expected[0][body], rtol=0, atol=4e-6)
    np.testing.assert_allclose(z1[body], expected[1][body], rtol=0, atol=4e-6)
    assert abs(z0).max() <= np.sqrt(62 * np.log(2)) * 1.0001


@pytest.mark.parametrize("address", [{}, {"seed": 2**63 + 5}, {"t": 10_000, "l": 19}, {"parameter": 77}])
def test_normal_by_kolmogorov_smirnov(address):
    z = draw(n=1_000_000, **address).double().numpy()
    assert stats.kstest(z, "norm").pvalue > 1e-3
    assert stats.kstest(z**2, stats.chi2(1).cdf).pvalue > 1e-3
    n = len(z)
    for power, moment, variance in [(1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)]:
        assert abs((z**power).mean() - moment) < 4.5 * np.sqrt(variance / n)
    expected = n * 2 * stats.norm.sf([4, 5])
    for count, mean in zip([(abs(z) > 4).sum(), (abs(z) > 5).sum()], expected, strict=True):
        assert 1e-4 < stats.poisson.cdf(count, mean) < 1 - 1e-7


def test_uncorrelated_over_elements_parameters_steps_and_seeds():
    n = 400_000
    z = draw(n=n)
    others = {
        "parameter": draw(1, n),
        "inner step": draw(n=n, l=1),
        "outer step": draw(n=n, t=1),
        "seed": draw(n=n, seed=1),
        "high half of the seed": draw(n=n, seed=1 << 32),
    }
    for name, other in others.items():
        for a, b in [(z, other), (z.abs(), other.abs()), (z.square(), other)]:
            assert abs(torch.corrcoef(torch.stack([a, b]))[0, 1]) < 4.5 / n**0.5, name
    for lag in [1, 2, 3, 15, 16, 17, 31, 32, 48, 63, 64, 65, 128, 1000]:
        for a in (z, z.abs()):
            a = a - a.mean()
            assert abs((a[lag:] * a[:-lag]).mean() / a.var()) < 4.5 / n**0.5, lag


def test_every_coordinate_of_the_address_matters_and_nothing_else():
    base = draw(n=1000, seed=3, t=4, l=5, parameter=6)
    assert torch.equal(base, draw(n=1000, seed=3, t=4, l=5, parameter=6))
    for change in [{"seed": 4}, {"t": 5}, {"l": 6}, {"parameter": 7}]:
        other = draw(n=1000, **{"seed": 3, "t": 4, "l": 5, "parameter": 6, **change})
        assert (other == base).float().mean() < 0.01


@pytest.mark.parametrize("start", [0, 1, 63, 64, 65, 1000, TILE * CHUNK - 5, 3 * TILE * CHUNK + 7])
def test_a_shard_draws_its_slice(start):
    whole = draw(n=4 * TILE * CHUNK, seed=9)
    assert torch.equal(draw(n=777, seed=9, start=start), whole[start : start + 777])


def test_together_or_alone_and_with_any_number_of_threads():
    spans = [Span(0, 0, 10), Span(3, 0, 100_001), Span(4, 5, 1), Span(9, 0, 300_000)]
    together = gaussian(spans, 1, 2, 3, CPU)
    try:
        torch.set_num_threads(2)
        for span, z in zip(spans, together, strict=True):
            assert torch.equal(gaussian([span], 1, 2, 3, CPU)[0], z)
    finally:
        torch.set_num_threads(1)


def test_the_optimizer_adds_it_scaled_by_line_5_and_leaves_the_global_generator_alone():
    p = torch.nn.Parameter(torch.zeros(50_000, dtype=torch.float64))
    optimizer = EntropySGD([p], L=3, inner_lr=0.04, noise=0.5, gamma=0.0, seed=5)
    before = torch.get_rng_state()
    p.grad = torch.zeros_like(p)
    optimizer.step()
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(p.detach() / (0.2 * 0.5), draw(n=50_000, seed=5).double() * (0.2 * 0.5) / (0.2 * 0.5))
    assert stats.kstest((p.detach() / 0.1).numpy(), "norm").pvalue > 1e-3


# ---- off the CPU, where every operation is a launch ----


def test_the_number_of_launches_does_not_grow_and_few_bytes_move():
    """On the meta device, which has shapes only: the path of a GPU without Triton."""
    counted = []
    for n in (10**5, 10**8):
        with Launches() as launches:
            (z,) = gaussian_by_torch([Span(0, 5, n)], 1, 2, 3, torch.device("meta"))
        assert z.numel() == n
        counted.append(launches.count)
        assert launches.bytes / n < 420
        assert launches.widest_int64 <= (n + 2 * TILE) // 2  # two words of each block of four numbers
    assert counted[0] == counted[1] <= 100


def test_all_at_once_gives_the_bits_of_the_chunks(monkeypatch):
    spans = [Span(3, 5, 2 * TILE * CHUNK), Span(9, 0, 100)]
    chunks = gaussian_by_torch(spans, 1, 2, 3, CPU)
    monkeypatch.setattr("entropy_sgd.optim.noise.CHUNK", 10**9)
    for a, b in zip(chunks, gaussian_by_torch(spans, 1, 2, 3, CPU), strict=True):
        assert torch.equal(a, b)


def test_no_noise_is_drawn_where_there_is_none(monkeypatch):
    def fail(*args, **kwargs):
        raise AssertionError("noise was drawn")

    monkeypatch.setattr("entropy_sgd.optim.bucket.thermal", fail)
    for options in ({"noise": 0.0}, {"inner_lr": 0.0}):
        for path in ({"foreach": True}, {"foreach": False}, {"inner": "adam"}):
            p = torch.nn.Parameter(torch.ones(3))
            p.grad = torch.ones(3)
            EntropySGD([p], **options, **path).step()
