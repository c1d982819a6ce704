"""The Hugging Face Trainer against bare loops over the same batches."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from entropy_sgd import EntropyAdam, EntropySGD
from frameworks.launch import EXAMPLES
from network import weights

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed, which the Trainer needs")

from safetensors.torch import load_file  # noqa: E402

from entropy_sgd.frameworks.huggingface import OuterTrainer, OuterWeights  # noqa: E402

STEPS, SIZE, CLIP = 18, 4, 0.5  # 18 steps: three cycles of five and three steps of a fourth
OPTIONS: dict[str, Any] = {"L": 5, "noise": 1e-3, "inner_lr": 0.2}


def model() -> Any:
    torch.manual_seed(3)
    no_dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    tokens = {"bos_token_id": 0, "eos_token_id": 0}
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=2, **no_dropout, **tokens
        )
    )


def data() -> list[dict[str, Tensor]]:
    """The first token is no target, or the Trainer counts it in the mean and the model does not."""
    ids = torch.randint(0, 16, (STEPS * SIZE * 2, 8), generator=torch.Generator().manual_seed(0))
    labels = ids.clone()
    labels[:, 0] = -100
    return [{"input_ids": i, "labels": l} for i, l in zip(ids, labels, strict=True)]


def arguments(folder: Path, **options: Any) -> Any:
    return transformers.TrainingArguments(
        str(folder),
        **{
            "max_steps": STEPS,
            "per_device_train_batch_size": SIZE,
            "train_sampling_strategy": "sequential",
            "max_grad_norm": CLIP,
            "logging_steps": 1,
            "save_strategy": "no",
            "lr_scheduler_type": "linear",
            "report_to": "none",
            "use_cpu": True,
            "disable_tqdm": True,
            **options,
        },
    )


def scheduler(optimizer: torch.optim.Optimizer) -> Any:
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / STEPS)


def trainer(net: nn.Module, kind: type, folder: Path, **options: Any) -> Any:
    callbacks = options.pop("callbacks", [])
    evaluated = {"eval_dataset": data()[:8]}
    if kind is transformers.Trainer:
        optimizer = EntropySGD(net.parameters(), **OPTIONS)
        made = {"optimizers": (optimizer, scheduler(optimizer)), "callbacks": [OuterWeights(), *callbacks]}
    else:
        made = {"optimizer_cls_and_kwargs": (EntropyAdam, dict(OPTIONS)), "callbacks": callbacks}
    return kind(model=net, args=arguments(folder, **options), train_dataset=data(), **evaluated, **made)


def make_optimizer(net: nn.Module, kind: type, **options: Any) -> Any:
    """What `trainer` trains `net` with."""
    if kind is transformers.Trainer:
        return EntropySGD(net.parameters(), **OPTIONS | options)
    # The Trainer makes two groups: matrices and embeddings, then biases and norms.
    parts = ([p for p in net.parameters() if p.dim() > 1], [p for p in net.parameters() if p.dim() == 1])
    return EntropyAdam([{"params": part} for part in parts], **OPTIONS | options)


def bare(kind: type, accumulate: int = 1) -> tuple[list[Tensor], Any]:
    """x after each step of the loop by hand, the last of which ends its cycle; and the model with x in it."""
    net = model()
    optimizer = make_optimizer(net, kind)
    schedule, rows, outer = scheduler(optimizer), iter(data()), []
    for _ in range(STEPS):
        optimizer.train()
        optimizer.zero_grad()
        for _ in range(accumulate):
            ids = torch.stack([next(rows)["input_ids"] for _ in range(SIZE)])
            (net(input_ids=ids, labels=ids).loss / accumulate).backward()
        nn.utils.clip_grad_norm_(net.parameters(), CLIP)
        optimizer.step()
        if len(outer) + 1 == STEPS:
            optimizer.finish()
        schedule.step()
        optimizer.eval()
        outer.append(weights(net))
    return outer, net


def saved(folder: Path) -> Tensor:
    net = model()
    missing = net.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
    assert missing.missing_keys == ["lm_head.weight"]  # tied to the embedding
    return weights(net)


KINDS = pytest.mark.parametrize("kind", [transformers.Trainer, OuterTrainer])
CLOSE = {"rtol": 1e-3, "atol": 1e-4}


@KINDS
@pytest.mark.parametrize("accumulate", [1, 2])
def test_training_is_the_bare_loop(kind, accumulate, tmp_path):
    """To rounding: the Trainer divides the sum of the losses by the number of tokens."""
    net = model()
    trainer(net, kind, tmp_path, gradient_accumulation_steps=accumulate).train()
    torch.testing.assert_close(weights(net), bare(kind, accumulate)[0][-1], **CLOSE)


@KINDS
def test_every_save_holds_the_outer_weights_also_without_an_evaluation(kind, tmp_path):
    net = model()
    trainer(net, kind, tmp_path, save_strategy="steps", save_steps=1).train()
    outer, _ = bare(kind)
    for step in range(1, STEPS + 1):
        torch.testing.assert_close(saved(tmp_path / f"checkpoint-{step}"), outer[step - 1], **CLOSE)


@KINDS
def test_evaluation_is_at_the_outer_weights(kind, tmp_path):
    net = model()
    with_evaluation = trainer(net, kind, tmp_path, eval_strategy="steps", eval_steps=4)
    with_evaluation.train()
    losses = {e["step"]: e["eval_loss"] for e in with_evaluation.state.log_history if "eval_loss" in e}
    outer, twin = bare(kind)
    ids = torch.stack([row["input_ids"] for row in data()[:8]])
    for step in (4, 8, 12, 16, STEPS):
        nn.utils.vector_to_parameters(outer[step - 1], twin.parameters())
        assert losses[step] == pytest.approx(twin(input_ids=ids, labels=ids).loss.item(), rel=1e-4)
    torch.testing.assert_close(weights(net), outer[-1], **CLOSE)


@KINDS
@pytest.mark.parametrize("evaluate", ["no", "steps"])
def test_resumes_from_the_middle_of_a_cycle_to_the_same_losses_and_bits(kind, evaluate, tmp_path):
    options = {"save_strategy": "steps", "save_steps": 7, "eval_strategy": evaluate, "eval_steps": 7}
    whole, resumed = model(), model()
    first = trainer(whole, kind, tmp_path, **options)
    first.train()
    second = trainer(resumed, kind, tmp_path, **options)
    second.train(resume_from_checkpoint=str(tmp_path / "checkpoint-7"))
    histories = [
        [(e["step"], e["loss"]) for e in t.state.log_history if "loss" in e] for t in (first, second)
    ]
    assert len(histories[0]) == STEPS
    assert histories[0] == histories[1]
    assert torch.equal(weights(whole), weights(resumed))


def test_the_best_weights_stay_in_the_model(tmp_path):
    net = model()
    best = trainer(
        net,
        transformers.Trainer,
        tmp_path,
        save_strategy="steps",
        save_steps=3,
        eval_strategy="steps",
        eval_steps=3,
        load_best_model_at_end=True,
    )
    best.train()
    assert Path(best.state.best_model_checkpoint).name != f"checkpoint-{STEPS}"
    assert torch.equal(weights(net), saved(Path(best.state.best_model_checkpoint)))
    loss = best.evaluate()["eval_loss"]
    assert loss == pytest.approx(best.state.best_metric)
    assert torch.equal(weights(net), saved(Path(best.state.best_model_checkpoint)))


class Stop(transformers.TrainerCallback):
    """Stops training, as early stopping does, when an evaluation or an epoch has ended."""

    def on_evaluate(self, args, state, control, **kwargs):
        control.should_training_stop = True


@KINDS
@pytest.mark.parametrize("stop", [None, "steps", "epoch"])
def test_fewer_than_L_steps_give_a_trained_model(kind, stop, tmp_path, monkeypatch):
    """The weights are those of an L equal to the steps made, though the Trainer's schedule ends at zero."""
    steps = 4
    monkeypatch.setitem(OPTIONS, "L", 50)
    limits: dict[str, Any] = {"max_steps": steps, "save_strategy": "steps", "save_steps": steps}
    if stop is not None:
        limits = {"max_steps": 12, "eval_strategy": stop, "eval_steps": steps, "callbacks": [Stop()]}
    net = model()
    run = trainer(net, kind, tmp_path, **limits)
    if stop == "epoch":
        run.train_dataset = data()[: steps * SIZE]
    run.train()
    assert run.state.global_step == steps

    twin = model()
    optimizer = make_optimizer(twin, kind, L=steps)
    lasts = STEPS if kind is transformers.Trainer else limits["max_steps"]
    base = optimizer.param_groups[0]["lr"]
    rows = iter(data())
    for step in range(steps):
        for group in optimizer.param_groups:  # the outer update takes the rate of the last step
            group["lr"] = base * (1 - step / lasts)
        optimizer.zero_grad()
        ids = torch.stack([next(rows)["input_ids"] for _ in range(SIZE)])
        twin(input_ids=ids, labels=ids).loss.backward()
        nn.utils.clip_grad_norm_(twin.parameters(), CLIP)
        optimizer.step()
    assert optimizer.outer_steps == 1
    torch.testing.assert_close(weights(net), weights(twin), **CLOSE)
    assert not torch.allclose(weights(net), weights(model()), **CLOSE)
    if stop is None:
        assert torch.equal(saved(tmp_path / f"checkpoint-{steps}"), weights(net))


def test_the_subclass_saves_the_outer_weights_whoever_asks(tmp_path):
    """`save_model` from a callback in the middle of a cycle, and x' afterwards."""
    net = model()

    class Save(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 8:
                before = weights(net)
                asking.save_model(str(tmp_path / "asked"))
                assert torch.equal(weights(net), before)
            control.should_save = state.global_step == 9

    asking = trainer(net, OuterTrainer, tmp_path, callbacks=[])
    asking.add_callback(Save())
    asking.train()
    outer, _ = bare(OuterTrainer)
    torch.testing.assert_close(saved(tmp_path / "asked"), outer[7], **CLOSE)
    torch.testing.assert_close(saved(tmp_path / "checkpoint-9"), outer[8], **CLOSE)
    resumed = model()
    trainer(resumed, OuterTrainer, tmp_path).train(resume_from_checkpoint=str(tmp_path / "checkpoint-9"))
    assert torch.equal(weights(resumed), weights(net))


def test_example(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["huggingface_trainer.py", "--folder", str(tmp_path), "--epochs", "5"])
    runpy.run_path(str(EXAMPLES / "huggingface_trainer.py"), run_name="__main__")
    assert float(capsys.readouterr().out.split()[-1]) < 3.2  # log 128 = 4.9 at the start
    assert (tmp_path / "checkpoint-50" / "model.safetensors").exists()
