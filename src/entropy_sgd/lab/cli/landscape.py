"""`entropy-sgd spectrum`, `local-entropy`, `flatness` and `figures`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from entropy_sgd.lab import LabError
from entropy_sgd.lab.cli.parse import parse, some


@dataclass(frozen=True)
class Spectrum:
    """Measure the spectrum of the Hessian, or the Fisher diagonal, at the outer weights of finished runs.

    Each run gives one JSON file. A file that holds the same measurement already is kept as it is, so a
    command that was stopped can be given again.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, some("RUN")]
    """Folders of finished runs, or of comparisons."""
    method: Literal["exact", "lanczos", "fisher"]
    """exact: all eigenvalues, from the whole matrix; lanczos: their density, for networks of any size;
    fisher: the Fisher diagonal, from Adam's moments as the paper does, or with --samples from gradients."""
    samples: int | None = None
    """Training samples (images, or stretches of text), evenly spaced, for the loss: 2048 if not given."""
    batch: int = 256
    """Samples taken at once: it changes speed and memory, not the result."""
    dtype: Literal["float64", "float32"] = "float64"
    """float32 halves the memory and blurs eigenvalues below about 1e-5 of the largest."""
    probes: int = 8
    """Random starting vectors of lanczos."""
    steps: int = 100
    """Steps of lanczos."""
    out: Path = Path("results/spectra")
    """Folder for the files; for a single run also a file's name, ending in .json."""
    checkpoint: Path | None = None
    """File for finished rows of an exact Hessian, about half the matrix's size, to go on from if stopped."""
    overwrite: bool = False
    """Measure again what there is a file of."""
    data_dir: Path | None = None
    """Where the data lie; by default $ENTROPY_SGD_DATA, else the cache folder."""


@dataclass(frozen=True)
class LocalEntropy:
    """Measure local entropy F(x, γ) at the outer weights of finished runs.

    Each run gives one JSON file. A file that holds the same measurement already is kept as it is.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, some("RUN")]
    """Folders of finished runs, or of comparisons."""
    gamma: tuple[float, ...] = (0.1, 1.0, 10.0)
    """Scopes γ: smaller ones look further."""
    method: Literal["laplace", "langevin"] = "laplace"
    """laplace: from gradient and spectrum; langevin: sampled, for small networks or a large γ."""
    samples: int | None = None
    """Training samples (images, or stretches of text), evenly spaced, for the loss: 2048 if not given."""
    batch: int = 256
    """Samples taken at once: it changes speed and memory, not the result."""
    dtype: Literal["float64", "float32"] = "float64"
    """The type everything is computed in."""
    probes: int = 16
    """Random vectors of laplace."""
    steps: int | None = None
    """Steps of laplace's Lanczos (100 if not given) or of each langevin chain (1,000 if not given)."""
    chains: int = 2
    """Chains of langevin at each of 15 temperatures."""
    out: Path = Path("results/local-entropy")
    """Folder for the files; for a single run also a file's name, ending in .json."""
    overwrite: bool = False
    """Measure again what there is a file of."""
    data_dir: Path | None = None
    """Where the data lie; by default $ENTROPY_SGD_DATA, else the cache folder."""


@dataclass(frozen=True)
class Flatness:
    """Compare spectra and local entropies by recipe: mean and standard deviation over seeds.

    The table gives the paired difference of the other recipes to the baseline over the seeds.
    """

    files: Annotated[tuple[Path, ...], tyro.conf.Positional, some("FILE")]
    """JSON files of spectrum and local-entropy, or folders of them."""
    baseline: str | None = None
    """The recipe, NETWORK/OPTIMIZER, that the others are compared with; the first one if not given."""
    out: Path = Path("results/flatness.json")
    """File for the table."""


@dataclass(frozen=True)
class Figures:
    """Draw the paper's Fig. 1 and Fig. 3 from the files of spectrum, as PNG and PDF."""

    folder: Annotated[Path, tyro.conf.Positional] = Path("results/spectra")
    """Folder of JSON files that spectrum wrote."""
    out: Path = Path("docs/images")
    """Folder for the figures."""


def spectrum(arguments: list[str]) -> None:
    """Run `entropy-sgd spectrum` with these arguments."""
    options = parse(Spectrum, arguments, "spectrum")

    from entropy_sgd.lab.spectra import measure

    how = measure.Spectrum(
        options.method, options.samples, options.batch, options.dtype, options.probes, options.steps
    )
    _measure("spectrum", options, how, arguments, options.checkpoint)


def local_entropy(arguments: list[str]) -> None:
    """Run `entropy-sgd local-entropy` with these arguments."""
    options = parse(LocalEntropy, arguments, "local-entropy")

    from entropy_sgd.lab.spectra import measure

    how = measure.LocalEntropy(
        options.gamma,
        options.method,
        options.samples,
        options.batch,
        options.dtype,
        options.probes,
        options.steps,
        options.chains,
    )
    _measure("local-entropy", options, how, arguments)


def flatness(arguments: list[str]) -> None:
    """Run `entropy-sgd flatness` with these arguments."""
    options = parse(Flatness, arguments, "flatness")
    if not options.files:
        raise LabError("name at least one file or folder: entropy-sgd flatness FILE…")

    from entropy_sgd.lab.spectra.flatness import compare

    compare(list(options.files), options.out, options.baseline)
    print(options.out)


def figures(arguments: list[str]) -> None:
    """Run `entropy-sgd figures` with these arguments."""
    options = parse(Figures, arguments, "figures")

    from entropy_sgd.lab.spectra.figures import write

    for line in write(options.folder, options.out):
        print(line)


def _measure(
    name: str, options: Spectrum | LocalEntropy, how: Any, arguments: list[str], rows: Path | None = None
) -> None:
    """Measure the runs and show a table of what each file holds."""
    if not options.runs:
        raise LabError(f"name at least one folder of a run: entropy-sgd {name} RUN…")

    from rich.console import Console

    from entropy_sgd.lab.report.runs import collect
    from entropy_sgd.lab.spectra.measure import measure
    from entropy_sgd.lab.spectra.show import show

    console = Console()
    measure(
        collect(options.runs),
        how,
        options.out,
        command=[name, *arguments],
        overwrite=options.overwrite,
        rows=rows,
        data_dir=options.data_dir,
        said=lambda path, record: show(console, path, record),
    )
