"""Reading options with tyro, and naming an experiment and a method before the options that depend on them."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from typing import Annotated, Any, TypeVar, get_type_hints

import tyro

from entropy_sgd.lab import LabError, methods, recipes, unknown
from entropy_sgd.lab.cli.output import HELP
from entropy_sgd.lab.recipes import Family, Recipe
from entropy_sgd.lab.runs.records import flatten

Options = TypeVar("Options")


def some(name: str) -> Any:
    """For a positional tuple that must not be empty: tyro's help would show it as one that may be."""
    return tyro.conf.arg(metavar=f"{name} [{name} ...]", help_behavior_hint="(required)")


def several(metavar: str, *aliases: str) -> Any:
    """For a tuple that may be empty, such as `NAME …`: the help shows no default where that is nothing."""
    return tyro.conf.arg(
        metavar=metavar,
        aliases=aliases,
        help_behavior_hint=lambda default: f"(default: {default})" if default.strip() else "",
    )


def check_jobs(jobs: int | None) -> None:
    """Refuse a number of simultaneous runs below 1."""
    if jobs is not None and jobs < 1:
        raise LabError(f"jobs must be at least 1, got {jobs}")


def direction(maximize: bool, minimize: bool) -> bool | None:
    """Whether more of the metric is better; None if neither option says so."""
    if maximize and minimize:
        raise LabError("--maximize and --minimize cannot be used together")
    return maximize if maximize or minimize else None


_registry = tyro.constructors.ConstructorRegistry()


@_registry.primitive_rule
def _number(
    info: tyro.constructors.PrimitiveTypeInfo,
) -> tyro.constructors.PrimitiveConstructorSpec[float | None] | None:
    """A number, or a number or None: tyro's own messages about them are in terms of Python."""
    for kind, accepted in ((int, "a whole number"), (float, "a number")):
        if info.type == kind:
            return _spec(kind, accepted, optional=False)
        if info.type == kind | None:
            return _spec(kind, f"{accepted} or None", optional=True)
    return None


def _spec(
    kind: type[int] | type[float], accepted: str, *, optional: bool
) -> tyro.constructors.PrimitiveConstructorSpec[float | None]:
    def read(words: list[str]) -> float | None:
        if optional and words == ["None"]:
            return None
        try:
            return kind(words[0])
        except ValueError:
            raise ValueError(f"must be {accepted}, got {words[0]!r}") from None

    def fits(value: object) -> bool:  # a default may be a whole number where any will do
        return (optional and value is None) or isinstance(value, (int, kind))

    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar=kind.__name__.upper(),
        instance_from_str=read,
        is_instance=fits,
        str_from_instance=lambda value: [str(value)],
    )


class Asked(Exception):
    """What a command's options are, for one who asks instead of giving them."""

    def __init__(self, kind: type, default: object) -> None:
        super().__init__()
        self.kind, self.default = kind, default


_asking = ContextVar("_asking", default=False)


@contextmanager
def asking() -> Generator[None]:
    """Inside, `parse` raises `Asked` instead of reading options."""
    token = _asking.set(True)
    try:
        yield
    finally:
        _asking.reset(token)


def parse(
    kind: type[Options],
    arguments: list[str],
    command: str,
    default: Options | None = None,
    description: str | None = None,
    more: tuple[Any, ...] = (),
) -> Options:
    """The options of a command; prints help, or what is wrong and the closest names, and exits."""
    if _asking.get():
        raise Asked(kind, default)
    # A recipe's method is chosen before; what cannot be changed is not shown.
    config = (tyro.conf.AvoidSubcommands, tyro.conf.SuppressFixed, *more)
    prog = f"entropy-sgd {command}"
    description = f"{inspect.cleandoc(description or kind.__doc__ or '')}\n\n{HELP}"
    with _registry:
        if default is None:
            return tyro.cli(kind, args=arguments, prog=prog, description=description, config=config)
        return tyro.cli(
            kind, args=arguments, prog=prog, default=default, description=description, config=config
        )


@dataclass(frozen=True)
class _Overridden:
    recipe: Annotated[Recipe, tyro.conf.arg(name="")]


def override(recipe: Recipe, changes: list[str], what: str) -> Recipe:
    """The recipe of `what` with `FIELD=VALUE` changes, read as `entropy-sgd train` reads `--FIELD VALUE`.

    What is a flag there, such as `--compile`, takes True or False here; several values have commas between.
    """
    arguments: list[str] = []
    command = f"train {what} --method {recipe.method}"  # whose help has the fields
    known = flatten(asdict(recipe))
    types = get_type_hints(Recipe, include_extras=True)
    fixed = [name for name, hint in types.items() if tyro.conf.Fixed in getattr(hint, "__metadata__", ())]
    fields = [name.replace("_", "-") for name in known if name.partition(".")[0] not in fixed]
    for change in changes:
        name, _, value = change.partition("=")
        if name.replace("_", "-") not in fields:
            error = unknown("field", name, fields, f"entropy-sgd {command} --help")
            raise LabError(f"--set {change}: {error}")
        several = isinstance(known[name.replace("-", "_")], tuple)
        arguments += [f"--{name}", *(_parts(value) if several else [value])]
    values = (tyro.conf.FlagConversionOff,)
    return parse(_Overridden, arguments, command, _Overridden(recipe), more=values).recipe


def _parts(value: str) -> list[str]:
    """What stands between commas, but for those inside brackets: `betas=(0.9,0.99)` is one."""
    return [part for part in re.split(r",(?![^()\[\]]*[)\]])", value) if part]


def find(name: str) -> Family:
    """The experiment that `name` means: the user's own file, or one of the paper's networks."""
    from entropy_sgd.lab import experiment

    return experiment.family(name) if experiment.is_file(name) else recipes.family(name)


def take(name: str, arguments: list[str]) -> tuple[str | None, list[str]]:
    """The value of the option `--name` and the arguments without it."""
    rest: list[str] = []
    found: str | None = None
    waiting = False
    for argument in arguments:
        option, equals, value = argument.partition("=")
        if waiting:
            found, waiting = argument, False
        elif option == f"--{name}" and equals:
            found = value
        elif argument == f"--{name}":
            waiting = True
        else:
            rest.append(argument)
    if waiting:
        raise LabError(f"--{name} needs a value")
    return found, rest


def recipe_list() -> str:
    """Networks and methods, and which of them have a recipe of their own."""
    families = [
        f"  {family.name + '/':<17}{', '.join(recipe.method for recipe in family.written)}"
        for family in recipes.FAMILIES.values()
    ]
    return "\n".join(
        [
            "networks, and the methods that have a recipe of their own there:",
            *families,
            "your own: a file FILE.py, see docs/experiments.md",
            *textwrap.wrap(f"methods: {', '.join(methods.names())}", 78, subsequent_indent="  "),
        ]
    )
