"""The cartoon of Fig. 2, computed: local entropy moves the global minimum from a sharp valley to a wide one.

The landscape f has a wide, shallow valley at x_robust and a sharp one at x_non-robust that is deeper, so that
it holds f's global minimum. -F(x, gamma), eq. (4), is computed by quadrature.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from entropy_sgd.lab.runs.records import write_whole
from entropy_sgd.landscape import local_entropy

GAMMAS = (300.0, 15.0)  # the smaller gamma looks further and smooths more

# Depth, place and width of each valley.
_WIDE = (4.6, -0.45, 0.3)
_SHARP = (6.2, 0.62, 0.011)
_PLATEAU = 6.0


def landscape(points: Tensor) -> Tensor:
    """f, of points ``(..., 1)``: two Gaussian wells in a plain of small ripples between walls."""
    x = points[..., 0]
    plain = _PLATEAU + 0.3 * torch.sin(42.0 * x) + 0.8 * x**4
    for depth, place, width in (_WIDE, _SHARP):
        plain = plain - depth * torch.exp(-0.5 * ((x - place) / width) ** 2)
    return plain


@dataclass(frozen=True)
class Valley:
    """The curves of the figure."""

    x: Tensor
    f: Tensor
    negative_local_entropy: dict[float, Tensor]
    """-F + (1/2) log(2 pi / gamma) for each gamma: shifted so that it tends to f as gamma grows."""

    def minimiser(self, gamma: float | None = None) -> float:
        """Where f (without ``gamma``) or -F has its global minimum."""
        curve = self.f if gamma is None else self.negative_local_entropy[gamma]
        return float(self.x[curve.argmin()])


def compute(gammas: tuple[float, ...] = GAMMAS, points: int = 801) -> Valley:
    """The loss f and -F on a grid of ``points`` over [-1.35, 1.35]."""
    x = torch.linspace(-1.35, 1.35, points, dtype=torch.float64)
    entropies = {
        gamma: -local_entropy(landscape, x[:, None], gamma) + 0.5 * math.log(2 * math.pi / gamma)
        for gamma in gammas
    }
    return Valley(x, landscape(x[:, None]), entropies)


def draw(path: str | Path, gammas: tuple[float, ...] = GAMMAS) -> Valley:
    """Draw the figure to ``path``, whose suffix (.png, .svg, .pdf) gives the format, and return its data."""
    valley = compute(gammas)
    path, stream = Path(path), io.BytesIO()
    picture(valley).savefig(stream, format=path.suffix[1:] or "png", dpi=160)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, stream.getvalue())
    return valley


def picture(valley: Valley) -> Any:
    """The figure."""
    from matplotlib.figure import Figure

    x = valley.x.numpy()
    figure: Any = Figure(figsize=(8.0, 4.5), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(x, valley.f.numpy(), color="0.15", linewidth=1.6, label="$f(x)$, the loss")
    colours = ("#d95f02", "#1b6ca8", "#1b9e77", "#7570b3")
    for i, (gamma, curve) in enumerate(valley.negative_local_entropy.items()):
        colour = colours[i % len(colours)]
        label = rf"$-F(x, \gamma)$, $\gamma = {gamma:g}$"
        axes.plot(x, curve.numpy(), color=colour, linewidth=2.2, label=label)
        axes.plot(valley.minimiser(gamma), float(curve.min()), "o", color=colour, markersize=8, zorder=5)
    axes.plot(valley.minimiser(), float(valley.f.min()), "o", color="0.15", markersize=8, zorder=5)
    _annotate(axes, valley)
    axes.set_xlim(float(x[0]), float(x[-1]))
    axes.set_ylim(float(valley.f.min()) - 0.9, _PLATEAU + 3.0)
    axes.set_xlabel("weights $x$")
    axes.set_ylabel("energy")
    axes.set_yticks([])
    axes.set_xticks([])
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper center", frameon=False, ncols=len(valley.negative_local_entropy) + 1)
    return figure


def _annotate(axes: Any, valley: Valley) -> None:
    left = valley.x < 0
    robust = float(valley.x[left][valley.f[left].argmin()])
    sharp = valley.minimiser()
    texts = (
        (robust, r"$x_{\mathrm{robust}}$: wide, shallow"),
        (sharp, r"$x_{\mathrm{non\text{-}robust}}$: sharp, deep"),
    )
    for place, text in texts:
        low = float(landscape(torch.tensor([place], dtype=torch.float64)))
        axes.annotate(
            text,
            (place, low),
            xytext=(0, -12),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize=11,
        )
