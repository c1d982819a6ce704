from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from entropy_sgd.lab import recipes
from entropy_sgd.lab.cli import COMMANDS, main
from entropy_sgd.lab.cli.compare import Compare, chosen_recipes
from entropy_sgd.lab.cli.parse import override, parse
from entropy_sgd.lab.cli.train import Train


def call(capsys, *arguments):
    """Exit code and what was printed."""
    try:
        code = main([str(argument) for argument in arguments])
    except SystemExit as exit:  # tyro prints help and leaves by itself
        code = exit.code
    printed = capsys.readouterr()
    return code, printed.out + printed.err


def test_help_of_every_command(capsys):
    code, text = call(capsys, "--help")
    assert code == 0
    assert all(command in text for command in COMMANDS)
    for command in COMMANDS:
        code, text = call(capsys, command, "--help")
        assert code == 0
        assert f"entropy-sgd {command}" in text
    for action in ("list", "fetch", "verify"):
        assert call(capsys, "data", action, "--help")[0] == 0
    code, text = call(capsys, "train", "lenet/entropy-sgd", "--help")
    assert code == 0
    for part in ("--optimizer.inner-lr", "(default: 0.1)", "--batch-size", "Section 5.2"):
        assert part in text
    code, text = call(capsys, "compare", "lenet", "--help")
    assert code == 0
    assert "--methods" in text
    assert "--optimizers" in text  # its name in 0.1.0


def test_help_does_not_import_torch():
    program = """
import sys
from entropy_sgd.lab.cli import main
for command in ([], ["train"], ["compare"], ["data"]):
    assert main([*command, "--help"]) == 0
heavy = {"torch", "numpy", "matplotlib", "scipy", "pooch"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["trian"], "train"),
        (["train"], "lenet/"),
        (["train", "lenet/entropysgd"], "entropy-sgd"),
        (["train", "lennet/adam"], "no network is called 'lennet'. Did you mean lenet or small-lenet"),
        (["train", "mine.py/sgd"], "entropy-sgd train mine.py --method sgd"),
        (["train", "demo/sgd", "--batch-sise", "3"], "--batch-size"),
        (["train", "demo/sgd", "--optimizer.learning-rate", "3"], "--optimizer"),
        (["train", "demo/sgd", "--batch-size", "many"], "--batch-size: must be a whole number, got 'many'"),
        (["train", "demo/sgd", "--clip-norm", "x"], "--clip-norm: must be a number or None, got 'x'"),
        (["compare", "demo", "--budget", "abc"], "--budget: must be a number or None, got 'abc'"),
        (["compare", "demo", "--jobs", "1.5"], "--jobs: must be a whole number or None, got '1.5'"),
        (["train", "demo/sgd", "--batch-size", "-3"], "batch_size"),
        (["train", "demo/sgd", "--device", "gpu"], "gpu"),
        (["train", "demo/sgd", "--threads", "0"], "threads"),
        (["train", "char-lstm/adam", "--data", "digits", "--compile", "True"], "True"),
        (["train", "demo/sgd", "--optimizer.lr", "-1"], "-1"),
        (["train", "demo/sgd", "--resume", "--overwrite"], "cannot be used together"),
        (["compare", "lennet"], "lenet"),
        (["compare", "demo", "--optimizers", "sgd", "adan"], "adam"),
        (["compare", "demo", "--set", "compile=maybe"], "maybe"),
        (["compare", "demo", "--set", "batch-size"], "FIELD=VALUE"),
        (["compare", "demo", "--set", "batch-sise=3"], "Did you mean batch-size"),
        (["tune", "demo", "--set", "batch-sise=3"], "entropy-sgd train demo --method sgd --help shows all"),
        (["tune", "demo", "--search", "lr"], "takes OPTION=LOW..HIGH or METHOD:OPTION=LOW..HIGH, got 'lr'"),
        (["tune", "demo", "--search", "lion:lr=1..2"], "lion"),
        (["tune", "demo", "--search", "rho=0.1..1"], "no searched option is called 'rho'"),
        (["tune", "demo", "--search", "inner-lrr=0.1..1"], "Did you mean inner_lr"),
        (["train", "demo/sgd", "--set", "data=digits"], "as an option: --data digits"),
        (["tune", "demo", "--search", "sgd:inner-lr=0.1..1"], "'inner_lr' is not searched, only lr"),
        (["tune", "demo", "--search", "lr=2..1"], "must go up"),
        (["tune", "demo", "--search", "sgd:lr=-1,1"], "sgd refuses its options"),
        (["tune", "demo", "--search", "alpha=0.1..2"], "entropy-sgd refuses its options: alpha must be"),
        (
            ["tune", "demo", "--search", "sgd:lr=1", "sgd:momentum=0", "sgd:weight-decay=0"],
            "leaves nothing of sgd to search",
        ),
        (["compare", "demo", "--set", "metric=error"], "no field is called 'metric'"),
        (["compare", "demo", "--seeds", "3", "0", "3"], "--seeds names 3 more than once"),
        (["compare", "demo", "--jobs", "0"], "jobs must be at least 1, got 0"),
        (["tune", "demo", "--jobs", "-2"], "jobs must be at least 1, got -2"),
        (["paper", "run", "--jobs", "0"], "jobs must be at least 1, got 0"),
        (["compare", "demo", "--set", "lion:batch-size=3"], "lion"),
        (["compare", "demo", "--set", "sgd:batch-size=3"], "equal batches"),
        (["report", "nowhere"], "nowhere"),
        (["data", "lst"], "list"),
        (["data", "verify", "mnits"], "mnist"),
    ],
)
def test_mistakes_are_answered_in_one_message_with_the_closest_names(
    capsys, tmp_path, monkeypatch, arguments, expected
):
    monkeypatch.chdir(tmp_path)
    code, text = call(capsys, *arguments)
    assert code == 2
    assert expected in text
    assert "Traceback" not in text


def test_a_typo_is_not_answered_with_a_wall_of_text(capsys):
    for arguments in (["train", "lenett/sgd"], ["compare", "lenett"], ["train", "file.py/sgd"]):
        code, text = call(capsys, *arguments)
        assert code == 2
        assert len(text) < 200


def test_a_missing_run_is_answered_with_names_that_exist(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("lenet-sgd-seed0", "lenet-adam-seed0", "other"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    for typed, meant in (
        ("runs/lenet-sgd-sed0", "runs/lenet-sgd-seed0 or runs/lenet-adam-seed0"),
        ("lenet-sgd-seed0", "runs/lenet-sgd-seed0"),
        ("rusn/other", "runs/other"),
        (str(tmp_path / "runs" / "othr"), str(tmp_path / "runs" / "other")),
    ):
        for command in (["report"], ["spectrum", "--method", "lanczos"], ["landscape"]):
            code, text = call(capsys, *command, typed)
            assert code == 2
            told = f"{typed} is not the folder of a run: it does not exist. Did you mean {meant}?"
            assert text == f"error: {told}\n"
    for typed in ("zzzzzz", "a" * 5000, "nul\0", "/"):
        code, text = call(capsys, "report", typed)
        assert code == 2
        assert "Did you mean" not in text
    (tmp_path / "runs" / "other" / "config.json").write_text('{"settings": {}, "environment": {}}')
    (tmp_path / "file.py").write_text("")
    for typed, told in (("runs", "but holds some: name these: runs/other"), ("file.py", "it is a file")):
        code, text = call(capsys, "report", typed)
        assert (code, told in text) == (2, True)


def test_a_help_shows_what_applies(capsys, tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(
        "import torch\n"
        "from entropy_sgd.lab import Experiment\n"
        "data = torch.zeros(8, 2), torch.zeros(8, 1)\n"
        "def experiment():\n"
        "    return Experiment(lambda: torch.nn.Linear(2, 1), data, data, torch.nn.functional.mse_loss)\n"
    )
    foreign = ("--network", "--data ", "--dropout", "--unroll", "--label-noise")
    for arguments, hidden, shown in (
        ([mine], foreign, ("--batch-size", "--optimizer.lr", "Other methods: adam,", "Not in the paper.")),
        ([mine, "--method", "sam"], foreign, ("--batch-size", "--optimizer.rho")),
        (
            ["lenet/adam"],
            ("--unroll", "--vocabulary"),
            ("--network", "--dropout", "In the paper: Section 5.2"),
        ),
        (["char-lstm/adam"], ("--label-noise",), ("--network", "--unroll")),
    ):
        code, text = call(capsys, "train", *arguments, "--help")
        assert code == 0
        assert [option for option in hidden if option in text] == []
        assert [part for part in shown if part not in text] == []


def test_helps_show_no_empty_default_and_no_nested_brackets(capsys):
    for command in (
        ["paper", "run"],
        ["paper"],
        ["compare", "demo"],
        ["tune", "demo"],
        ["report"],
        ["data", "verify"],
    ):
        _, text = call(capsys, *command, "--help")
        assert "[[" not in text
        assert "(default: )" not in text


def test_missing_data_are_named_with_the_command_that_gets_them(capsys, tmp_path):
    code, text = call(capsys, "train", "lenet/adam", "--data-dir", tmp_path, "--out", tmp_path / "run")
    assert code == 2
    assert "entropy-sgd data fetch mnist" in text
    assert str(tmp_path / "mnist" / "train-images-idx3-ubyte.gz") in text


def test_training_reporting_and_resuming(capsys, tmp_path):
    small = ["--train-limit", 64, "--batch-size", 16, "--epochs", 1]
    run = tmp_path / "run"
    rate = ["--optimizer.lr", 0.05, "--seed", 4]
    code, text = call(capsys, "train", "demo/sgd", "--out", run, "--resume", *rate, *small)
    assert code == 0
    assert f"note: {run} does not exist: there is nothing to resume" in text
    config = json.loads((run / "config.json").read_text())["settings"]
    assert (config["recipe"]["optimizer"]["lr"], config["seed"]) == (0.05, 4)
    code, text = call(capsys, "train", "demo/sgd", "--out", run, *small)
    assert code == 2
    assert "--resume" in text
    code, text = call(capsys, "train", "demo/sgd", "--out", run, "--resume", *small)
    assert code == 2
    assert "recipe.optimizer.lr: 0.05 there, 0.03 now" in text
    code, text = call(
        capsys, "train", "demo/sgd", "--out", run, "--resume", "--optimizer.lr", 0.05, "--seed", 4, *small
    )
    assert code == 0
    assert "finished already" in text
    code, text = call(capsys, "report", run, "--out", tmp_path / "report")
    assert code == 0
    assert text.strip() == str(tmp_path / "report" / "report.html")


def test_a_diverging_run_ends_with_3(capsys, tmp_path):
    code, text = call(
        capsys, "train", "demo/sgd", "--out", tmp_path / "run", "--optimizer.lr", 1e30, "--train-limit", 64,
        "--batch-size", 16, "--epochs", 2,
    )  # fmt: skip
    assert code == 3
    assert "step" in text


def test_budget_stretches_where_epochs_cuts():
    recipe = recipes.get("lenet/adam")
    assert override(recipe, ["epochs=10"], "").drops.at == (30, 60, 90)
    assert recipe.stretched(10).drops.at == pytest.approx((3, 6, 9))


def test_compare_gives_each_optimizer_its_recipe_and_all_the_same_budget():
    options = Compare(methods=("entropy-adam", "adam"), set=("batch-size=20", "adam:optimizer.lr=0.5"))
    entropy, adam = chosen_recipes(recipes.family("char-lstm"), options)
    assert (entropy.epochs, adam.epochs) == (25, 25)  # the first one's
    assert (entropy.batch_size, adam.batch_size) == (20, 20)
    assert (entropy.optimizer.lr, adam.optimizer.lr) == (0.01, 0.5)
    assert adam.drops.at == pytest.approx(tuple(2.5 * k for k in range(1, 10)))
    data = chosen_recipes(recipes.family("char-lstm"), Compare(set=("data=text:book.txt",)))
    assert {recipe.data for recipe in data} == {"text:book.txt"}


def test_settings_of_speed_are_flags_in_train_and_values_in_compare():
    flags = ["--compile", "--channels-last", "--threads", "3"]
    recipe = parse(Train, flags, "train", Train(recipe=recipes.get("lenet/entropy-sgd"))).recipe
    assert (recipe.compile, recipe.channels_last, recipe.threads) == (True, True, 3)
    changes = ("compile=True", "threads=3", "sgd:optimizer.nesterov=False")
    sgd, adam = chosen_recipes(recipes.family("lenet"), Compare(methods=("sgd", "adam"), set=changes))
    assert (sgd.compile, sgd.threads, sgd.optimizer.nesterov) == (True, 3, False)
    assert (adam.compile, adam.threads) == (True, 3)
    assert not override(sgd, ["compile=False", "threads=None"], "").compile


def test_the_module_is_the_command():
    found = subprocess.run(
        [sys.executable, "-m", "entropy_sgd", "trian"],
        capture_output=True,
        text=True,
        env=dict(os.environ),
        check=False,
    )
    assert found.returncode == 2
    assert "Did you mean train" in found.stderr


def test_ctrl_c_while_the_interpreter_cleans_up_prints_no_traceback():
    program = """
import atexit, os, signal, sys
atexit.register(os.kill, os.getpid(), signal.SIGINT)
from entropy_sgd.__main__ import main
sys.argv = ["entropy-sgd", "--version"]
sys.exit(main())
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")


def test_the_valley_is_drawn(capsys, tmp_path):
    code, text = call(capsys, "valley", "--out", tmp_path / "valley.png")
    assert code == 0
    assert text.strip() == str(tmp_path / "valley.png")
    assert (tmp_path / "valley.png").read_bytes().startswith(b"\x89PNG")


def test_version(capsys):
    import entropy_sgd

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"entropy-sgd {entropy_sgd.__version__}\n"


def test_without_the_extra_its_name_is_told():
    program = """
import sys
sys.modules["tyro"] = None
from entropy_sgd.__main__ import main
assert main(["--help"]) == 0
sys.exit(main(["train", "lenet/sgd"]))
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert found.returncode == 2
    assert "error: the package tyro is missing: pip install -c constraints.txt '.[lab]'" in found.stderr


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (["train", "--help"], "entropy-sgd train lenet/sgd --budget 5"),
        (["train", "lenet/adam", "--help"], "entropy-sgd train lenet/adam --budget 5"),
        (["compare", "demo", "--help"], "entropy-sgd compare demo --methods sgd sam entropy-sgd --budget 5"),
        (["tune", "demo", "--help"], "entropy-sgd tune demo --methods sgd entropy-sgd --trials 8 --budget 5"),
    ],
)
def test_help_opens_with_three_examples(capsys, command, shown):
    code, text = call(capsys, *command)
    assert code == 0
    lines = text.splitlines()
    first = lines.index("examples:")
    assert first <= 3
    assert lines[first + 1].strip() == shown
    assert all(line.startswith("  entropy-sgd ") for line in lines[first + 1 : first + 4])
    assert not lines[first + 4].strip()
    assert all(len(line) <= 80 for line in lines[first : first + 4])


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["compare", "lenet", "--data", "digits"], "--set data=digits"),
        (["compare", "lenet", "--lr", "0.1"], "--set sgd:optimizer.lr=0.1"),
        (["compare", "lenet", "--batch-size=9"], "--set batch-size=9"),
        (["tune", "lenet", "--optimizer.betas", "0.5"], "--set adam:optimizer.betas=0.5"),
        (["train", "lenet", "--optimizers", "adam"], "entropy-sgd train lenet --method adam"),
        (
            ["train", "lenet/sgd", "--optimizer", "adan"],
            "entropy-sgd train lenet --method METHOD, with one of",
        ),
    ],
)
def test_options_of_other_commands_are_answered_with_what_exists(capsys, arguments, hint):
    code, text = call(capsys, *arguments)
    assert code == 2
    assert hint in text


def test_several_values_of_a_field_have_commas_between():
    changes = ("adam:optimizer.betas=0.5,0.99", "drops.at=1,2.5", "data=text:a,b.txt")
    (adam,) = chosen_recipes(recipes.family("char-lstm"), Compare(methods=("adam",), set=changes, budget=50))
    assert adam.optimizer.betas == (0.5, 0.99)
    assert adam.drops.at == (1, 2.5)
    assert adam.data == "text:a,b.txt"
