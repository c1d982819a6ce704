"""`entropy-sgd data list | fetch | verify`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from entropy_sgd.lab import LabError, unknown
from entropy_sgd.lab import data as datasets
from entropy_sgd.lab.cli.parse import parse, several, some

DIGITS: dict[str, object] = {
    "name": "digits",
    "description": "5,000 digits of MNIST, 28 x 28",
    "missing": [],
}


@dataclass(frozen=True)
class List:
    """Show which data are present."""

    data_dir: Path | None = None
    """Folder of the data; by default $ENTROPY_SGD_DATA, else the cache folder."""


@dataclass(frozen=True)
class Fetch:
    """Download data and check their SHA-256; nothing is overwritten."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional, some("NAME")]
    """Names from `entropy-sgd data list`."""
    data_dir: Path | None = None
    """Where to put the data; by default $ENTROPY_SGD_DATA, else the cache folder."""


@dataclass(frozen=True)
class Verify:
    """Check the files against the published SHA-256."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional, several("[NAME …]")] = ()
    """Names from `entropy-sgd data list`; by default all that are present."""
    data_dir: Path | None = None
    """Folder of the data; by default $ENTROPY_SGD_DATA, else the cache folder."""


def _list(arguments: list[str]) -> object:
    options = parse(List, arguments, "data list")
    print(f"data folder: {datasets.data_root(options.data_dir)}")
    entries = [
        (
            found.dataset.name,
            f"{len(found.missing)} of {len(found.dataset.files)} files missing"
            if found.missing
            else "present",
            found.dataset.description,
        )
        for found in datasets.status(options.data_dir)
    ]
    for name, state, description in (
        *entries,
        ("digits", "comes with the program", "5,000 digits of MNIST, 28 x 28"),
    ):
        print(f"  {name:<10} {state}\n  {'':<10} {description}")
    print("your own: idx:FOLDER for images in MNIST's format, text:FILE for any text")
    known = [
        {
            "name": found.dataset.name,
            "description": found.dataset.description,
            "missing": [str(path) for path in found.missing],
        }
        for found in datasets.status(options.data_dir)
    ]
    return {"folder": datasets.data_root(options.data_dir), "datasets": [*known, DIGITS]}


def _fetch(arguments: list[str]) -> object:
    options = parse(Fetch, arguments, "data fetch")
    if not options.names:
        raise LabError(f"name the data to fetch: {', '.join(datasets.names())}")
    files: list[Path] = []
    for name in options.names:
        for path in datasets.fetch(name, options.data_dir):
            print(path)
            files.append(path)
    if not files:
        print(f"nothing is missing in {datasets.data_root(options.data_dir)}")
    return {"files": files}


def _verify(arguments: list[str]) -> object:
    options = parse(Verify, arguments, "data verify")
    names = options.names or tuple(s.dataset.name for s in datasets.status(options.data_dir) if s.present)
    if not names:
        raise LabError(f"no data in {datasets.data_root(options.data_dir)}: see entropy-sgd data list")
    bad, found = 0, list[object]()
    for file in (file for name in names for file in datasets.verify(name, options.data_dir)):
        print(f"{file.state:<8} {file.path}")
        found.append({"file": file.path, "state": file.state, "sha256": file.sha256})
        if file.state == "damaged":
            print(f"         SHA-256 found {file.sha256}, expected {file.file.sha256}")
        bad += file.state != "ok"
    if bad:
        raise LabError(f"{bad} files are missing or damaged")
    return {"files": found}


ACTIONS: dict[str, tuple[Callable[[list[str]], object], type]] = {
    "list": (_list, List),
    "fetch": (_fetch, Fetch),
    "verify": (_verify, Verify),
}


def data(arguments: list[str]) -> object:
    """Run `entropy-sgd data` with these arguments; what was found."""
    usage = "\n".join(
        [
            "usage: entropy-sgd data ACTION [OPTIONS]",
            *(f"  {name:<7} {kind.__doc__}" for name, (_, kind) in ACTIONS.items()),
        ]
    )
    if arguments and arguments[0] in ("-h", "--help"):
        print(usage)
    elif not arguments:
        raise LabError(f"the action is missing. {usage}")
    elif arguments[0] not in ACTIONS:
        raise unknown("data action", arguments[0], ACTIONS)
    else:
        return ACTIONS[arguments[0]][0](arguments[1:])
    return None
