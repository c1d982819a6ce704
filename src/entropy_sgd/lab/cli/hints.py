"""Examples at the head of a command's help, and options that belong elsewhere, answered with where."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import asdict, field, fields, make_dataclass
from typing import Annotated, get_type_hints

import tyro

from entropy_sgd.lab import LabError, methods
from entropy_sgd.lab.cli.parse import recipe_list
from entropy_sgd.lab.experiment import DECIDED_IN_FILE
from entropy_sgd.lab.recipes import Family, Recipe
from entropy_sgd.lab.recipes.recipe import IMAGES_ONLY, TEXT_ONLY
from entropy_sgd.lab.runs.records import flatten


def examples(*commands: str) -> str:
    """Commands to copy, for the head of a help."""
    return "\n".join(["examples:", *(f"  entropy-sgd {command}" for command in commands)])


def described(first: str, kind: type) -> str:
    """What a help begins with: the examples, then what the command does."""
    return f"{first}\n\n{inspect.cleandoc(kind.__doc__ or '')}"


def overview(usage: str, first: str, then: str) -> str:
    """The help of a command that needs a network first."""
    return f"{usage}\n\n{first}\n\n{recipe_list()}\n\n{then}"


def of_train(name: str) -> str:
    """Those of `train`; `name` is NETWORK/METHOD, or a file and its method."""
    return examples(
        f"train {name} --budget 5",
        f"train {name} --batch-size 64 --seed 3 --out runs/mine",
        f"train {name} --budget 5 --resume",
    )


def of_compare(name: str) -> str:
    """Those of `compare`."""
    return examples(
        f"compare {name} --methods sgd sam entropy-sgd --budget 5",
        f"compare {name} --seeds 0 1 2 3 4 --jobs 2 --out runs/mine",
        f"compare {name} --budget 5 --set batch-size=64 sgd:optimizer.lr=0.05",
    )


def of_tune(name: str) -> str:
    """Those of `tune`."""
    return examples(
        f"tune {name} --methods sgd entropy-sgd --trials 8 --budget 5",
        f"tune {name} --trials 16 --budget 5 --jobs 2 --out runs/mine",
        f"tune {name} --budget 5 --set train-limit=6000 batch-size=64",
    )


def applicable(recipe: Recipe) -> Recipe:
    """The recipe as a help shows it: without options that its kind of data, or the user's file, refuses."""
    if recipe.source is not None:
        hidden = DECIDED_IN_FILE
    else:
        hidden = TEXT_ONLY if recipe.metric == "error" else IMAGES_ONLY
    types = get_type_hints(Recipe, include_extras=True)
    kind = make_dataclass(
        "Recipe",
        [(name, Annotated[types[name], tyro.conf.Suppress], field(default=None)) for name in hidden],
        bases=(Recipe,),
        frozen=True,
        kw_only=True,
    )
    return kind(**{each.name: getattr(recipe, each.name) for each in fields(recipe)})


def refuse_method_as_option(arguments: Sequence[str], name: str) -> None:
    """`train` takes one method, by `--method`, and each field of its recipe by an option of that name."""
    for index, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        value = value if equals else "".join(arguments[index + 1 : index + 2])
        if option == "--set":
            field, _, given = value.partition("=")
            raise LabError(
                f"train takes each field of its recipe as an option: --{field or 'FIELD'} {given or 'VALUE'}"
            )
        if option in ("--optimizer", "--optimizers", "--methods"):
            network = name.partition("/")[0] if "/" in name and not name.endswith(".py") else name
            raise LabError(
                f"train has no {option}: entropy-sgd train {network} --method "
                f"{value if value in methods.names() else 'METHOD'}, with one of "
                f"{', '.join(methods.names())}; compare takes several"
            )


def refuse_fields(arguments: Sequence[str], kind: type, family: Family, command: str) -> None:
    """`compare` and `tune` take fields of the recipes by `--set`."""
    own = {each.name for each in fields(kind)}
    for index, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        name = option.removeprefix("--").replace("-", "_")
        if not option.startswith("--") or name in own:
            continue
        following = arguments[index + 1] if index + 1 < len(arguments) else "VALUE"
        given = value if equals else following
        for method in family.methods():
            known = flatten(asdict(family.recipe(method)))
            for wanted in (name, f"optimizer.{name}"):
                if wanted in known:
                    prefix = f"{method}:" if wanted.startswith("optimizer.") else ""
                    raise LabError(
                        f"{command} takes fields of its recipes by --set: "
                        f"--set {prefix}{wanted.replace('_', '-')}={given}"
                    )
