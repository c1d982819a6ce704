"""Measuring finished runs: each measurement is one JSON file that says what was measured, how and where."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

from entropy_sgd.lab import LabError, methods
from entropy_sgd.lab.runs import checkpoint, environment
from entropy_sgd.lab.runs.reading import Run, read_recipe, require_finished
from entropy_sgd.lab.runs.records import Record, read_json, write_json
from entropy_sgd.lab.spectra import condense, measurements
from entropy_sgd.lab.spectra.how import LocalEntropy, Measurement, Spectrum
from entropy_sgd.lab.spectra.trained import Trained, load, users_code_of
from entropy_sgd.landscape import (
    fisher_diagonal,
    hessian_eigenvalues,
    laplace_expansion,
    network_local_entropy,
    spectral_density,
)

SAMPLES = 2048
"""Training samples that the loss is taken over, if not said otherwise."""


def spectrum(how: Spectrum, trained: Trained, rows: Path | None) -> Record:
    """The spectrum at the weights of the run."""
    measured = trained.model, trained.loss_fn, trained.batches
    dtype = getattr(torch, how.dtype)
    match how.label:
        case "exact":
            what, values = "Hessian", hessian_eigenvalues(*measured, dtype=dtype, checkpoint=rows)
        case "lanczos":
            found = spectral_density(*measured, probes=how.probes, steps=how.steps, dtype=dtype)
            return {"of": "Hessian", "spectrum": condense.density(found)}
        case "fisher":
            what, values = "Fisher diagonal from Adam's moments", _fisher_from_moments(trained)
        case _:
            if not all(isinstance(part, torch.Tensor) for pair in trained.batches for part in pair):
                raise LabError(
                    f"{trained.run.path}: --method fisher --samples needs inputs and targets that are tensors"
                )
            what, values = "Fisher diagonal from samples", fisher_diagonal(*measured, dtype=dtype)
    return {"of": what, "spectrum": condense.eigenvalues(values)}


def local_entropies(how: LocalEntropy, trained: Trained) -> Record:
    """F(x, gamma) for each gamma; Laplace's integral does not exist for those that are too small.

    Its products give extremes and trace of the spectrum too.
    """
    measured = trained.model, trained.loss_fn, trained.batches
    dtype = getattr(torch, how.dtype)
    found: Record = {"of": "local entropy"}
    if how.method == "laplace":
        expansion = laplace_expansion(*measured, probes=how.probes, steps=how.steps, dtype=dtype)
        at = expansion.local_entropy
        found["spectrum"] = condense.shares(expansion.density)
    else:
        at = partial(
            network_local_entropy,
            *measured,
            method="langevin",
            steps=how.steps,
            chains=how.chains,
            dtype=dtype,
        )
    entries: list[Record] = []
    for gamma in how.gamma:
        try:
            entries.append({"gamma": gamma, **asdict(at(gamma))})
        except ValueError as error:
            entries.append({"gamma": gamma, "reason": str(error)})
    if not any("value" in entry for entry in entries):
        raise LabError("; ".join(dict.fromkeys(entry["reason"] for entry in entries)))
    return {**found, "local_entropy": entries}


def check(how: Measurement, run: Run) -> None:
    """Refuse a run that this measurement does not fit."""
    if how.label == "fisher" and not methods.of(read_recipe(run).optimizer).keeps_moments:
        raise LabError(
            f"--method fisher reads the moments of the gradient that Adam keeps, and {run.path} was "
            f"trained by {run.recipe}: give --samples to take the gradients of that many samples instead"
        )


def destinations(runs: list[Run], how: Measurement, out: Path) -> list[Path]:
    """The file for each run: `out` itself for a single run, if it ends in .json; otherwise a file in it."""
    if out.suffix == ".json":
        if len(runs) > 1:
            raise LabError(f"--out must be a folder for {len(runs)} runs, got the file {out}")
        return [out]
    paths = [
        out / f"{run.recipe.replace('/', '-')}-seed{run.settings['seed']}-{how.label}.json" for run in runs
    ]
    for path in paths:
        if paths.count(path) > 1:
            raise LabError(f"two of the runs would be written to {path}: measure them with different --out")
    return paths


def measure(
    runs: list[Run],
    how: Measurement,
    out: Path,
    *,
    command: list[str],
    overwrite: bool = False,
    rows: Path | None = None,
    data_dir: Path | None = None,
    said: Callable[[Path, Record], None] = lambda path, record: None,
) -> list[Record]:
    """Measure each run into its file and return the records; a file that holds this very measurement is kept.

    Everything that can be refused is refused before the first measurement begins. `rows` is where an exact
    Hessian keeps its finished rows, to go on from after an interruption.
    """
    if rows is not None and (len(runs) > 1 or how.label != "exact"):
        raise LabError("--checkpoint is for the exact spectrum of a single run")
    paths = destinations(runs, how, out)
    kept: list[Record | None] = []
    for run, path in zip(runs, paths, strict=True):
        require_finished(run)
        check(how, run)
        kept.append(None if overwrite or not path.exists() else _kept(path, run, how))
    records: list[Record] = []
    for run, path, before in zip(runs, paths, kept, strict=True):
        record = before
        if record is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            record = _measure(run, how, command, rows, data_dir)
            write_json(path, record)
        said(path, record)
        records.append(record)
    return records


def _measure(
    run: Run, how: Measurement, command: list[str], rows: Path | None, data_dir: Path | None
) -> Record:
    samples = SAMPLES if how.samples is None else how.samples
    dtype = getattr(torch, how.dtype)
    trained = load(run, samples=samples, batch=how.batch, dtype=dtype, data_dir=data_dir)
    with users_code_of(trained.recipe):
        loss, gradient_norm = trained.loss_and_gradient_norm()
        began = time.monotonic()
        try:
            if isinstance(how, Spectrum):
                found = spectrum(how, trained, rows)
            else:
                found = local_entropies(how, trained)
        except MemoryError as error:
            raise LabError(f"{error} (--dtype float32, --method lanczos)") from error
        except (ValueError, ImportError, OSError) as error:  # of one of its arguments, such as --checkpoint
            raise LabError(str(error)) from error
    return {
        "recipe": run.recipe,
        "seed": run.settings["seed"],
        "network": trained.recipe.network,
        "data": trained.recipe.data,
        "method": how.label,
        "command": shlex.join(["entropy-sgd", *command]),
        "options": _options(how),
        "weights_sha256": require_finished(run)["weights_sha256"],
        "parameters": sum(parameter.numel() for parameter in trained.model.parameters()),
        "samples": trained.samples,
        "samples_available": trained.available,
        "loss": loss,
        "gradient_norm": gradient_norm,
        "seconds": time.monotonic() - began,
        "peak_memory_bytes": environment.peak_memory(),
        "environment": _environment(environment.describe()),
        "run": {
            "settings": run.settings,
            "summary": run.summary,
            "command": shlex.join(["entropy-sgd", *map(str, _words(run.environment.get("command"))[1:])]),
            "environment": _environment(run.environment),
        },
        **found,
    }


def _kept(path: Path, run: Run, how: Measurement) -> Record:
    """What the file holds, if it is this very measurement."""
    record = read_json(path)
    measurements.check(path, record)
    before: Record = record["options"] | {"weights": record.get("weights_sha256")}
    now = _options(how) | {"weights": require_finished(run)["weights_sha256"]}
    different = [key for key in now | before if before.get(key) != now.get(key)]
    if different:
        changes = "\n".join(f"  {key}: {before.get(key)} there, {now.get(key)} now" for key in different)
        raise LabError(
            f"{path} holds another measurement, which --overwrite replaces and another --out leaves alone:\n"
            f"{changes}"
        )
    return record


def _options(how: Measurement) -> Record:
    """The options as JSON gives them back."""
    return json.loads(json.dumps(asdict(how)))


def _environment(described: Record) -> Record:
    """Without the command, which is kept apart: its first word is a path on one machine."""
    return {key: value for key, value in described.items() if key != "command"}


def _words(command: object) -> list[Any]:
    return cast("list[Any]", command) if isinstance(command, list) else []


def _fisher_from_moments(trained: Trained) -> torch.Tensor:
    """diag(I) = E(g^2) - (E g)^2 from the optimizer's state in the run's last checkpoint (Section 5.1)."""
    state, _ = checkpoint.load(trained.run.path, trained.run.settings)
    if state is None:
        raise LabError(f"{trained.run.path} has no {checkpoint.NAME}: Adam's moments are kept there")
    seed = trained.run.settings["seed"]
    try:
        optimizer = methods.build(trained.recipe.optimizer, trained.model, seed=seed, steps=state["total"])
        optimizer.load_state_dict(state["optimizer"])
        return fisher_diagonal(optimizer)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError) as error:
        raise LabError(f"the checkpoint in {trained.run.path} is not of its network: {error}") from error
