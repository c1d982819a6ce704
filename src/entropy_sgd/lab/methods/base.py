"""What a method is: everything the laboratory asks of one.

No torch here: the command line reads options and defaults to print help. A method imports what it needs when
it builds its optimizer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from entropy_sgd import extras
from entropy_sgd.lab import LabError

if TYPE_CHECKING:
    from torch import Tensor, nn

    Closure = Callable[[], Tensor]


@dataclass(frozen=True)
class Options:
    """The options of a method. Each has a learning rate `lr`, which the recipe's drops multiply."""


@dataclass(frozen=True)
class Hints:
    """What is known of a network before a method is tuned on it, from which its options start."""

    lr: float = 0.1
    """A rate at which SGD with `momentum` trains well."""
    momentum: float = 0.9
    """Momentum of SGD."""
    adam_lr: float = 1e-3
    """A rate at which Adam trains well."""
    weight_decay: float = 0.0
    """L2 penalty of SGD."""
    L: int = 20
    """Langevin steps a cycle."""
    outer_momentum: float = 0.5
    """Momentum of the outer loop of `local-entropy`."""


@dataclass(frozen=True)
class Range:
    """Numbers to search: from `low` to `high`, both included, evenly in the logarithm if `log`."""

    low: float
    high: float
    log: bool = False
    integer: bool = False


@dataclass(frozen=True)
class Choice:
    """Values to choose from."""

    values: tuple[str | float | bool, ...]


Search = Range | Choice | tuple[Range | Choice, ...]
"""How one option is searched; several make a tuple, such as Adam's betas."""

RATES = Range(1e-3, 1.0, log=True)
ADAM_RATES = Range(1e-4, 3e-2, log=True)
MOMENTA = Range(0.0, 0.99)
BETAS = (Range(0.0, 0.99), Range(0.9, 0.9999))
DECAYS = Range(1e-6, 1e-2, log=True)

O = TypeVar("O", bound=Options)


class Method(ABC, Generic[O]):
    """One way to train; `METHOD` of each module of this package is one.

    `build` makes the optimizer: `torch.optim.Optimizer`, or whatever has its `param_groups`, `step`,
    `state_dict` and `load_state_dict`. All that the method remembers is in there, so checkpoints hold it. The
    other hooks take that optimizer back.
    """

    name: str
    """As typed after `--method`."""
    options: type[O]
    search: Mapping[str, Search]
    """What `tune` may change, and within which bounds; momenta and betas are always among it."""
    rate = "lr"
    """The option whose range of working values `tune` measures."""
    drops = True
    """Whether the learning-rate drops of a network's recipe are meant for this method too."""
    for_text = True
    """Whether recurrent networks have a recipe with it."""
    origin = ""
    """Which of the defaults were published, and which were chosen here; empty: see its file."""
    keeps_moments = False
    """Whether the optimizer keeps Adam's moments of the plain gradient, from which `fisher` can read."""

    @abstractmethod
    def defaults(self, hints: Hints) -> O:
        """The options to start from, on a network of which `hints` are known."""

    def searched(self, options: O, chosen: Mapping[str, Any]) -> O:
        """The options with what `tune` has chosen from `search`."""
        return replace(options, **chosen)

    @abstractmethod
    def build(self, options: O, model: nn.Module, *, seed: int, steps: int) -> Any:
        """The optimizer of a run of `steps` steps on `model`; `seed` decides its noise, if it has any."""

    def evaluations(self, options: O) -> int:
        """Gradient evaluations of one step, which is what budgets count."""
        return 1

    def replicas(self, options: O) -> int:
        """Processes that train together, each with weights and data of its own; 1 for most methods."""
        return 1

    def with_replicas(self, options: O, replicas: int) -> O:
        """The options for this many replicas."""
        raise LabError(f"method {self.name!r} has no replicas")

    def stretched(self, options: O, ratio: float) -> O:
        """The options for a run `ratio` times as long, so that schedules end where they would have ended."""
        return options

    def notes(self, options: O, steps: int) -> list[str]:
        """What the user should know before a run of `steps` steps."""
        return []

    def step(self, optimizer: Any, closure: Closure) -> Tensor:
        """One step; each call of `closure` gives the loss of this step's mini-batch and its gradient."""
        loss = closure()
        optimizer.step()
        return loss

    def finish(self, optimizer: Any) -> None:
        """After the last step of a run, in all processes, before the weights are judged."""

    def judged(self, optimizer: Any) -> AbstractContextManager[None]:
        """Inside, the model holds the weights to judge; afterwards, to the bit, those it held before."""
        return nullcontext()

    def diagnostics(self, optimizer: Any) -> dict[str, float | None]:
        """Figures for metrics.jsonl; None before there is a value."""
        return {}


def arguments(options: Options) -> dict[str, Any]:
    """The options by name, for an optimizer that has the same names."""
    return asdict(options)


def peer(module: str, name: str, method: str) -> Any:
    """`name` of a library that comes with the extra `peers`."""
    try:
        return getattr(import_module(module), name)
    except ImportError as error:
        raise LabError(
            f"method {method!r} needs the package {module.partition('.')[0]}: {extras.hint('lab,peers')}"
        ) from error
