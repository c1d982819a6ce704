from __future__ import annotations

import json
import math
import signal
from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from entropy_sgd import EntropySGD, recalibrate_batchnorm, scoping
from entropy_sgd.lab import Diverged, Interrupted, LabError, data, models, recipes, tasks
from entropy_sgd.lab.data.batches import SequenceBatches, ShuffledBatches


def records(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def timeless(path):
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records(path)]


def interrupt_after(monkeypatch, kind, steps):
    """Press Ctrl-C while the gradient evaluation of that number is computed."""
    original, calls = kind.loss, 0

    def loss(self, batch):
        nonlocal calls
        calls += 1
        if calls == steps:
            signal.raise_signal(signal.SIGINT)
        return original(self, batch)

    monkeypatch.setattr(kind, "loss", loss)


def test_the_loop_is_algorithm_1_on_the_batches_in_order(run, tiny_images, tmp_path):
    """The plain loop a user would write reaches the same outer weights, bit for bit, and the same error."""
    summary = run(tiny_images)

    digits = data.load("digits")
    chosen = torch.arange(96) * 4000 // 96
    split = data.Split(digits.train.inputs[chosen], digits.train.targets[chosen])
    torch.manual_seed(0)
    model = models.build("lenet", dropout=0.25, classes=10)
    batches = ShuffledBatches(split, 16, 0)
    optimizer = EntropySGD(
        model.parameters(), lr=1.0, momentum=0.9, L=20, inner_lr=0.1, inner_momentum=0.9, noise=1e-3,
        gamma=scoping.Exponential(1e-4, 1e-3), alpha=0.75, seed=0,
    )  # fmt: skip
    for step in range(48):  # 8 epochs of 96 / 16, with a drop after the fifth
        optimizer.param_groups[0]["lr"] = 1.0 if step < 30 else 0.1
        inputs, targets = next(batches)
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    optimizer.eval()
    recalibrate_batchnorm(model, [split.inputs])
    model.eval()
    weights = torch.load(tmp_path / "run" / "weights.pt", weights_only=True)
    for name, value in model.state_dict().items():
        if "running" in name:  # evaluations have a layout of their own, in which torch sums differently
            torch.testing.assert_close(value, weights[name], rtol=1e-3, atol=1e-3)
        else:
            assert torch.equal(value, weights[name]), name
    with torch.no_grad():
        wrong = (model(digits.validation.inputs).argmax(1) != digits.validation.targets).float().mean()
    assert summary["validation"]["error"] == pytest.approx(100 * wrong.item())
    assert summary["gradient_evaluations"] == 48
    assert summary["epochs"] == 8


def test_language_models_carry_their_state_and_zero_it_at_the_start(run, tiny_text, tmp_path):
    recipe = replace(
        tiny_text, optimizer=recipes.get("ptb-lstm/sgd").optimizer, dropout=0.0, sum_over_time=True
    )
    run(recipe)

    text = data.load(recipe.data)
    torch.manual_seed(0)
    model = models.build("char-lstm", vocabulary=len(text.vocabulary))
    batches = SequenceBatches(text.train, 11, 10)
    hidden = None
    for _ in range(round(2.5 * len(text.train) / 110)):
        inputs, targets, first = next(batches)
        state = None if first else tuple(part.detach() for part in hidden)
        logits, hidden = model(inputs, state)
        loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / 11
        model.zero_grad()
        loss.backward()
        norm = math.sqrt(sum(p.grad.square().sum().item() for p in model.parameters()))
        with torch.no_grad():
            for p in model.parameters():
                p -= p.grad * min(1.0, 5.0 / norm)
    weights = torch.load(tmp_path / "run" / "weights.pt", weights_only=True)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, weights[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["images", "text"])
def test_ctrl_c_anywhere_then_resume_gives_the_same_bits(run, request, monkeypatch, tmp_path, kind):
    recipe = request.getfixturevalue(f"tiny_{kind}")
    task = tasks.Classification if kind == "images" else tasks.LanguageModel
    whole = run(recipe, "whole")
    with monkeypatch.context() as patch:
        interrupt_after(patch, task, 7)  # mid-cycle, between evaluations
        with pytest.raises(Interrupted, match="step 7") as caught:
            run(recipe, "parts")
    assert caught.value.exit_code == 130
    with monkeypatch.context() as patch:
        interrupt_after(patch, task, 16)
        with pytest.raises(Interrupted, match="step 23"):
            run(recipe, "parts", resume=True)
    parts = run(recipe, "parts", resume=True)
    assert "resumed at step 23" in run.output
    assert parts["weights_sha256"] == whole["weights_sha256"]
    assert parts["validation"] == whole["validation"]
    assert timeless(tmp_path / "parts") == timeless(tmp_path / "whole")


def test_a_seed_decides_every_bit(run, tiny_images):
    first, second, other = run(tiny_images, "a"), run(tiny_images, "b"), run(tiny_images, "c", seed=1)
    assert first["weights_sha256"] == second["weights_sha256"] != other["weights_sha256"]


def test_evaluating_more_often_changes_nothing(run, tiny_images):
    seldom = run(tiny_images, "seldom")
    often = run(replace(tiny_images, evaluate_every=0.5), "often")
    assert seldom["weights_sha256"] == often["weights_sha256"]


def test_metrics_count_effective_epochs_and_drop_the_learning_rate(run, tiny_images, tmp_path):
    run(replace(tiny_images, drops=recipes.Drops(0.1, (2.0, 4.0))))
    lines = records(tmp_path / "run")
    assert [line["step"] for line in lines] == list(range(3, 49, 3))  # every half epoch of 6 steps
    assert all(line["epoch"] == line["step"] / 6 for line in lines)
    assert [line["epoch"] for line in lines if "error" in line] == [3, 6, 8]
    # the rate of the line's last step, which began one step earlier
    assert [line["lr"] for line in lines] == pytest.approx([1.0] * 4 + [0.1] * 4 + [0.01] * 8)
    assert lines[0]["angle"] is None
    assert 0 < lines[-1]["angle"] < 180
    assert lines[-1]["gamma"] == pytest.approx(1e-4 * 1.001)  # the second of 48 // 20 cycles


def test_tensorboard_has_the_same_numbers_after_resuming(run, tiny_images, monkeypatch, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with monkeypatch.context() as patch:
        interrupt_after(patch, tasks.Classification, 7)
        with pytest.raises(Interrupted):
            run(tiny_images)
    run(tiny_images, resume=True)
    board = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    seen = {event.step: event.value for event in board.Scalars("loss")}
    assert seen == pytest.approx({line["step"]: line["loss"] for line in records(tmp_path / "run")})


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_good_checkpoint(
    run, tiny_images, tmp_path
):
    wild = replace(tiny_images, optimizer=replace(recipes.get("demo/sgd").optimizer, lr=1e30))
    with pytest.raises(Diverged, match=r"step \d+ of 48.*last good checkpoint") as caught:
        run(wild, checkpoint_seconds=0.0)
    assert caught.value.exit_code == 3
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["status"] == "diverged"
    checkpoint = tmp_path / "run" / "checkpoint.pt"
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)["state"]["model"]
        assert all(value.isfinite().all() for value in state.values())


def test_final_trains_on_everything_and_reads_the_test_set_once(run, tiny_images, monkeypatch, tmp_path):
    reads = []
    original = data.Images.test
    monkeypatch.setattr(data.Images, "test", lambda self: reads.append(1) or original(self))
    run(replace(tiny_images, train_limit=None, epochs=0.1), "trial")
    assert not reads
    summary = run(replace(tiny_images, train_limit=None, epochs=0.1), "final", final=True)
    assert len(reads) == 1
    assert summary["gradient_evaluations"] == round(
        0.1 * 4500 / 16
    )  # 4,000 digits and the 500 held out otherwise
    assert summary["validation"] is None
    assert summary["test"]["error"] > 0
    assert not any("error" in line for line in records(tmp_path / "final"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": "digit"}, "digits"),
        ({"network": "lenett"}, "lenet"),
        ({"network": "allcnn"}, "does not fit"),
        ({"unroll": 5}, "unroll"),
        ({"batch_size": 1000}, "batch_size must be at most"),
    ],
)
def test_what_cannot_work_is_refused_by_name(run, tiny_images, changes, message):
    with pytest.raises((LabError, data.DataError), match=message):
        run(replace(tiny_images, **changes))


def test_recipes_and_data_of_different_kinds_are_refused(run, tiny_images, tiny_text):
    with pytest.raises(LabError, match="is text"):
        run(replace(tiny_images, data=tiny_text.data), "a")
    with pytest.raises(LabError, match="are images"):
        run(replace(tiny_text, data="digits"), "b")
    with pytest.raises(LabError, match=r"at least the data's \d+, got 3"):
        run(replace(tiny_text, vocabulary=3), "c")


def test_a_signal_at_the_last_step_is_not_forgotten(run, tiny_images, monkeypatch, tmp_path):
    """The run ends as it should, and a comparison does not start the next one."""
    interrupt_after(monkeypatch, tasks.Classification, 48)
    with pytest.raises(Interrupted, match="after the end"):
        run(tiny_images)
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "finished"


def test_sgld_reports_its_decaying_step(run, tiny_images, tmp_path):
    run(replace(tiny_images, optimizer=recipes.get("lenet/sgld").optimizer, epochs=1))
    line = records(tmp_path / "run")[-1]
    assert line["lr"] == pytest.approx(0.5 / 7**0.3)


def test_a_run_stops_at_the_training_loss_of_its_outer_weights(run, tiny_images, tmp_path):
    recipe = replace(tiny_images, evaluate_every=1, stop_at_loss=1e-9)
    run(recipe)
    assert "is still above stop_at_loss, 1e-09" in run.output
    losses = [(r["step"], r["training_loss"]) for r in records(tmp_path / "run") if "training_loss" in r]
    assert [step for step, _ in losses] == [6, 12, 18, 24, 30, 36, 42, 48]
    step, threshold = losses[3]  # the outer weights of the first cycle of 20
    assert threshold < min(loss for _, loss in losses[:3])

    recipe = replace(recipe, stop_at_loss=threshold)
    summary = run(recipe, "stopped")
    assert summary["gradient_evaluations"] == step
    digits, chosen = data.load("digits").train, torch.arange(96) * 4000 // 96
    model = models.build("lenet", dropout=0.25, classes=10)
    model.load_state_dict(torch.load(tmp_path / "stopped" / "weights.pt", weights_only=True))
    loss = functional.cross_entropy(model.eval()(digits.inputs[chosen]), digits.targets[chosen])
    assert loss.item() == pytest.approx(threshold, rel=1e-5)

    # killed after the last checkpoint and before the summary: there is nothing left to train
    (tmp_path / "stopped" / "summary.json").unlink()
    assert run(recipe, "stopped", resume=True)["weights_sha256"] == summary["weights_sha256"]


def test_text_stops_at_the_loss_of_its_training_part(run, tiny_text, tmp_path):
    run(replace(tiny_text, evaluate_every=0.5, stop_at_loss=1e-9))
    losses = [r["training_loss"] for r in records(tmp_path / "run") if "training_loss" in r]
    summary = run(replace(tiny_text, evaluate_every=0.5, stop_at_loss=losses[2]), "stopped")
    first = next(i for i, loss in enumerate(losses) if loss <= losses[2])
    assert summary["epochs"] == pytest.approx(0.5 * (first + 1), abs=0.05)


def test_a_run_shorter_than_a_cycle_is_judged_at_what_its_steps_have_earned(run, tiny_images):
    """As if L were the steps of the run, and not at the initial weights; resumed, to the same bits."""
    short = replace(tiny_images, epochs=2, drops=recipes.Drops())
    found = run(short, "short", checkpoint_seconds=0)
    assert "12 steps are less than one cycle of L=20" in run.output
    whole = run(replace(short, optimizer=replace(short.optimizer, L=12)), "whole")
    assert found["weights_sha256"] == whole["weights_sha256"]
    assert found["validation"] == whole["validation"]


def test_a_run_shorter_than_a_cycle_resumes_to_the_same_bits(run, tiny_images, monkeypatch):
    short = replace(tiny_images, epochs=2)
    whole = run(short, "whole")
    with monkeypatch.context() as patch:
        interrupt_after(patch, tasks.images.Classification, 7)
        with pytest.raises(Interrupted):
            run(short, "stopped")
    assert run(short, "stopped", resume=True)["weights_sha256"] == whole["weights_sha256"]
