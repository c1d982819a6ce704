"""`entropy-sgd tune`: resumable, the same for any number of jobs, on your own file, its commands exact."""

from __future__ import annotations

import io
import json
import shlex
from dataclasses import replace

import pytest
from rich.console import Console

from entropy_sgd.lab import Interrupted, LabError, recipes
from entropy_sgd.lab.cli import main
from entropy_sgd.lab.cli.compare import Compare, chosen_recipes
from entropy_sgd.lab.cli.copying import compare_command, train_command
from entropy_sgd.lab.cli.parse import find, parse, take
from entropy_sgd.lab.cli.train import Train
from entropy_sgd.lab.jobs import making
from entropy_sgd.lab.tuning.show import rates_table, show, table
from entropy_sgd.lab.tuning.space import Draws
from entropy_sgd.lab.tuning.tuning import Found, Trial, Tuning, run

FILE = """
import torch
from torch import nn
from entropy_sgd.lab import Experiment


def accuracy(outputs, targets):
    return 100 * (outputs.argmax(1) == targets).float().mean()


def experiment():
    inputs = torch.randn(80, 5)
    targets = (inputs[:, 0] > 0).long()
    return Experiment(
        model=lambda: nn.Linear(5, 2),
        train=(inputs[:64], targets[:64]),
        validation=(inputs[64:], targets[64:]),
        loss=nn.functional.cross_entropy,
        metric=accuracy,
        batch_size=8,
        epochs=2,
    )
"""


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return path


@pytest.fixture
def tuning(mine):
    family = find(str(mine))
    return Tuning((family.recipe("sgd"), family.recipe("adam")), trials=3, rates=2, maximize=True)


def quiet():
    return Console(file=io.StringIO(), width=200)


def results(path):
    content = json.loads((path / "tune.json").read_text())
    for method in content["methods"]:
        for trial in (*method["trials"], *method["rates"], method["best"]):
            trial["runs"] = [{**summary, "seconds": 0, "peak_memory_bytes": 0} for summary in trial["runs"]]
    return content


def test_a_search_that_was_stopped_goes_on_to_the_same_trials(tuning, tmp_path, monkeypatch):
    whole = run(tuning, tmp_path / "whole", console=quiet())
    original, calls = making.train, []

    def train(*arguments, **options):
        calls.append(arguments)
        if len(calls) == 4:
            raise Interrupted(2, "stopped")
        return original(*arguments, **options)

    monkeypatch.setattr(making, "train", train)
    with pytest.raises(Interrupted):
        run(tuning, tmp_path / "parts", console=quiet())
    with pytest.raises(LabError, match="--resume"):
        run(tuning, tmp_path / "parts", console=quiet())
    with pytest.raises(LabError, match="trials: 3 there, 4 now"):
        run(replace(tuning, trials=4), tmp_path / "parts", resume=True, console=quiet())
    run(tuning, tmp_path / "parts", resume=True, console=quiet())
    assert results(tmp_path / "parts") == results(tmp_path / "whole")
    # as many gradients for each, none of it on test data, and the best is the largest accuracy
    content = results(tmp_path / "whole")
    for method, found in zip(content["methods"], whole, strict=True):
        trials = [*method["trials"], *method["rates"]]
        assert len(trials) == 5
        summaries = [summary for trial in trials for summary in trial["runs"]]
        assert {summary["gradient_evaluations"] for summary in summaries} == {16}
        assert all(summary["test"] is None for summary in summaries)
        assert method["best"]["value"] == max(trial["value"] for trial in trials)
        assert found.best.recipe.optimizer.lr == method["best"]["rate"]


def test_two_jobs_find_what_one_does(tuning, tmp_path):
    small = replace(tuning, recipes=tuning.recipes[:1], trials=2, rates=0)
    run(small, tmp_path / "one", console=quiet())
    run(small, tmp_path / "two", console=quiet(), at_once=2)
    assert results(tmp_path / "one") == results(tmp_path / "two")


def test_what_diverges_or_is_refused_is_a_result(tuning, tmp_path, monkeypatch):
    given = [{"lr": 1e38}, {"lr": -1.0}, {"lr": 0.1}]
    monkeypatch.setattr(Draws, "draw", lambda self, count: given[:count])
    monkeypatch.setattr(Draws, "tell", lambda self, values: None)
    sgd = replace(tuning, recipes=tuning.recipes[:1], rates=0)
    sgd = replace(sgd, recipes=(replace(sgd.recipes[0], epochs=20),))
    (found,) = run(sgd, tmp_path / "run", console=quiet())
    assert [trial.value is None for trial in found.trials] == [True, True, False]
    assert "loss of nan" in found.trials[0].troubles[0]
    assert "-1" in found.trials[1].troubles[0]
    assert found.best is found.trials[2]
    shown = Console(file=io.StringIO(), width=80)
    shown.print(table([found], sgd))
    shown.print(rates_table([found], sgd))
    assert max(len(line) for line in shown.file.getvalue().splitlines()) <= 80


@pytest.mark.parametrize("wrong", [{"trials": 0}, {"within": 1.0}, {"rates": -1}, {"seeds": ()}])
def test_nonsense_is_refused(tuning, wrong):
    with pytest.raises(LabError, match=r"must be|needs"):
        replace(tuning, **wrong)


def test_the_command_writes_a_figure_and_commands_that_train_the_same_recipes(capsys, mine, tmp_path):
    out = tmp_path / "out"
    options = ["--methods", "adam", "entropy-sgd", "--trials", "2", "--rates", "2", "--maximize"]
    options += ["--out", str(out), "--budget", "1.5", "--set", "drops.factor=0.5"]
    assert main(["tune", str(mine), *options]) == 0
    printed = capsys.readouterr().out
    assert (out / "sensitivity.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "sensitivity.pdf").read_bytes().startswith(b"%PDF")
    content = json.loads((out / "tune.json").read_text())
    family = find(str(mine))
    commands = [line for line in printed.splitlines() if line.startswith("entropy-sgd ")]
    assert len(commands) == 3
    best = []
    for command, method in zip(commands, content["methods"], strict=False):
        words = shlex.split(command)
        name, rest = take("method", words[3:])
        recipe = parse(Train, rest, "train", Train(recipe=family.recipe(name))).recipe
        assert (
            json.loads(json.dumps(recipe.__dict__, default=vars))["optimizer"]
            == method["recipe"]["optimizer"]
        )
        assert (recipe.epochs, recipe.drops.factor) == (1.5, 0.5)
        assert recipe.drops.at == pytest.approx((0.75, 1.125))
        best.append(recipe)
    words = shlex.split(commands[2])
    compared = parse(Compare, words[3:], "compare")
    assert compared.maximize
    assert compared.seeds == (1, 2, 3, 4, 5)
    for recipe, wanted in zip(chosen_recipes(family, compared), best, strict=True):
        assert recipe.optimizer.lr == wanted.optimizer.lr
        assert recipe.drops == wanted.drops
        assert recipe.threads == wanted.threads == 1
    assert max(len(line) for line in printed.splitlines() if line[:1] in "│┃┏└") <= 80


def test_commands_quote_and_flag():
    family = recipes.family("demo")
    recipe = family.recipe("local-entropy")
    options = replace(recipe.optimizer, outer_options=("betas=(0.5,0.9)",), inner_nesterov=False)
    changed = replace(recipe, optimizer=options, compile=True, threads=None)
    words = shlex.split(train_command("demo", family, changed))
    _, rest = take("method", words[3:])
    assert parse(Train, rest, "train", Train(recipe=recipe)).recipe == changed
    words = shlex.split(compare_command("demo", family, [changed], [1]))
    compared = parse(Compare, words[3:], "compare")
    assert chosen_recipes(family, compared)[0].optimizer == options
    sgd = replace(family.recipe("sgd"), epochs=3)
    assert "--set epochs=3" in compare_command("demo", family, [sgd, replace(sgd, name="demo/sgd")], [1])


def test_what_is_better_must_be_known_of_ones_own_metric(capsys, mine, tmp_path):
    command = ["tune", str(mine), "--methods", "sgd", "--out", str(tmp_path / "out")]
    assert main(command) == 2
    assert "--maximize or --minimize" in capsys.readouterr().err
    assert main([*command, "--maximize", "--minimize"]) == 2
    assert "cannot be used together" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_names_that_look_like_mathematics_are_drawn_as_they_are(tmp_path, capsys):
    mine = tmp_path / r"$\frac$.py"
    mine.write_text(FILE + 'accuracy.__name__ = r"$\\frac$"\n')
    out = tmp_path / r"out$\frac$"
    options = ["--methods", "sgd", "--trials", "1", "--rates", "1", "--maximize", "--out", str(out)]
    assert main(["tune", str(mine), *options]) == 0
    assert (out / "sensitivity.png").stat().st_size > 0
    assert main(["report", str(out), "--out", str(tmp_path / "report$")]) == 0


def test_settings_at_the_edge_of_what_was_searched_are_told(tuning):
    recipe = tuning.recipes[
        0
    ]  # sgd: lr from 0.001 to 1, momentum from 0 to 0.99, weight decay from 1e-6 to 1e-2

    def trial(value, **options):
        chosen = replace(recipe, optimizer=replace(recipe.optimizer, lr=options["lr"]))
        return Trial(chosen, "sgd-trial0", {"momentum": 0.5, "weight_decay": 1e-4, **options}, [value])

    def told(trials, rates):
        found = Found(recipe, trials, rates, centre=trials[0])
        found.best = min(found.line(), key=lambda each: each.value)
        console = quiet()
        show(console, [found], replace(tuning, rates=len(rates)))
        return [line for line in console.file.getvalue().splitlines() if "edge" in line]

    middle = trial(1.0, lr=0.1)
    assert told([middle], []) == []
    assert told([middle], [trial(2.0, lr=0.05), trial(2.0, lr=0.2)]) == []
    assert told([middle], [trial(2.0, lr=0.05), trial(0.5, lr=0.2)]) == [
        "sgd: lr 0.2 is at the edge of the rates tried, 0.05 to 0.2: --rates 4 tries more"
    ]
    assert told([trial(1.0, lr=0.99)], []) == [
        "sgd: lr 0.99 is at the edge of its range, 0.001 to 1: --search sgd:lr=0.001..10 tries more"
    ]
    beyond = told([trial(1.0, lr=0.99, weight_decay=1.1e-6)], [trial(2.0, lr=0.5), trial(2.0, lr=1.98)])
    assert beyond == [  # larger rates were tried
        "sgd: weight-decay 1.1e-06 is at the edge of its range, 1e-06 to 0.01: "
        "--search sgd:weight-decay=1e-07..0.01 tries more"
    ]


def test_the_user_chooses_what_is_searched(mine, tmp_path):
    ranges = ["lr=2..4", "adam:lr=0.1..0.2", "momentum=0.5", "betas.0=0,0.5"]
    out = ["--out", str(tmp_path / "out"), "--maximize", "--rates", "0", "--trials", "4"]
    arguments = ["tune", str(mine), "--methods", "sgd", "adam", "--search", *ranges, *out]
    assert main(arguments) == 0
    content = json.loads((tmp_path / "out" / "tune.json").read_text())
    sgd, adam = ([trial["options"] for trial in method["trials"]] for method in content["methods"])
    assert all(2 <= each["lr"] <= 4 and each["momentum"] == 0.5 for each in sgd)
    assert all(0.1 <= each["lr"] <= 0.2 and each["betas"][0] in (0, 0.5) for each in adam)
    assert main([*arguments, "--resume"]) == 0
    other = [word.replace("lr=2..4", "lr=2..5") for word in arguments]
    assert main([*other, "--resume"]) != 0  # it would draw other trials
