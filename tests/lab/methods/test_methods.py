"""What holds for all methods alike: budgets, checkpoints, evaluations, processes, the command line."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch

from entropy_sgd.lab import Interrupted, LabError, discovery, methods, recipes, tasks
from entropy_sgd.lab.cli.parse import override, parse
from entropy_sgd.lab.cli.train import Train
from entropy_sgd.lab.methods.base import Choice, Hints, Range
from frameworks.launch import torchrun
from lab.methods.tiny import BUDGET, EPOCH, recipe, start, watched

ALL = pytest.mark.parametrize("method", methods.names())


@ALL
def test_stopped_anywhere_it_ends_in_the_same_bits_within_its_budget(tmp_path, method):
    chosen = recipe(method)
    with watched() as calls:
        whole = start(chosen, tmp_path / "whole")
    assert len(calls) == whole["gradient_evaluations"] == BUDGET * EPOCH
    assert whole["epochs"] == BUDGET
    batches = len({id(batch) for batch in calls})
    assert batches * methods.get(method).evaluations(chosen.optimizer) == len(calls)
    assert whole["validation"]["error"] < 60  # chance is 90
    for stop in (11, 26):  # amid cycles and between two gradients of a step
        with pytest.raises(Interrupted), watched(stop=stop):
            start(chosen, tmp_path / "parts")
    parts = start(chosen, tmp_path / "parts")
    assert parts["weights_sha256"] == whole["weights_sha256"]
    assert parts["validation"] == whole["validation"]
    often = start(replace(chosen, evaluate_every=0.2), tmp_path / "often")
    assert often["weights_sha256"] == whole["weights_sha256"]


@pytest.fixture(scope="module")
def together(tmp_path_factory) -> Path:
    """The runs of every method in two processes."""
    folder = tmp_path_factory.mktemp("together")
    torchrun(Path(__file__).with_name("tiny.py"), folder, processes=2)
    return folder


@ALL
def test_two_processes_train_as_one_with_twice_the_batch_and_resume(together, tmp_path, method):
    def summary(name):
        return json.loads((together / f"{method}-{name}" / "summary.json").read_text())

    alone = start(recipe(method, dropout=0.0, batch_norm=False), tmp_path / "alone")
    assert summary("plain")["gradient_evaluations"] == alone["gradient_evaluations"]
    ours, theirs = (
        torch.load(path / "weights.pt", weights_only=True)
        for path in (together / f"{method}-plain", tmp_path / "alone")
    )
    for name, value in ours.items():
        torch.testing.assert_close(value, theirs[name], rtol=2e-3, atol=2e-4)
    assert summary("parts")["weights_sha256"] == summary("whole")["weights_sha256"]


@pytest.mark.parametrize("method", ["sam", "swa", "schedule-free", "local-entropy"])
def test_recurrent_networks_carry_their_state_through_every_method(tmp_path, method):
    text = tmp_path / "text.txt"
    text.write_bytes(bytes(32 + (i * i // 7 + i // 3) % 12 for i in range(1200)))
    changes = {"data": f"text:{text}", "batch_size": 6, "unroll": 8, "epochs": 2, "dropout": 0.2}
    chosen = replace(recipes.get(f"char-lstm/{method}"), **changes)
    whole = start(chosen, tmp_path / "whole")
    with pytest.raises(Interrupted), watched(tasks.LanguageModel, stop=9):
        start(chosen, tmp_path / "parts")
    assert start(chosen, tmp_path / "parts")["weights_sha256"] == whole["weights_sha256"]


@ALL
def test_options_can_be_searched_and_given_on_the_command_line(method):
    found = methods.get(method)
    options = found.defaults(Hints())
    known = {field.name: getattr(options, field.name) for field in fields(options)}
    assert found.options.__doc__
    assert "lr" in known
    for name, search in found.search.items():
        assert name in known or name.startswith("outer_")  # of an optimizer that is searched for too
        for part in search if isinstance(search, tuple) else (search,):
            if isinstance(part, Choice):
                assert known[name] in part.values
            else:
                assert isinstance(part, Range)
                assert part.low < part.high
                assert not part.log or part.low > 0
    changed = override(recipes.get(f"demo/{method}"), ["optimizer.lr=0.123"], "")
    assert changed.optimizer.lr == 0.123
    assert methods.of(changed.optimizer) is found


# A scope above 2 / inner_lr would throw x' beyond x: hence the maximum.
FOCUS = {"schedule": "focus", "schedule_options": ("maximum=5",)}
VARIANTS = {
    "sghmc, focus, adamw": {"inner": "sghmc", "outer": "adamw", "outer_options": (), "lr": 0.03, **FOCUS},
    "sgnht, match": {"inner": "sgnht", "inner_lr": 0.01, "schedule": "match-gradient"},
    "a class of torch, kept": {"inner": "RMSprop", "inner_lr": 1e-3, "inner_state": "keep"},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_local_entropy_takes_any_outer_inner_and_scope_from_the_command_line(tmp_path, variant):
    base, chosen = recipe("local-entropy"), VARIANTS[variant]
    words: list[str] = []
    for name, value in chosen.items():
        values = value if isinstance(value, tuple) else (value,)
        words += [f"--optimizer.{name.replace('_', '-')}", *map(str, values)]
    changed = parse(Train, words, "train", Train(recipe=base)).recipe
    assert changed.optimizer == replace(base.optimizer, **chosen)
    whole = start(changed, tmp_path / "whole")
    assert whole["validation"]["error"] < 75
    with pytest.raises(Interrupted), watched(stop=26):
        start(changed, tmp_path / "parts")
    assert start(changed, tmp_path / "parts")["weights_sha256"] == whole["weights_sha256"]


@pytest.mark.parametrize("network", ["mnistfc", "lenet", "allcnn", "demo"])
def test_every_method_has_a_recipe_for_the_image_networks(network):
    assert set(recipes.family(network).methods()) == set(methods.names())


def test_a_library_that_is_missing_is_named_with_the_extra_that_brings_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pytorch_optimizer", None)
    options = methods.get("sam").defaults(Hints())
    with pytest.raises(LabError, match=r"pytorch_optimizer.*'\.\[lab,peers\]'"):
        methods.build(options, torch.nn.Linear(2, 2), seed=0, steps=10)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"outer": "adamm"}, "Did you mean adam"),
        ({"inner": "adamm"}, "Did you mean adam"),
        ({"schedule": "matchgradien"}, "Did you mean matchgradient"),
        ({"outer_options": ("momentum",)}, "NAME=VALUE"),
        ({"outer_options": ("momentun=0.9",)}, "momentun"),
        ({"schedule_options": ("tau=1",)}, "tau"),
    ],
)
def test_names_that_local_entropy_does_not_know_are_refused(changes, message):
    options = replace(methods.get("local-entropy").defaults(Hints()), **changes)
    with pytest.raises(LabError, match=message):
        methods.build(options, torch.nn.Linear(2, 2), seed=0, steps=10)


@pytest.mark.parametrize(
    "schedule", ["constant", "exponential", "linear", "quadratic", "bounded-exponential"]
)
def test_a_stretched_scope_ends_where_it_would_have_ended(schedule):
    method = methods.get("local-entropy")
    own = ("tau=0.01",) if schedule == "bounded-exponential" else ()
    options = replace(method.defaults(Hints()), schedule=schedule, schedule_options=own, L=5)
    scopes = []
    for ratio in (1.0, 3.0):
        stretched = method.stretched(options, ratio)
        optimizer = methods.build(stretched, torch.nn.Linear(2, 2), seed=0, steps=1000)
        scopes.append(optimizer._schedule(round(200 * ratio)))
    assert scopes[1] == pytest.approx(scopes[0])


SIGN = """
from dataclasses import dataclass
from entropy_sgd.lab.methods.base import RATES, Method, Options

@dataclass(frozen=True)
class SignOptions(Options):
    \"\"\"Descent along the signs of the gradient.\"\"\"
    lr: float

class Sign(Method):
    name, options, search = "sign", SignOptions, {"lr": RATES}
    def defaults(self, hints): return SignOptions(hints.lr / 50)
    def build(self, options, model, *, seed, steps):
        import torch
        return torch.optim.Rprop(model.parameters(), lr=options.lr, etas=(0.5, 1.0001))

METHOD = Sign()
"""


def test_a_method_is_one_file(tmp_path, monkeypatch):
    (tmp_path / "sign.py").write_text(SIGN)
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path)])
    (module,) = discovery.modules("entropy_sgd.lab.methods", [str(tmp_path)])
    monkeypatch.setitem(methods.METHODS, "sign", module.METHOD)
    chosen = recipe("sign")
    whole = start(chosen, tmp_path / "whole")
    assert whole["recipe"] == "mnistfc/sign"
    with pytest.raises(Interrupted), watched(stop=26):
        start(chosen, tmp_path / "parts")
    assert start(chosen, tmp_path / "parts")["weights_sha256"] == whole["weights_sha256"]
