"""Figures as SVG for the page: its colours and fonts, and values under the pointer, without a script."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from entropy_sgd.lab.report.curves import Curve
from entropy_sgd.lab.report.figures import COLOURS, STYLE, plain

POSITIONS = 30
"""At most so many places along a curve show their values."""
LINE = 11.0
"""Height of a line of values, in points."""


def svg(figure: Figure, key: str) -> str:
    """The figure as an `<svg>` element: black is the page's own colour, the colours are variables of it.

    `key` goes before the identifiers, so that they do not clash with those of other figures on the page.
    """
    stream = io.StringIO()
    figure.patch.set_visible(False)
    for axes in figure.axes:
        axes.patch.set_visible(False)
    with mpl.rc_context(STYLE):
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    # the page decides the width, the viewBox the shape
    opening, closing, rest = text.partition(">")
    text = re.sub(r' (width|height)="[^"]*"', "", opening) + closing + rest
    for place, colour in enumerate(COLOURS[:-1]):
        text = text.replace(colour.lower(), f"var(--c{place})")
    text = text.replace("#000000", "currentColor")
    text = re.sub(r" font-family: [^;\"]*;", "", text)  # the page's own
    return re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{key}-", text)


def with_values(text: str, figure: Figure, found: Sequence[Curve]) -> str:
    """The `<svg>` with the values of its curves, shown while the pointer is over their place."""
    axes: Any = figure.axes[0]
    scale = 72 / figure.dpi
    height = figure.get_size_inches()[1] * 72
    box = axes.get_window_extent()
    left, right = box.x0 * scale, box.x1 * scale
    top, bottom = height - box.y1 * scale, height - box.y0 * scale
    everywhere = sorted({epoch for curve in found for epoch in curve.epochs})
    stride = -(-len(everywhere) // POSITIONS)
    # the last value is what a run ends with
    chosen = everywhere[::-1][::stride][::-1] if everywhere else []
    places = [float(axes.transData.transform((epoch, 1.0))[0]) * scale for epoch in chosen]
    parts: list[str] = []
    for i, (epoch, x) in enumerate(zip(chosen, places, strict=True)):
        begin = left if i == 0 else (places[i - 1] + x) / 2
        end = right if i == len(places) - 1 else (x + places[i + 1]) / 2
        lines: list[tuple[int | None, str]] = [(None, f"epoch {epoch:.4g}")]
        for curve in found:
            if epoch in curve.epochs:
                lines.append((curve.place, f"{plain(curve.label, 24)} {_value(curve, epoch)}"))
        parts.append(_place((begin, end, x), (left, right, top, bottom), lines))
    return text.replace("</svg>", f'<g class="values">{"".join(parts)}</g></svg>')


def _value(curve: Curve, epoch: float) -> str:
    i = curve.epochs.index(epoch)
    spread = "" if curve.deviation is None else f" ± {curve.deviation[i]:.2g}"
    return f"{curve.mean[i]:.4g}{spread}"


def _place(
    where: tuple[float, float, float],
    box: tuple[float, float, float, float],
    lines: Sequence[tuple[int | None, str]],
) -> str:
    begin, end, x = where
    left, right, top, bottom = box
    width = 4.9 * max(len(text) for _, text in lines) + 12
    at = right - width if x < (left + right) / 2 else left
    rows = "".join(
        f'<text x="{at + 6:.1f}" y="{top + LINE * (i + 1) + 1:.1f}"'
        f' style="fill: {_colour(place)}">{html.escape(text)}</text>'
        for i, (place, text) in enumerate(lines)
    )
    return (
        f'<g class="place"><rect class="over" x="{begin:.1f}" y="{top:.1f}" '
        f'width="{max(end - begin, 0.1):.1f}" height="{bottom - top:.1f}"/><g class="shown">'
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{bottom:.1f}"/>'
        f'<rect x="{at:.1f}" y="{top:.1f}" width="{width:.1f}" '
        f'height="{LINE * len(lines) + 8:.1f}" rx="3"/>{rows}</g></g>'
    )


def _colour(place: int | None) -> str:
    return "currentColor" if place is None else f"var(--c{place % len(COLOURS)})"
