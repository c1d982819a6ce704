"""Tries the command line with wrong commands, damaged runs and damaged data, and counts what goes wrong.

    python benchmarks/fuzz.py [--cases 10000] [--jobs 1] [--seed 0] [--first 0] [--only NUMBER]

A case is a function of the seed and its number, so each can be tried again with `--only`. Every command runs
in a child of this process, which has torch loaded already, in a copy of a folder with small data, a finished
run, a stopped one, a comparison and measurements. There must be no traceback, no death by a signal, no
command that neither ends nor stops at Ctrl-C, and no run lost by an unsuccessful command. Writes
results/fuzz.json.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import gc
import io
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import fuzz_cases as cases

RESULT = Path(__file__).parents[1] / "results" / "fuzz.json"
ENOUGH, PATIENCE, LIMIT = 6.0, 40.0, 400.0
"""Seconds of computing until Ctrl-C, those more until a command counts as hanging, and those by the clock."""
TRACEBACK = 70
"""Exit code of a child that ends in one."""
DEVICE = Path("/dev/zero")
"""Commands are told to read and to write it."""
PRECIOUS = {
    "finished": ("config.json", "summary.json", "weights.pt"),
    "stopped": ("config.json", "checkpoint.pt"),
    "both": ("config.json", "comparison.json", "sgd-seed0/weights.pt", "adam-seed0/weights.pt"),
    "tuned": ("config.json", "tune.json", "sgd-trial0-seed0/weights.pt", "sgd-trial1-seed0/weights.pt"),
}
OWN = """
import torch
from entropy_sgd.lab import Experiment

def experiment():
    x = torch.randn(40, 5)
    y = (x[:, 0] > 0).long()
    return Experiment(lambda: torch.nn.Linear(5, 2), (x, y), (x, y), torch.nn.functional.cross_entropy,
                      batch_size=8, epochs=1)
"""


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    """Exit code, or minus the signal."""
    output: str
    hung: bool = False
    lost: tuple[str, ...] = ()

    @property
    def bad(self) -> str | None:
        """What must not be, in a word."""
        if self.hung:
            return "hang"
        if self.code < 0:
            return f"signal {-self.code}"
        if self.code == TRACEBACK or "Traceback (most recent call last)" in self.output:
            return "traceback"
        if self.lost:
            return "lost run"
        return None if self.code in (0, 2, 3, 130, 141) else f"exit code {self.code}"


def child(root: Path, words: list[str]) -> None:
    """The command, in this process, which ends with it."""
    os.setsid()
    os.chdir(root)
    for number, path in ((0, "/dev/null"), (1, "output"), (2, "output")):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND
        os.dup2(os.open(root.parent / path if number else path, flags, 0o644), number)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115
    memory = 6 << 30
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code: object = TRACEBACK
    try:
        from entropy_sgd.lab.cli import main

        code = main(words)
    except SystemExit as exit:  # tyro leaves by itself
        code = exit.code
    except BaseException:
        traceback.print_exc()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def computed(pid: int) -> float:
    """Seconds of computing of a process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return 0.0


def run(root: Path, words: list[str]) -> Outcome:
    """Fork, wait, and stop what takes long."""
    output = root.parent / "output"
    output.unlink(missing_ok=True)
    pid = os.fork()
    if pid == 0:
        child(root, words)
    began, asked, hung, pause = time.monotonic(), None, False, 0.002
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        spent, now = computed(pid), time.monotonic() - began
        if asked is None and (spent > ENOUGH or now > LIMIT / 4):
            asked = spent
            os.kill(pid, signal.SIGINT)
        elif asked is not None and (spent > asked + PATIENCE or now > LIMIT):
            hung = True
            os.killpg(pid, signal.SIGKILL)
        time.sleep(pause)
        pause = min(0.05, pause * 1.3)
    text = output.read_text(errors="replace") if output.exists() else ""
    return Outcome(os.waitstatus_to_exitcode(status), text, hung)


def contents(root: Path) -> dict[str, dict[str, bytes]]:
    def read(path: Path) -> bytes:
        return path.read_bytes() if path.is_file() and not path.is_symlink() else b""

    return {
        folder: {name: read(root / folder / name) for name in names} for folder, names in PRECIOUS.items()
    }


def lost(before: dict[str, dict[str, bytes]], root: Path, code: int) -> tuple[str, ...]:
    """The runs that are not as they were and not replaced either, and a device that became a file."""
    if not DEVICE.is_char_device():
        return (str(DEVICE),)
    if code == 0:
        return ()
    after = contents(root)
    changed = [
        folder
        for folder, files in before.items()
        if any(content and after[folder][name] != content for name, content in files.items())
    ]
    return tuple(folder for folder in changed if not any((root / folder).rglob("checkpoint.pt")))


def prepare(root: Path, run: Callable[[Path, list[str]], Outcome] = run) -> None:
    """The folder of which each command has a copy, made by commands that `run` runs there."""
    import numpy as np

    root.mkdir()
    for name, side in (("images", 3), ("larger", 28)):
        (root / name).mkdir()
        generator = np.random.default_rng(0)
        for part, count in (("train", 60), ("t10k", 20)):
            pixels = generator.integers(0, 256, (count, side, side), dtype=np.uint8)
            labels = (np.arange(count) % 3).astype(np.uint8)
            for kind, array in (("images-idx3", pixels), ("labels-idx1", labels)):
                start = bytes((0, 0, 8, array.ndim)) + b"".join(n.to_bytes(4, "big") for n in array.shape)
                (root / name / f"{part}-{kind}-ubyte").write_bytes(start + array.tobytes())
    (root / "text.txt").write_bytes(bytes(32 + (i * i // 7 + i // 3) % 40 for i in range(2000)))
    (root / "own.py").write_text(OWN)
    shutil.copytree(RESULT.parent / "paper", root / "kept")
    os.mkfifo(root / "pipe")
    train = ["train", "small-mnistfc/sgd", *cases.TINY, "--checkpoint-seconds", "0"]
    measured = ["finished", "--samples", "20", "--probes", "2", "--steps", "3", "--out"]
    both = ["compare", "small-mnistfc", "--methods", "sgd", "adam", "--seeds", "0", "--out", "both", "--set"]
    tune = ["tune", "small-mnistfc", "--methods", "sgd", *cases.TUNE, "--out", "tuned"]
    for words in (
        [*train, "--out", "finished"],
        [*train, "--out", "stopped"],
        [*both, *cases.SET],
        tune,
        ["spectrum", *measured, "spectra/lanczos.json", "--method", "lanczos"],
        ["spectrum", "finished", "--samples", "20", "--method", "exact", "--out", "spectra/exact.json"],
        ["local-entropy", *measured, "spectra/entropy.json", "--gamma", "10"],
        ["landscape", "finished", "--samples", "20", "--points", "5", "--out", "slices"],
    ):
        outcome = run(root, words)
        if outcome.code != 0:
            raise SystemExit(f"cannot prepare: {words}\n{outcome.output}")
    for name in ("summary.json", "weights.pt"):  # as if it had been killed before its end
        (root / "stopped" / name).unlink()
    (root / "stopped" / "checkpoint.previous.pt").replace(root / "stopped" / "checkpoint.pt")
    shutil.copyfile(root / "stopped" / "checkpoint.pt", root / "stopped" / "checkpoint.previous.pt")


def attempt(prepared: Path, tried: cases.Case, place: Path) -> Outcome:
    """One case in a copy of the folder, below `place`."""
    _, words, damage = tried
    root = place / "root"
    place.mkdir(exist_ok=True)
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(prepared, root, copy_function=_copy, symlinks=True)
    damage(root)
    before = contents(root)
    outcome = run(root, words)
    return Outcome(outcome.code, outcome.output, outcome.hung, lost(before, root, outcome.code))


def _copy(source: str, target: str) -> None:
    if Path(source).is_fifo():
        os.mkfifo(target)
    else:
        shutil.copyfile(source, target)


def load() -> None:
    """Import what commands import, once; nothing is computed here, since torch's threads outlive no fork."""
    import matplotlib.backends.backend_pdf
    import matplotlib.backends.backend_svg
    import matplotlib.figure
    import optuna  # noqa: F401
    import pytorch_optimizer  # noqa: F401
    import scipy.stats  # noqa: F401
    import torch
    from torch.utils.tensorboard import SummaryWriter  # noqa: F401

    from entropy_sgd.lab import methods, recipes  # noqa: F401
    from entropy_sgd.lab.cli import COMMANDS, command
    from entropy_sgd.lab.cli.compare import Compare
    from entropy_sgd.lab.cli.landscape import Spectra
    from entropy_sgd.lab.cli.parse import parse
    from entropy_sgd.lab.cli.report import Report
    from entropy_sgd.lab.cli.train import Train
    from entropy_sgd.lab.comparison import comparison  # noqa: F401
    from entropy_sgd.lab.paper import page as paper  # noqa: F401
    from entropy_sgd.lab.report import page  # noqa: F401
    from entropy_sgd.lab.slices import write  # noqa: F401
    from entropy_sgd.lab.spectra import figures, flatness, measure  # noqa: F401
    from entropy_sgd.lab.tuning import show  # noqa: F401

    for name in COMMANDS:
        command(name)
    torch.set_num_threads(1)
    torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=0.1)  # imports half of torch.compile
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        for method in cases.METHODS:  # fills the caches of tyro
            parse(Train, [], "warm", Train(recipe=recipes.get(f"small-mnistfc/{method}")))
        for kind, name in ((Compare, "compare"), (Report, "report"), (Spectra, "spectrum")):
            parse(kind, ["--help"], name)
    with contextlib.redirect_stderr(io.StringIO()):
        figure = matplotlib.figure.Figure(layout="constrained")
        figure.subplots().semilogy([1, 10, 100])
        figure.savefig(io.BytesIO(), format="svg")
    gc.collect()
    gc.freeze()


def work(prepared: Path, seed: int, numbers: list[int], out: Path, until: float) -> None:
    """Try these cases, one after the other, and write a line for each."""
    with out.open("w") as lines:
        for number in numbers:
            if time.monotonic() > until:
                return
            tried = cases.case(seed, number)
            outcome = attempt(prepared, tried, out.with_suffix(""))
            kind = ("command", "run files", "data")[(number % 10 >= 6) + (number % 10 == 9)]
            record = {"case": number, "kind": kind, "what": tried[0], "command": tried[1], "bad": outcome.bad}
            print(json.dumps({**record, "code": outcome.code}), file=lines, flush=True)
            if outcome.bad:
                tail = outcome.output[-1500:]
                print(f"\n#{number} {outcome.bad} {tried[0]}\n  {tried[1]!r}\n{tail}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so long")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    load()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepared = folder / "prepared" / "root"
        prepared.parent.mkdir()
        prepare(prepared)
        if options.only is not None:
            tried = cases.case(options.seed, options.only)
            outcome = attempt(prepared, tried, folder / "only")
            print(tried[0], tried[1], outcome.code, outcome.output, f"bad: {outcome.bad}", sep="\n")
            return
        numbers = list(range(options.first, options.first + options.cases))
        parts = [folder / f"{job}.jsonl" for job in range(options.jobs)]
        workers: list[int] = []
        for job, part in enumerate(parts):
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    until = began + 60 * options.minutes
                    work(prepared, options.seed, numbers[job :: options.jobs], part, until)
                    code = 0
                except BaseException:
                    traceback.print_exc()
                finally:  # the folder is the parent's to remove
                    os._exit(code)
            workers.append(pid)
        statuses = [os.waitpid(pid, 0)[1] for pid in workers]
        if any(statuses):
            raise SystemExit("the fuzzer itself has failed")
        found = [json.loads(line) for part in parts for line in part.read_text().splitlines()]
    from entropy_sgd.lab.runs.environment import commit

    bad = collections.Counter(str(entry["bad"]).partition(" ")[0] for entry in found)
    record = {
        "seed": options.seed,
        "cases": [options.first, max((entry["case"] for entry in found), default=0)],
        "commands": len(found),
        "tracebacks": bad["traceback"],
        "deaths by a signal": bad["signal"],
        "hangs": bad["hang"],
        "lost runs": bad["lost"],
        "other exit codes": bad["exit"],
        "kinds": dict(collections.Counter(entry["kind"] for entry in found)),
        "exit codes": dict(sorted(collections.Counter(str(entry["code"]) for entry in found).items())),
        "minutes": round((time.monotonic() - began) / 60, 1),
        "commit": commit(),
        "failures": [entry for entry in found if entry["bad"]],
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps({key: record[key] for key in record if key != "failures"}, indent=1))


if __name__ == "__main__":
    main()
