from __future__ import annotations

import math
from pathlib import Path

import pytest
import scipy.integrate
import torch

from entropy_sgd.lab import valley


@pytest.fixture(scope="module")
def computed() -> valley.Valley:
    return valley.compute(points=271)


def test_the_global_minimum_moves_to_the_wide_valley(computed: valley.Valley) -> None:
    fine = torch.linspace(-1.35, 1.35, 20001, dtype=torch.float64)
    f = valley.landscape(fine[:, None])
    sharp = float(fine[f.argmin()])
    assert sharp == pytest.approx(0.62, abs=0.01)  # the global minimum of f
    assert computed.minimiser() == pytest.approx(sharp, abs=0.011)
    left = fine < 0
    robust = float(fine[left][f[left].argmin()])
    assert float(f[left].min()) > float(f.min()) + 0.5  # shallower ...
    half = f.min() + 1.0, f[left].min() + 1.0
    widths = [int((f[side] < level).sum()) for side, level in ((~left, half[0]), (left, half[1]))]
    assert widths[1] > 10 * widths[0]  # ... and wider
    assert len(valley.GAMMAS) == 2
    for gamma in valley.GAMMAS:
        assert computed.minimiser(gamma) == pytest.approx(robust, abs=0.1)


def test_a_large_gamma_finds_the_sharp_valley_again() -> None:
    assert valley.compute((1e5,), points=271).minimiser(1e5) == pytest.approx(0.62, abs=0.02)


def test_the_curves_are_local_entropies(computed: valley.Valley) -> None:
    for gamma in valley.GAMMAS:
        for i in (40, 135, 197):
            x = float(computed.x[i])

            def integrand(p: float, x: float = x, gamma: float = gamma) -> float:
                f = float(valley.landscape(torch.tensor([p], dtype=torch.float64)))
                return math.exp(-f - gamma / 2 * (p - x) ** 2)

            integral, _ = scipy.integrate.quad(integrand, -3, 3, points=[x, 0.61, 0.63], limit=400)
            expected = -math.log(integral) + math.log(2 * math.pi / gamma) / 2
            assert float(computed.negative_local_entropy[gamma][i]) == pytest.approx(expected, abs=1e-6)


def test_drawings_by_suffix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, computed: valley.Valley) -> None:
    monkeypatch.setattr(valley, "compute", lambda gammas: computed)
    valley.draw(tmp_path / "new" / "valley.png")
    valley.draw(str(tmp_path / "valley.svg"))
    assert (tmp_path / "new" / "valley.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "valley.svg").read_text()
