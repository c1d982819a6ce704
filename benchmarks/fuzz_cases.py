"""What `fuzz.py` tries: commands that were valid before they were changed, damaged runs, damaged data."""

from __future__ import annotations

import gzip
import json
import os
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

TINY = [
    *("--data", "idx:images", "--batch-size", "8", "--epochs", "1", "--threads", "1"),
    *("--statistics-samples", "20", "--device", "cpu"),
]
TEXT = [
    *("--data", "text:text.txt", "--batch-size", "4", "--unroll", "5", "--epochs", "0.2"),
    *("--threads", "1", "--device", "cpu"),
]
SET = "data=idx:images batch-size=8 epochs=1 threads=1 statistics-samples=20".split()  # noqa: SIM905
TUNE = ["--trials", "2", "--rates", "1", "--budget", "0.5", "--set", *SET]
METHODS = (
    *("sgd", "adam", "adamw", "entropy-sgd", "entropy-adam", "local-entropy"),
    *("sgld", "sam", "asam", "swa", "ema", "lookahead", "schedule-free"),
)

OPTIONS = {
    "--seed": "0 1 7",
    "--epochs": "0.5 1 2",
    "--budget": "0.5 1",
    "--batch-size": "1 4 8 16",
    "--dropout": "0 0.3",
    "--batch-norm": "True False",
    "--train-limit": "10 30",
    "--unroll": "5",
    "--vocabulary": "90",
    "--clip-norm": "1",
    "--stop-at-loss": "0.5",
    "--evaluate-every": "0.5 1",
    "--log-every": "0.1",
    "--statistics-samples": "1 20",
    "--threads": "1 2",
    "--checkpoint-seconds": "0 30",
    "--drops.factor": "0.2",
    "--drops.at": "0.5 1",
    "--optimizer.lr": "0.1 0.01",
    "--optimizer.momentum": "0.9 0",
    "--optimizer.weight-decay": "0.001",
    "--optimizer.inner-lr": "0.1",
    "--optimizer.noise": "1e-4",
    "--optimizer.L": "2 5",
    "--optimizer.gamma0": "1e-3",
    "--optimizer.gamma1": "1e-3",
    "--optimizer.alpha": "0.75",
    "--optimizer.betas": "0.9",
    "--optimizer.rho": "0.05",
    "--optimizer.schedule": "linear focus constant",
    "--optimizer.schedule-options": "tau=0.1",
    "--optimizer.outer": "adamw rmsprop",
    "--optimizer.outer-options": "momentum=0.9",
    "--optimizer.inner": "adam sghmc sgnht",
    "--network": "small-mnistfc mnistfc lenet small-lenet allcnn char-lstm",
    "--data": "idx:images idx:larger text:text.txt idx:nowhere text:nowhere mnist",
    "--device": "cpu auto cuda",
    "--data-dir": "nowhere",
    "--replicas": "1",
    "--method": "sgd",
    "--out": "finished stopped new text.txt images nowhere/in/there",
}
"""Options of `train`, and values that can be right."""
OTHER_OPTIONS = {
    "tune": {
        "--trials": "1 2",
        "--rates": "0 1 2",
        "--within": "1.2 2",
        "--sampler": "sobol random tpe",
        "--sampler-seed": "0 3",
        "--seeds": "0 1",
        "--methods": "sgd adam entropy-sgd local-entropy",
        "--budget": "0.5",
        "--jobs": "1",
        "--set": "batch-size=4 sgd:optimizer.lr=0.1 sgd:optimizer.lr=nan adam:epochs=1 network=lenet foo=1",
        "--out": "tuned both finished new text.txt",
    },
    "compare": {
        "--seeds": "0 1",
        "--methods": "sgd adam",
        "--jobs": "1",
        "--budget": "0.5",
        "--set": "batch-size=4 sgd:optimizer.lr=0.1 epochs=0.5",
    },
    "landscape": {
        "--on": "line plane trajectory",
        "--points": "3 4",
        "--radius": "1 0.1",
        "--samples": "1 20",
        "--batch": "1 7",
        "--seed": "0 5",
        "--out": "slices finished text.txt new/in/there",
    },
    "paper": {
        "--results": "kept spectra finished text.txt nowhere",
        "--spectra": "spectra slices nowhere text.txt",
        "--out": "page.html page.md page.pdf kept text.txt nowhere/page.html",
        "--runs": "new finished text.txt",
        "--jobs": "1",
        "--data-dir": "nowhere images",
    },
    "report": {"--measured": "spectra slices nowhere text.txt", "--out": "page page.html page.pdf text.txt"},
}
"""Those of other commands."""
FLAGS = (
    *("--resume", "--overwrite", "--final", "--help", "--channels-last", "--sum-over-time"),
    *("--json", "--json", "--maximize", "--minimize"),
)
VALUES = [
    *(
        "nan",
        "inf",
        "-inf",
        "-1",
        "0",
        "-0.0",
        "1e-320",
        "1e308",
        "1e400",
        "40000",
        "2000",
        "99999999999999999999",
    ),
    *(
        "",
        " ",
        "None",
        "True",
        "abc",
        "γ",
        "日本",
        "\u202e",
        "é",
        "a" * 5000,
        "[red]x[/red]",
        r"$\frac$",
        "%s%n",
        "{}",
    ),
    *(
        "--",
        "-",
        "=",
        "..",
        "/",
        "/dev/null",
        "/dev/zero",
        "pipe",
        "/proc/self/maps",
        "1,2",
        "0x10",
        "1e",
        "\udcff",
        "~",
    ),
]

COMMANDS: list[str] = [
    *["train small-mnistfc/{method} {tiny} --out new"] * 4,
    *["train small-mnistfc --method {method} {tiny} --out new"] * 2,
    *["train small-mnistfc/sgd {tiny} --out finished --overwrite"] * 4,
    *["train small-mnistfc/{method} {tiny} --out finished --overwrite"] * 2,
    *["train small-mnistfc/sgd {tiny} --out stopped --resume"] * 3,
    "train small-mnistfc/sgd {tiny} --out finished --resume",
    "train lenet/entropy-sgd {tiny} --data idx:larger --out new",
    "train char-lstm/adam {text} --out new",
    "train own.py --method {method} --threads 1 --device cpu --epochs 1 --out new",
    "train own.py:other --method sgd --out new",
    *["compare small-mnistfc --methods sgd adam --seeds 0 --set {set} --out new"] * 2,
    *["compare small-mnistfc --methods sgd adam --seeds 0 --set {set} --out both --overwrite"] * 3,
    "compare small-mnistfc --methods sgd adam --seeds 0 --set {set} --out both --resume",
    "compare own.py --methods sgd --seeds 0 --budget 1 --out new",
    "demo --out finished",
    "report finished both --out page.html",
    "report stopped --out page",
    "data list",
    "data fetch nothing",
    "data verify --data-dir nowhere",
    "spectrum finished --method lanczos --samples 20 --probes 2 --steps 3 --out spectra/new",
    "spectrum finished --method exact --samples 20 --out spectra/other.json",
    "spectrum both --method fisher --out spectra/new",
    "local-entropy finished --gamma 10 --samples 20 --probes 2 --steps 3 --out spectra/new",
    "landscape finished --samples 20 --points 5 --out slices",
    "landscape both --on line --samples 20 --points 5 --out slices",
    "flatness spectra --out table.json",
    "figures spectra --out figures",
    "valley --out valley.png",
    "--version",
    "",
]
LATER: list[str] = [
    *["tune small-mnistfc --methods {method} sgd {tune} --out new"] * 3,
    "tune small-mnistfc --methods sgd adam --trials 2 --sampler tpe --rates 0 --set {set} --out new",
    *["tune small-mnistfc --methods sgd {tune} --out tuned --resume"] * 2,
    "tune small-mnistfc --methods sgd --trials 1 --rates 1 --budget 0.5 --set {set} --out tuned --overwrite",
    "tune own.py --methods sgd {method} --trials 1 --rates 2 --budget 1 --out new",
    "tune own.py --methods sgd --trials 1 --out tuned --json",
    "train own.py --method {method} --epochs 1 --out new --json",
    "compare small-mnistfc --methods sgd adam --seeds 0 --set {set} --out both --json --resume",
    "compare own.py --methods sgd {method} --seeds 0 1 --budget 1 --out new --json",
    "report finished both --json --out page.html",
    "report tuned --out page",
    "data list --json",
    "data verify --json --data-dir images",
    "spectrum finished --method lanczos --samples 20 --probes 2 --steps 3 --out spectra/lanczos.json --json",
    "local-entropy both --gamma 10 --samples 20 --probes 2 --steps 3 --out spectra/new --json",
    "flatness spectra --out table.json --json",
    "landscape finished --json --samples 20 --points 3 --out slices",
    "landscape both/sgd-seed0 both/adam-seed0 --samples 20 --points 5 --out slices",
    "landscape finished both --on plane --radius 0.5 --samples 20 --batch 7 --points 3 --seed 3 --out new",
    "landscape finished --on trajectory --samples 20 --points 3 --out new",
    "landscape both --on line --samples 20 --points 5 --out slices --overwrite",
    "paper --results kept --spectra spectra --out page.html",
    "paper --results kept --spectra nowhere --out page.md --json",
    "paper keep finished --results kept",
    "paper keep both --results kept --overwrite --json",
    "paper run mnistfc --results kept --runs new --data-dir nowhere --jobs 1",
    "paper run --results nowhere --runs new --data-dir images --jobs 1",
    "completion bash",
    "completion zsh --json",
    "completion words train small-mnistfc/{method} --optimizer.",
    "completion words tune small-mnistfc --methods sgd --sampler",
    "completion words train own.py --method {method} --",
    "completion words paper run m",
    "completion words data fetch",
]
"""Commands beyond training, comparing and measuring: tune, landscape, paper, completion, and --json."""

Case = tuple[str, list[str], Callable[[Path], None]]
"""What is tried in a word, the command, and what is done to the folder before."""


def nothing(root: Path) -> None:
    """The folder stays as it is."""


def expand(rng: random.Random, template: str) -> list[str]:
    parts = {"{method}": [rng.choice(METHODS)], "{tiny}": TINY, "{text}": TEXT, "{set}": SET, "{tune}": TUNE}
    words: list[str] = []
    for word in template.split():
        name = next((name for name in parts if name in word), None)
        if name is None:
            words.append(word)
        elif word == name:
            words += parts[name]
        else:
            words.append(word.replace(name, parts[name][0]))
    return words


def typo(rng: random.Random, word: str) -> str:
    if not word:
        return rng.choice(VALUES)
    place = rng.randrange(len(word))
    return {
        0: word[:place] + word[place + 1 :],
        1: word[:place] + rng.choice("aeszx-_.=:/0") + word[place:],
        2: word[:place] + word[place : place + 2][::-1] + word[place + 2 :],
        3: word.upper(),
    }[rng.randrange(4)]


def mutate(rng: random.Random, words: list[str]) -> list[str]:
    """One change: an option more, a value or word changed, lost, doubled, moved."""
    words = list(words)
    at = rng.randrange(len(words)) if words else 0
    match rng.randrange(10):
        case 0 | 1 | 2:
            known = OTHER_OPTIONS.get(words[0], OPTIONS) if words and rng.random() < 0.7 else OPTIONS
            option = rng.choice(list(known))
            value = rng.choice(VALUES) if rng.random() < 0.5 else rng.choice(known[option].split())
            words += [option, value] if rng.random() < 0.8 else [f"{option}={value}"]
        case 3:
            words.append(rng.choice(FLAGS))
        case 4 | 5 if words:
            words[at] = rng.choice(VALUES)
        case 6 if words:
            words[at] = typo(rng, words[at])
        case 7 if words:
            del words[at]
        case 8 if words:
            words.insert(rng.randrange(len(words)), words.pop(at))
        case _:
            field = rng.choice(list(OPTIONS)).lstrip("-")
            words += ["--set", f"{rng.choice(['', 'sgd:', 'foo:'])}{field}={rng.choice(VALUES)}"]
    return words


def command_line(rng: random.Random) -> Case:
    words = expand(rng, rng.choice(COMMANDS if rng.random() < 0.6 else LATER))
    for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 3))):
        words = mutate(rng, words)
    return "command", words, nothing


# ---- damaged runs ----

RUN_FILES = [
    *(
        f"finished/{name}"
        for name in ("config.json", "summary.json", "metrics.jsonl", "checkpoint.pt", "weights.pt")
    ),
    *(
        f"stopped/{name}"
        for name in ("config.json", "metrics.jsonl", "checkpoint.pt", "checkpoint.previous.pt")
    ),
    *(
        "both/config.json",
        "both/comparison.json",
        "both/sgd-seed0/summary.json",
        "both/adam-seed0/checkpoint.pt",
    ),
    *(
        "spectra/lanczos.json",
        "spectra/exact.json",
        "spectra/entropy.json",
        "slices/small-mnistfc-sgd-seed0-plane.json",
    ),
    *(
        "tuned/config.json",
        "tuned/tune.json",
        "tuned/sgd-trial0-seed0/summary.json",
        "tuned/sgd-trial1-seed0/checkpoint.pt",
        "kept/mnistfc-adam-seed0.json",
    ),
]
AFTER = [
    "train small-mnistfc/sgd {tiny} --out finished --resume",
    "train small-mnistfc/sgd {tiny} --out finished --overwrite",
    "train small-mnistfc/sgd {tiny} --out stopped --resume",
    "compare small-mnistfc --methods sgd adam --seeds 0 --set {set} --out both --resume",
    "report finished --out page.html",
    "report both --out page.html",
    "spectrum finished --method lanczos --samples 20 --probes 2 --steps 3 --out spectra/lanczos.json",
    "spectrum both/adam-seed0 --method fisher --out spectra/new",
    "local-entropy finished --gamma 10 --samples 20 --probes 2 --steps 3 --out spectra/entropy.json",
    "flatness spectra --out table.json",
    "figures spectra --out figures",
    "report finished --measured spectra slices --out page.html",
    "landscape finished --samples 20 --points 5 --out slices",
    "tune small-mnistfc --methods sgd {tune} --out tuned --resume",
    "tune small-mnistfc --methods sgd --trials 1 --rates 0 --budget 0.5 --set {set} --out tuned --overwrite",
    "report tuned --out page.html --json",
    "paper --results kept --spectra spectra --out page.html",
    "paper keep finished --results kept --json",
    "paper run mnistfc --results kept --runs new --data-dir nowhere --jobs 1",
]
READ_BY = {
    "finished/": (0, 1, 4, 6, 8, 12, 17),
    "stopped/": (2,),
    "both/": (3, 5, 7),
    "spectra/": (6, 8, 9, 10, 11, 16),
    "slices/": (11, 12),
    "tuned/": (13, 14, 15),
    "kept/": (16, 18),
}
"""Which of `AFTER` read a file."""
ODD: list[Any] = [None, True, 0, -1, 1e300, 10**400, "text", "", [], {}, [[]], {"a": {}}, "nan", "\u0000γ"]


def _bytes(change: Callable[[random.Random, bytes], bytes]) -> Callable[[random.Random, Path], None]:
    return lambda rng, path: void(path.write_bytes(change(rng, path.read_bytes())))


def void(_: object) -> None:
    """For a lambda that gives nothing."""


def flip(rng: random.Random, content: bytes) -> bytes:
    found = bytearray(content)
    for _ in range(rng.choice((1, 3, 30))):
        if found:
            found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
    return bytes(found)


def replace_entry(rng: random.Random, path: Path) -> None:
    """JSON of another shape: one entry, anywhere in the tree, is missing or something else."""
    try:
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    except UnicodeDecodeError:  # a checkpoint
        return foreign_contents(rng, path)
    tree = json.loads(lines[-1])
    node, key = tree, rng.choice(list(tree))
    while isinstance(node[key], dict) and node[key] and rng.random() < 0.7:
        node = node[key]
        key = rng.choice(list(node))
    if rng.random() < 0.3:
        del node[key]
    else:
        node[key] = rng.choice(ODD)
    lines[-1] = json.dumps(tree)
    path.write_text("\n".join(lines) + "\n")
    return None


def foreign_contents(rng: random.Random, path: Path) -> None:
    """A checkpoint with a right checksum and other contents."""
    if path.suffix != ".pt":
        path.write_text(json.dumps(rng.choice(ODD)))
        return
    import torch

    from entropy_sgd.lab.runs.checkpoint import digest

    content = torch.load(path, weights_only=True)
    state = content.get("state", content)
    key = rng.choice(list(state))
    if isinstance(state[key], dict) and state[key] and rng.random() < 0.6:
        node = state[key]
        key = rng.choice(list(node))
    else:
        node = state
    what = rng.randrange(4)
    if what == 0:
        del node[key]
    elif what == 1:
        node[key] = torch.zeros(3)
    elif what == 2 and isinstance(node[key], torch.Tensor):
        node[key] = node[key] * float("nan")
    else:
        node[key] = rng.choice([entry for entry in ODD if entry != 10**400])
    torch.save({"sha256": digest(state), "state": state} if "state" in content else state, path)


def another(rng: random.Random, path: Path) -> None:
    """The file of another run, whole."""
    others = [
        entry
        for entry in sorted(path.parents[1].rglob(f"*{path.suffix}"))
        if entry.is_file() and entry.parent != path.parent
    ]
    if others:
        path.write_bytes(rng.choice(others).read_bytes())


def special(rng: random.Random, path: Path) -> None:
    """A folder, a pipe, a device, a dangling or looping link in the place of the file."""
    path.unlink()
    match rng.randrange(5):
        case 0:
            path.mkdir()
        case 1:
            os.mkfifo(path)
        case 2:
            path.symlink_to("/dev/zero")
        case 3:
            path.symlink_to("nowhere")
        case _:
            path.symlink_to(path.name)


DAMAGES: dict[str, Callable[[random.Random, Path], None]] = {
    "empty": _bytes(lambda rng, content: b""),
    "cut": _bytes(lambda rng, content: content[: rng.randrange(len(content) + 1)]),
    "zeros": _bytes(lambda rng, content: bytes(len(content))),
    "bits": _bytes(flip),
    "noise": _bytes(lambda rng, content: rng.randbytes(1000)),
    "not UTF-8": _bytes(lambda rng, content: b'{"\xff\xfe": 1}\n'),
    "other JSON": _bytes(lambda rng, content: json.dumps(rng.choice(ODD)).encode() + b"\n"),
    "nested": _bytes(lambda rng, content: b"[" * 100_000),
    "entry": replace_entry,
    "entries": lambda rng, path: (replace_entry(rng, path), replace_entry(rng, path))[0],
    "contents": foreign_contents,
    "another's": another,
    "missing": lambda rng, path: path.unlink(),
    "special": special,
}


def damaged_run(rng: random.Random, file: str | None = None, damage: str | None = None) -> Case:
    file = file or rng.choice(RUN_FILES)
    # most damages of some interest are in the shape of the contents
    damage = damage or rng.choice([*DAMAGES, "entry", "entry", "entry", "contents", "contents"])
    prefix = next(prefix for prefix in READ_BY if file.startswith(prefix))
    words = expand(rng, AFTER[rng.choice(READ_BY[prefix])])
    return f"{damage}: {file}", words, lambda root: DAMAGES[damage](rng, root / file)


# ---- damaged data ----

DATA_FILES = [
    *(
        f"images/{part}-{kind}"
        for part in ("train", "t10k")
        for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")
    ),
    "text.txt",
]


def header(rng: random.Random, content: bytes) -> bytes:
    """An idx header that says something else."""
    if content[:2] != b"\0\0":
        return content
    sizes = [
        rng.choice((0, 1, 3, 28, 60, 1 << 20, (1 << 32) - 1)) for _ in range(rng.choice((0, 1, 2, 3, 4, 9)))
    ]
    start = 4 + 4 * content[3]
    kind = rng.choice((8, 8, 8, 9, 13))
    return bytes((0, 0, kind, len(sizes))) + struct.pack(f">{len(sizes)}I", *sizes) + content[start:]


DATA_DAMAGES: dict[str, Callable[[random.Random, Path], None]] = {
    **{
        name: DAMAGES[name]
        for name in ("empty", "cut", "zeros", "bits", "noise", "another's", "missing", "special")
    },
    "header": _bytes(header),
    "packed": _bytes(lambda rng, content: gzip.compress(content)),
    "half packed": _bytes(lambda rng, content: flip(rng, gzip.compress(content))[: rng.randrange(10, 400)]),
    "bomb": _bytes(
        lambda rng, content: gzip.compress(b"\0\0\x08\x03" + struct.pack(">3I", 60, 3, 3) + bytes(50_000_000))
    ),
    "large labels": _bytes(lambda rng, content: content[:-1] + b"\xff"),
}


def damaged_data(rng: random.Random) -> Case:
    file, damage = rng.choice(DATA_FILES), rng.choice(list(DATA_DAMAGES))
    if file == "text.txt":
        words = ["train", "char-lstm/adam", *TEXT, "--out", "new"]
    else:
        words = ["train", "small-mnistfc/sgd", *TINY, "--out", rng.choice(("new", "finished"))]
        words += rng.choice(([], ["--final"], ["--overwrite"]))
        words += ["--final"] if file.startswith("images/t10k") else []
    return f"{damage}: {file}", words, lambda root: DATA_DAMAGES[damage](rng, root / file)


def case(seed: int, number: int) -> Case:
    """Case `number`: a function of it and the seed alone."""
    rng = random.Random(f"{seed} {number}")
    kind = number % 10
    return command_line(rng) if kind < 6 else damaged_run(rng) if kind < 9 else damaged_data(rng)
