"""`entropy-sgd spectrum`, `local-entropy`, `flatness`, `figures` and `landscape`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from entropy_sgd.lab import LabError
from entropy_sgd.lab.cli.parse import parse, some
from entropy_sgd.lab.slices.how import Slice
from entropy_sgd.lab.spectra.how import LocalEntropy, Spectrum


@dataclass(frozen=True)
class Spectra:
    """Measure the spectrum of the Hessian, or the Fisher diagonal, at the outer weights of finished runs.

    Each run gives one JSON file. A file that holds the same measurement already is kept as it is, so a
    command that was stopped can be repeated.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, some("RUN")]
    """Folders of finished runs, or of comparisons."""
    how: Annotated[Spectrum, tyro.conf.arg(name="")]
    out: Path = Path("runs/spectra")
    """Folder for the files; for a single run also a file's name, ending in .json."""
    checkpoint: Path | None = None
    """File that keeps the finished rows of an exact Hessian, to resume from; about half the matrix's size."""
    overwrite: bool = False
    """Measure again what has been measured already."""
    data_dir: Path | None = None
    """Folder of the data; by default $ENTROPY_SGD_DATA, else the cache folder."""


@dataclass(frozen=True)
class LocalEntropies:
    """Measure local entropy F(x, γ) at the outer weights of finished runs.

    Each run gives one JSON file. A file that holds the same measurement already is kept as it is.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, some("RUN")]
    """Folders of finished runs, or of comparisons."""
    how: Annotated[LocalEntropy, tyro.conf.arg(name="")] = field(default_factory=LocalEntropy)
    out: Path = Path("runs/local-entropy")
    """Folder for the files; for a single run also a file's name, ending in .json."""
    overwrite: bool = False
    """Measure again what has been measured already."""
    data_dir: Path | None = None
    """Folder of the data; by default $ENTROPY_SGD_DATA, else the cache folder."""


@dataclass(frozen=True)
class Flatness:
    """Compare spectra and local entropies by recipe: mean and standard deviation over seeds.

    The table gives the paired difference of the other recipes to the baseline over the seeds.
    """

    files: Annotated[tuple[Path, ...], tyro.conf.Positional, some("FILE")]
    """JSON files of spectrum and local-entropy, or folders of them."""
    baseline: str | None = None
    """The recipe, NETWORK/METHOD, that the others are compared with; the first one if not given."""
    out: Path = Path("runs/flatness.json")
    """File for the table."""


@dataclass(frozen=True)
class Figures:
    """Draw the paper's Fig. 1 and Fig. 3 from the files of spectrum, as PNG and PDF."""

    folder: Annotated[Path, tyro.conf.Positional] = Path("runs/spectra")
    """Folder of JSON files that spectrum wrote."""
    out: Path = Path("runs/figures")
    """Folder for the figures."""


@dataclass(frozen=True)
class Landscape:
    """Draw the loss around the weights of finished runs: on a line between two, or on planes around each.

    Each slice gives one JSON file, and all of them pictures as PNG and PDF, in ./landscape unless --out says
    otherwise; `entropy-sgd report RUN… --measured FOLDER` shows them on its page. A file that holds the same
    slice already is kept as it is, so a command that was stopped can be repeated.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, some("RUN")]
    """Folders of finished runs, or of comparisons."""
    how: Annotated[Slice, tyro.conf.arg(name="")] = field(default_factory=Slice)
    out: Path = Path("landscape")
    """Folder for files and pictures."""
    overwrite: bool = False
    """Replace slices that exist already."""
    data_dir: Path | None = None
    """Folder of the data; by default $ENTROPY_SGD_DATA, else the cache folder."""


def spectrum(arguments: list[str]) -> object:
    """Run `entropy-sgd spectrum` with these arguments; the measurements."""
    options = parse(Spectra, arguments, "spectrum")
    return _measure("spectrum", options, arguments, options.checkpoint)


def local_entropy(arguments: list[str]) -> object:
    """Run `entropy-sgd local-entropy` with these arguments; the measurements."""
    return _measure("local-entropy", parse(LocalEntropies, arguments, "local-entropy"), arguments)


def flatness(arguments: list[str]) -> object:
    """Run `entropy-sgd flatness` with these arguments; what its file holds."""
    options = parse(Flatness, arguments, "flatness")
    if not options.files:
        raise LabError("name at least one file or folder: entropy-sgd flatness FILE…")

    from entropy_sgd.lab.runs.records import read_json
    from entropy_sgd.lab.spectra.flatness import compare

    compare(list(options.files), options.out, options.baseline)
    print(options.out)
    return {"file": options.out, **read_json(options.out)}


def figures(arguments: list[str]) -> object:
    """Run `entropy-sgd figures` with these arguments; what it wrote."""
    options = parse(Figures, arguments, "figures")

    from entropy_sgd.lab.spectra.figures import write

    lines = list(write(options.folder, options.out))
    for line in lines:
        print(line)
    return {"files": lines}


def landscape(arguments: list[str]) -> object:
    """Run `entropy-sgd landscape` with these arguments; the slices."""
    options = parse(Landscape, arguments, "landscape")
    if not options.runs:
        raise LabError("name at least one folder of a run: entropy-sgd landscape RUN…")

    from entropy_sgd.lab.runs.reading import collect
    from entropy_sgd.lab.slices.write import write

    slices = write(
        collect(options.runs),
        options.how,
        options.out,
        command=["landscape", *arguments],
        overwrite=options.overwrite,
        data_dir=options.data_dir,
        said=print,
    )
    return {"folder": options.out, "slices": slices}


def _measure(
    name: str, options: Spectra | LocalEntropies, arguments: list[str], rows: Path | None = None
) -> object:
    """Measure the runs and show a table of what each file holds."""
    if not options.runs:
        raise LabError(f"name at least one folder of a run: entropy-sgd {name} RUN…")

    from rich.console import Console

    from entropy_sgd.lab.runs.reading import collect
    from entropy_sgd.lab.spectra.measure import measure
    from entropy_sgd.lab.spectra.show import show

    console = Console()
    files: list[Path] = []

    def said(path: Path, record: dict[str, Any]) -> None:
        files.append(path)
        show(console, path, record)

    records = measure(
        collect(options.runs),
        options.how,
        options.out,
        command=[name, *arguments],
        overwrite=options.overwrite,
        rows=rows,
        data_dir=options.data_dir,
        said=said,
    )
    return {"measurements": [{"file": path, **each} for path, each in zip(files, records, strict=True)]}
