"""How a run is judged, in words: one entry for each metric that is shown in a way of its own."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """How the values of a metric are written and drawn."""

    label: str
    """Heading of a table's column."""
    digits: int
    """After the decimal point."""
    phrase: str
    """A value in a sentence."""
    title: str
    """Of its figure."""
    axis: str
    logarithmic: bool = True
    unit: str = ""
    """After a value on the terminal."""

    def number(self, value: float, sign: str = "") -> str:
        """A value as tables have it."""
        return f"{value:{sign}.{self.digits}f}"


_KNOWN = {
    "error": Metric("error, %", 2, "{} % error", "Validation error", "%", unit=" %"),
    "perplexity": Metric("perplexity", 2, "perplexity {}", "Validation perplexity", "perplexity"),
    "nats": Metric(
        "nats per character", 4, "{} nats", "Validation cross-entropy", "nats per character", False
    ),
}


LESS_IS_BETTER = ("error", "perplexity", "nats", "loss")
"""Metrics of which it is known; what a user's own metric means is not."""


def get(name: str) -> Metric:
    """The metric of that name; any other name is the user's own and is shown as it is."""
    return _KNOWN.get(name) or Metric(name, 4, f"{name} {{}}", f"Validation {name}", name, False)
