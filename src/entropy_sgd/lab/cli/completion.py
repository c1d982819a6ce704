"""`entropy-sgd completion bash | zsh | fish`, and `completion words`, which the scripts call at each TAB.

What can come next is asked of the commands themselves: `parse` tells the options instead of reading them.
Nothing of the user's is executed, and torch is not imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

import tyro

from entropy_sgd.lab import LabError, methods, recipes
from entropy_sgd.lab import data as datasets
from entropy_sgd.lab.cli import COMMANDS, command, output, parse
from entropy_sgd.lab.experiment import DECIDED_IN_FILE, is_file
from entropy_sgd.lab.paper.rows import ROWS

SCRIPTS = {
    "bash": """\
_entropy_sgd() {
    local IFS=$'\\n'
    COMPREPLY=($(entropy-sgd completion words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _entropy_sgd entropy-sgd
""",
    "zsh": """\
#compdef entropy-sgd
_entropy_sgd() {
    local -a found
    found=("${(@f)$(entropy-sgd completion words "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "${found[1]}" ]]; then compadd -- "${found[@]}"; else _files; fi
}
compdef _entropy_sgd entropy-sgd
""",
    "fish": """\
function __entropy_sgd
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    entropy-sgd completion words $words[2..-1] "$current" 2>/dev/null
end
complete -c entropy-sgd -a '(__entropy_sgd)'
""",
}
USAGE = """usage: entropy-sgd completion bash | zsh | fish

  bash  eval "$(entropy-sgd completion bash)"     in ~/.bashrc
  zsh   eval "$(entropy-sgd completion zsh)"      in ~/.zshrc, after compinit
  fish  entropy-sgd completion fish | source      in ~/.config/fish/config.fish"""


@dataclass(frozen=True)
class Option:
    """One option and the values it is known to take."""

    name: str
    values: tuple[str, ...] = ()
    several: bool = False


def completion(arguments: list[str]) -> object:
    """Run `entropy-sgd completion` with these arguments."""
    if arguments and arguments[0] in ("-h", "--help"):
        print(USAGE)
    elif not arguments:
        raise LabError(f"the shell is missing. {USAGE}")
    elif arguments[0] == "words":
        for candidate in candidates(arguments[1:]):
            print(candidate)
    elif arguments[0] not in SCRIPTS:
        raise LabError(f"completion is for {', '.join(SCRIPTS)}, got {arguments[0]!r}")
    else:
        print(SCRIPTS[arguments[0]], end="")
    return None


def candidates(words: Sequence[str]) -> list[str]:
    """What the last of the words, perhaps empty, can become."""
    *before, current = words or [""]
    found = _next(before, current)
    return [candidate for candidate in dict.fromkeys(found) if candidate.startswith(current)]


def _next(before: list[str], current: str) -> list[str]:
    if not before:
        return [*COMMANDS, "--help", "--version"]
    name, *rest = before
    first = _first(name, rest, current)
    if first is not None:
        return first
    options = {option.name: option for option in _options(name, rest)}
    if current.startswith("-"):
        return [*options, *(["--method"] if name == "train" else []), output.FLAG, "--help"]
    for distance, word in enumerate(reversed(rest)):
        if word.startswith("-"):
            option = options.get(word, Option(word, _values(word.removeprefix("--"))))
            return list(option.values) if option.several or distance == 0 else []
    return []


def _first(name: str, rest: list[str], current: str) -> list[str] | None:
    """The word right after a command; None if it is not that, or nothing is known of it."""
    if name == "completion":
        return list(SCRIPTS) if not rest else []
    if name == "data" and (not rest or not rest[-1].startswith("-")):
        names = [] if rest[:1] == ["list"] else datasets.names()
        return ["list", "fetch", "verify"] if not rest else None if current.startswith("-") else names
    if name == "paper" and not current.startswith("-") and not any(word.startswith("-") for word in rest):
        return ["run", "keep"] if not rest else [row.name for row in ROWS] if rest[0] == "run" else None
    if rest or current.startswith("-") or name not in ("train", "compare", "tune"):
        return None
    return recipes.names() if name == "train" and "/" in current else list(recipes.FAMILIES)


def _options(name: str, rest: list[str]) -> list[Option]:
    """The options of a command, as it would read them after these words."""
    if name not in COMMANDS:
        return []
    own = bool(rest) and is_file(rest[0])
    known = ["demo"] if own else rest[:1]  # a file is not executed for this
    method = [f"--method={rest[i + 1]}" for i, word in enumerate(rest[:-1]) if word == "--method"]
    try:
        with parse.asking():
            command(name)([*known, *method])
    except parse.Asked as asked:
        found = list(_fields(asked.kind, asked.default, ""))
        refused = [f"--{name.replace('_', '-')}" for name in DECIDED_IN_FILE] if own else []
        return [option for option in found if option.name not in refused]
    except LabError:
        pass
    return []


def _fields(kind: type, default: Any, prefix: str) -> Iterator[Option]:
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        marks = getattr(hints[field.name], "__metadata__", ())
        if tyro.conf.Positional in marks or tyro.conf.Fixed in marks:
            continue
        hint = get_args(hints[field.name])[0] if marks else hints[field.name]
        value = getattr(default, field.name, None)
        nested = type(value) if is_dataclass(value) else hint
        name = field.name.replace("_", "-")
        if isinstance(nested, type) and is_dataclass(nested):
            unnamed = any(getattr(mark, "name", None) == "" for mark in marks)
            yield from _fields(nested, value, prefix if unnamed else f"{prefix}{name}.")
            continue
        several = get_origin(hint) is tuple
        values = tuple(map(str, _literals(hint))) or _values(prefix + name)
        yield Option(f"--{prefix}{name}", values, several)
        for mark in marks:
            for alias in getattr(mark, "aliases", None) or ():
                yield Option(alias, values, several)


def _literals(hint: Any) -> tuple[Any, ...]:
    if get_origin(hint) is Literal:
        return get_args(hint)
    return tuple(value for part in get_args(hint) for value in _literals(part))


def _values(name: str) -> tuple[str, ...]:
    """What an option with a name of our own vocabulary takes."""
    match name:
        case "method" | "methods" | "optimizers":
            return tuple(methods.names())
        case "data":
            return tuple(datasets.names())
        case "network":
            return tuple(dict.fromkeys(recipe.network for recipe in recipes.written()))
        case "device":
            return ("auto", "cpu", "cuda")
        case _:
            return ()
