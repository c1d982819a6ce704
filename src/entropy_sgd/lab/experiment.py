"""A user's own experiment: a Python file that gives a model, data, a loss and perhaps a metric.

The file defines `experiment`, a function that returns an `Experiment`, or a class whose instances have the
same attributes. An error raised inside the file is shown with its traceback, an unusable return value in a
sentence. Importing this module does not import torch.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from entropy_sgd.lab import LabError
from entropy_sgd.lab.methods import Hints, get
from entropy_sgd.lab.nearby import hint
from entropy_sgd.lab.recipes import Drops, Family, Recipe, Source

RESERVED = ("loss", "validation_loss", "training_loss", "step", "epoch", "lr", "seconds", "gamma", "angle")
"""Names of other measurements, which a metric cannot have."""


DECIDED_IN_FILE = (
    *("network", "data", "dropout", "batch_norm", "width", "vocabulary", "unroll", "sum_over_time"),
    *("data_fraction", "label_noise", "data_seed"),
)
"""Fields of a recipe that are the file's to decide: as options they are refused."""


@dataclass(frozen=True)
class Experiment:
    """A network with data, loss and metric.

    Args:
        model: a function or class that makes the network, called with torch seeded by the run's seed.
        train: a `torch.utils.data.Dataset` of (input, target), or a pair of tensors (inputs, targets).
        validation: data of the same kind, on which runs are judged.
        loss: `loss(outputs, targets)`, the mean over a batch.
        metric: `metric(outputs, targets)`, a mean over a batch too; its name is the function's, and one
            called `error` is shown in per cent. None: the loss itself.
        test: data read once, at the end of a run with `--final`.
        batch_size: samples of a batch.
        epochs: budget in effective epochs.

    """

    model: Callable[[], Any]
    train: Any
    validation: Any
    loss: Callable[[Any, Any], Any]
    metric: Callable[[Any, Any], Any] | None = None
    test: Any = None
    batch_size: int = 128
    epochs: float = 10.0


class UserFileError(LabError):
    """Something failed inside the user's file; the message has its traceback."""


@contextmanager
def users_code(path: str) -> Generator[None]:
    """Inside, the user's code runs: whatever it raises becomes a message with the traceback from there on."""
    try:
        yield
    except LabError:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        ours = str(Path(__file__).parent)
        within = [i for i, frame in enumerate(frames) if frame.filename == path]
        outside = [i for i, frame in enumerate(frames) if not frame.filename.startswith(ours)]
        first = (within or outside or [0])[0]
        trace = "".join(traceback.format_list(frames[first:]))
        what = "".join(traceback.format_exception_only(error))
        raise UserFileError(f"{path} fails:\nTraceback (most recent call last):\n{trace}{what}") from error


def is_file(name: str) -> bool:
    """Whether `name` is a Python file, with or without `:FUNCTION`, and not one of the paper's networks."""
    return name.partition(":")[0].endswith(".py")


def source(file: str | Path | Callable[[], Any]) -> Source:
    """The file `FILE.py`, or one function or class in it as `FILE.py:NAME`, or the file of a function."""
    if callable(file):
        try:
            path, name = inspect.getfile(file), file.__name__
        except (TypeError, OSError, AttributeError) as error:
            raise LabError(f"experiment must be a function or class in a file, got {file!r}") from error
    else:
        path, _, name = str(file).partition(":")
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        meant = hint(Path(path)) if isinstance(error, FileNotFoundError) else ""
        raise LabError(f"the experiment {path} cannot be read: {error.strerror or error}{meant}") from error
    return Source(str(Path(path).resolve()), name or "experiment", hashlib.sha256(content).hexdigest())


_loaded: dict[Source, tuple[Callable[[], Any], Experiment]] = {}


def load(found: Source, copy: Path | None = None) -> tuple[Callable[[], Any], Experiment]:
    """What makes the experiment, and what it has made with torch seeded by 0: once in a process.

    `copy` is read if the file itself is missing or changed.
    """
    if found not in _loaded:
        module = _execute(found, copy)
        make = getattr(module, found.name, None)
        if make is None and found.name == "experiment":
            make = vars(module).get("Experiment")
            make = None if make is Experiment else make
        if not callable(make):
            raise LabError(
                f"{found.path} must define {found.name}, a function that returns an Experiment, or a class "
                "like it: see docs/experiments.md"
            )
        _remember(found, make)
    return _loaded[found]


def _remember(found: Source, make: Callable[[], Any]) -> None:
    import torch

    torch.manual_seed(0)
    _loaded[found] = make, _checked(found, _made(found, make))


def again(found: Source, make: Callable[[], Any], seed: int) -> Any:
    """A model for this seed: by its function, or by the whole experiment where it is no function."""
    import torch

    model = load(found)[1].model
    torch.manual_seed(seed)
    with users_code(found.path):
        if isinstance(model, torch.nn.Module):
            model = _made(found, make).model
        else:
            model = model()
    if not isinstance(model, torch.nn.Module):
        raise LabError(f"{found.path}: model must make a torch.nn.Module, got {type(model).__name__}")
    return model


def family(file: str | Path | Callable[[], Any]) -> Family:
    """The user's experiment with a recipe for every method."""
    found = source(file)
    if callable(file):  # it is there already: its file is not executed a second time
        _remember(found, file)
    chosen = load(found)[1]
    path = Path(found.path)
    name = path.stem if found.name == "experiment" else f"{path.stem}-{found.name}"
    sgd = get("sgd").defaults(Hints())
    base = Recipe(
        name=f"{name}/sgd",
        paper="not in the paper",
        chosen=f"model, data, loss and metric from {path.name}; the defaults of sgd, untuned, with a fifth "
        "of the rate after one half and after three quarters of the run",
        network=path.name,
        data=path.name,
        optimizer=sgd,
        epochs=chosen.epochs,
        batch_size=chosen.batch_size,
        metric=metric_name(chosen),
        drops=Drops(1 / 5, (chosen.epochs / 2, chosen.epochs * 3 / 4)),
        evaluate_every=min(1.0, chosen.epochs),
        source=found,
    )
    return Family(name, base, Hints(), (base,), ("sgd", "adam", "entropy-sgd"))


def metric_name(chosen: Experiment) -> str:
    """The name of the metric: that of its function."""
    return "loss" if chosen.metric is None else getattr(chosen.metric, "__name__", "metric").strip("_<>")


def _execute(found: Source, copy: Path | None) -> ModuleType:
    path = Path(found.path)
    candidates = [path] if copy is None else [path, copy]
    contents = [entry.read_bytes() for entry in candidates if entry.is_file()]
    content = next((c for c in contents if hashlib.sha256(c).hexdigest() == found.sha256), None)
    if content is None:
        raise LabError(f"{path} is missing or was changed since the run was made with it")
    module = ModuleType(f"{path.stem}_{found.sha256[:12]}")  # two files may have the same name
    module.__file__ = str(path)
    folder = str(path.parent)
    if folder not in sys.path:  # as for a script: modules beside it can be imported
        sys.path.insert(0, folder)
    sys.modules[module.__name__] = module
    with users_code(found.path):
        exec(compile(content, found.path, "exec"), vars(module))
    return module


def _made(found: Source, make: Callable[[], Any]) -> Any:
    with users_code(found.path):
        return make()


def _checked(found: Source, made: Any) -> Experiment:
    """What the file returns, checked."""
    from entropy_sgd import arguments

    known = {field: getattr(made, field, None) for field in Experiment.__dataclass_fields__}
    for needed in ("model", "train", "validation", "loss"):
        if known[needed] is None:
            raise LabError(
                f"{found.path}: {found.name} must return {needed}, got {type(made).__name__} without it"
            )
    for function in ("model", "loss", "metric"):
        if known[function] is not None and not callable(known[function]):
            raise LabError(f"{found.path}: {function} must be a function, got {known[function]!r}")
    defaults = {"batch_size": Experiment.batch_size, "epochs": Experiment.epochs}
    chosen = Experiment(**{k: defaults.get(k) if v is None else v for k, v in known.items()})  # pyright: ignore[reportArgumentType]
    try:
        arguments.integer("batch_size", chosen.batch_size, 1)
        arguments.positive("epochs", chosen.epochs)
    except (TypeError, ValueError) as error:
        raise LabError(f"{found.path}: {error}") from error
    if metric_name(chosen) in RESERVED and chosen.metric is not None:
        raise LabError(f"{found.path}: metric must have another name than {', '.join(RESERVED)}")
    return replace(chosen, epochs=float(chosen.epochs))
