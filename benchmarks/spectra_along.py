"""The Hessian's spectrum along one training run of `small-char-lstm` and `small-lenet` (Section 5.1).

    python benchmarks/spectra_along.py [--networks small-char-lstm small-lenet] [--draw]

A run cut at N updates has the bits of the first N updates of the whole run, so each point is a run of its
own, and what was stopped goes on where it was. Each point gives one file in results/spectra-along; the figure
is drawn from those.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from entropy_sgd.lab import recipes, train
from entropy_sgd.lab.report.figures import COLOURS, STYLE
from entropy_sgd.lab.runs.reading import collect
from entropy_sgd.lab.runs.records import read_json, write_json
from entropy_sgd.lab.spectra.how import Spectrum
from entropy_sgd.lab.spectra.measure import measure

ROOT = Path(__file__).parents[1]
# updates to stop at, samples that make an update, training samples (tokens), threshold and share in the paper
NETWORKS: dict[str, dict[str, Any]] = {
    "small-char-lstm": {
        "updates": (200, 500, 1_000, 2_000, 5_000, 20_000),
        "batch": 256 * 32,
        "size": 256 * 32 + 1,
        "threshold": "1e-05",
        "paper": (0.95, "Fig. 3b: almost 95 % below 1e-5"),
    },
    "small-lenet": {
        "updates": (200, 500, 1_000, 2_000, 5_000, 8_594),
        "batch": 128,
        "size": 55_000,
        "threshold": "0.0001",
        "paper": (0.94, "Fig. 1: about 94 % below 1e-4"),
    },
}
HOW = Spectrum(method="lanczos", dtype="float64", probes=2, steps=160)


def point(network: str, updates: int, runs: Path, results: Path) -> None:
    """Train that far, measure, and keep what the figure needs."""
    path = results / f"{network}-{updates}.json"
    if path.exists():
        return
    known = NETWORKS[network]
    folder = runs / f"{network}-{updates}"
    epochs = updates * known["batch"] / known["size"]
    shorter = min(recipes.get(f"{network}/adam").evaluate_every, epochs)
    train(network, "adam", out=folder, epochs=epochs, evaluate_every=shorter, threads=1, resume=True)
    whole = folder / "spectrum.json"
    command = ["benchmarks/spectra_along.py", "--networks", network]
    (record,) = measure(collect([folder]), HOW, whole, command=command)
    del record["spectrum"]["smoothed"], record["spectrum"]["histograms"]  # kept in the run's folder
    results.mkdir(parents=True, exist_ok=True)
    write_json(path, {"updates": updates, **record})
    print(path, flush=True)


def draw(results: Path, out: Path) -> None:
    """Share near zero and extremes against the loss."""
    thresholds = ("1e-05", "0.0001", "0.001", "0.01")
    with mpl.rc_context(STYLE):
        figure: Any = Figure(figsize=(11.0, 3.6 * len(NETWORKS)), layout="constrained")
        grid = figure.subplots(len(NETWORKS), 2, squeeze=False)
        for (network, known), (left, right) in zip(NETWORKS.items(), grid, strict=True):
            files = sorted(results.glob(f"{network}-*.json"))
            points = sorted((read_json(path) for path in files), key=lambda found: found["updates"])
            whole = [found for path in sorted((ROOT / "results" / "spectra").glob(f"{network}-*.json"))
                     if (found := read_json(path))["method"] == "exact"]  # fmt: skip
            losses = [found["loss"] for found in points]
            for colour, threshold in zip(COLOURS, thresholds, strict=False):
                # no node of Lanczos lies so near to zero: the share is not known
                shares = [100 * found["spectrum"]["near_zero"][threshold] or math.nan for found in points]
                left.plot(losses, shares, "o-", color=colour, label=f"|λ| < {float(threshold):g}")
                exact = [(found["loss"], 100 * found["spectrum"]["near_zero"][threshold]) for found in whole]
                left.plot(*zip(*exact, strict=True), "D", color=colour, markersize=7, fillstyle="none")
            for side, mark in (("maximum", 1), ("minimum", -1)):
                ends = [mark * found["spectrum"][side] for found in whole]
                right.plot([found["loss"] for found in whole], ends, "D", color="0.3", fillstyle="none")
            left.plot([], [], "D", color="0.3", fillstyle="none", label="all eigenvalues, exactly")
            left.axhline(100 * known["paper"][0], color="0.3", linestyle=":", label=known["paper"][1])
            for found in points:
                share = 100 * found["spectrum"]["near_zero"]["0.01"]
                left.annotate(f"{found['updates']:,}", (found["loss"], share), fontsize="x-small",
                              xytext=(0, 5), textcoords="offset points", ha="center")  # fmt: skip
            left.set(title=f"{network}: share near zero, by Lanczos", ylabel="% of eigenvalues")
            right.plot(losses, [found["spectrum"]["maximum"] for found in points], "o-", label="largest")
            right.plot(losses, [-found["spectrum"]["minimum"] for found in points], "s-", label="−smallest")
            right.set(title=f"{network}: extremes", ylabel="eigenvalue", yscale="log")
            for axes in (left, right):
                axes.set(xlabel="training loss (updates beside the points)", xscale="log")
                axes.invert_xaxis()
                axes.legend(fontsize="x-small", frameon=False)
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out, dpi=160)
    print(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), default=list(NETWORKS))
    parser.add_argument(
        "--at-most", type=float, default=math.inf, help="leave out points beyond this many updates"
    )
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "spectra-along")
    parser.add_argument("--results", type=Path, default=ROOT / "results" / "spectra-along")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images" / "spectra-along-training.png")
    parser.add_argument("--draw", action="store_true", help="only draw what is there")
    arguments = parser.parse_args()
    if not arguments.draw:
        for network in arguments.networks:
            for updates in NETWORKS[network]["updates"]:
                if updates <= arguments.at_most:
                    point(network, updates, arguments.runs, arguments.results)
    draw(arguments.results, arguments.out)


if __name__ == "__main__":
    main()
