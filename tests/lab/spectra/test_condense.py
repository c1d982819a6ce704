from __future__ import annotations

import json
import math

import pytest
import torch

from entropy_sgd.lab.spectra import condense
from entropy_sgd.landscape import SpectralDensity


@pytest.fixture
def values():
    """A spectrum like a network's: most of it at zero, a short negative and a long positive tail."""
    magnitudes = 10 ** (torch.rand(3000, dtype=torch.float64) * 12 - 10.5)
    values = torch.where(torch.rand(3000) < 0.3, -magnitudes / 100, magnitudes)
    values[:50] = 0.0
    values[50] = 4321.0
    return values[torch.randperm(3000)]


def test_every_number_against_counting(values):
    found = condense.eigenvalues(values)
    plain = sorted(values.tolist())
    assert found["count"] == 3000
    assert (found["minimum"], found["maximum"]) == (plain[0], 4321.0)
    assert found["smallest"] == plain[:200]
    assert found["largest"] == plain[-200:]
    assert found["trace"] == pytest.approx(math.fsum(plain), rel=1e-12)
    assert found["negative"] == sum(value < 0 for value in plain) / 3000
    assert found["zero"] == 50 / 3000
    for threshold in (1e-5, 1e-4, 1e-3, 1e-2):
        share = sum(abs(value) < threshold for value in plain) / 3000
        assert found["near_zero"][f"{threshold:g}"] == share
    levels = torch.linspace(0, 1, 1001, dtype=torch.float64)
    assert found["quantiles"] == pytest.approx(torch.quantile(values, levels).tolist(), rel=1e-9, abs=1e-15)


def test_histograms_count_every_value_once(values):
    plain = values.tolist()
    found = condense.eigenvalues(values)["histograms"]
    edges, counts = found["symlog"]["edges"], found["symlog"]["counts"]
    assert sum(counts) == 3000
    assert edges == [-edge for edge in reversed(edges)]
    assert edges[-1] == pytest.approx(1e4)
    for i in (0, 100, 200, len(counts) // 2, 400, 450, len(counts) - 1):
        inside = sum(edges[i] <= value < edges[i + 1] for value in plain)
        assert counts[i] == inside
    assert counts[len(counts) // 2] == 50 + sum(0 < abs(value) < 1e-12 for value in plain)
    for side, sign in (("negative", -1), ("positive", 1)):
        assert sum(found[side]["counts"]) == sum(sign * value > 0 for value in plain)
    assert sum(found["centre"]["counts"]) / 3000 == pytest.approx(0.99, abs=0.001)


@pytest.mark.parametrize("values", [[0.0, 0.0], [2.0], [-1e-20, 0.0], [-3.0, -1.0], [1000.0, 0.0]])
def test_small_and_one_sided_spectra(values):
    found = condense.eigenvalues(torch.tensor(values))
    assert sum(found["histograms"]["symlog"]["counts"]) == len(values)
    assert sum(found["histograms"]["centre"]["counts"]) > 0
    assert ("negative" in found["histograms"]) == (min(values) < 0)
    json.dumps(found, allow_nan=False)


def test_a_million_values_take_no_more_room_than_a_thousand():
    found = condense.eigenvalues(torch.randn(1_000_000) * 1e-3)
    assert len(json.dumps(found, indent=2)) < 150_000


def test_a_density_keeps_its_shares_and_its_mass():
    nodes = torch.tensor([-0.5, 0.0, 2e-5, 3.0, 12.0], dtype=torch.float64)
    weights = torch.tensor([[0.1, 0.4, 0.3, 0.15, 0.05], [0.2, 0.4, 0.2, 0.15, 0.05]], dtype=torch.float64)
    found = condense.density(SpectralDensity(nodes, weights, 1000, exact=False))
    assert (found["minimum"], found["maximum"]) == (-0.5, 12.0)
    # the two probes' traces are 1000 (-0.05 + 6e-6 + 1.05) and 1000 (-0.1 + 4e-6 + 1.05)
    assert found["trace"] == pytest.approx((1000.006 + 950.004) / 2)
    assert found["trace_error"] == pytest.approx((1000.006 - 950.004) / 2)
    assert found["negative"] == pytest.approx(0.15)
    assert found["negative_error"] == pytest.approx(0.05)
    assert found["near_zero"] == pytest.approx({"1e-05": 0.4, "0.0001": 0.65, "0.001": 0.65, "0.01": 0.65})
    assert sum(found["histograms"]["symlog"]["counts"]) == pytest.approx(1000)
    smoothed = found["smoothed"]
    grid = torch.linspace(smoothed["from"], smoothed["to"], 1001, dtype=torch.float64)
    density = torch.tensor(smoothed["density"], dtype=torch.float64)
    assert float(torch.trapezoid(density, grid)) == pytest.approx(1.0, abs=1e-3)
    assert float(torch.trapezoid(density * grid, grid)) == pytest.approx(0.975005, abs=1e-3)


def test_a_single_probe_has_no_error():
    nodes, weights = torch.tensor([1.0, 2.0]).double(), torch.tensor([[0.5, 0.5]]).double()
    found = condense.density(SpectralDensity(nodes, weights, 7, exact=False))
    assert found["trace"] == pytest.approx(10.5)
    assert found["trace_error"] is None
    json.dumps(found, allow_nan=False)
