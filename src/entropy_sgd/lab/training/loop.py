"""The training loop, from the first batch to the summary.

Progress is counted in effective epochs, gradient evaluations x batch / data size, for every optimizer alike:
one `step()` is one gradient evaluation, of all processes together where there are several. Everything the
next step depends on is in the checkpoint, so that a run that was stopped anywhere continues to the same bits.
"""

from __future__ import annotations

import math
import time
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch.nn.utils import clip_grad_norm_

from entropy_sgd import SGLD, LocalEntropy
from entropy_sgd.lab import Diverged, Interrupted, LabError, data
from entropy_sgd.lab.data.batches import seed_from
from entropy_sgd.lab.training import checkpoint, optimizers, speed, tasks
from entropy_sgd.lab.training.display import Display, duration, say
from entropy_sgd.lab.training.evaluation import outer_weights
from entropy_sgd.lab.training.folder import WEIGHTS, Metrics, Record, RunFolder, Settings
from entropy_sgd.lab.training.group import Group
from entropy_sgd.lab.training.stop import StopSignals


def train(
    settings: Settings,
    folder: RunFolder,
    *,
    data_dir: Path | None = None,
    device: str = "auto",
    checkpoint_seconds: float = 30.0,
    console: Console | None = None,
    group: Group | None = None,
) -> Record:
    """Train as `settings` say, in `folder`, from its checkpoint if it has one, and return the summary.

    The processes of `group` all call this; only its lead reads or writes the folder.
    """
    group = group or Group()
    console = (console or Console()) if group.lead else Console(quiet=True, force_terminal=False)
    summary = group.first(lambda: folder.summary)
    if summary is not None and summary["status"] == "finished":
        say(console, f"{folder.path} is finished already")
        return summary
    with speed.threads(settings.recipe.threads):
        return _train(settings, folder, data_dir, device, checkpoint_seconds, console, group)


def _train(
    settings: Settings,
    folder: RunFolder,
    data_dir: Path | None,
    device: str,
    checkpoint_seconds: float,
    console: Console,
    group: Group,
) -> Record:
    """A run that is not finished, with the number of threads it is to have."""
    recipe = settings.recipe
    with group.together():
        chosen = group.device(device)
        speed.require_compiler(recipe, chosen)
        dataset = data.load(recipe.data, data_dir, final=settings.final)
        torch.manual_seed(settings.seed)  # for initial weights and dropout; batches and noise have their own
        task = tasks.build(recipe, dataset, settings.seed, chosen, group)
        model = task.model
        optimizer = optimizers.build(recipe.optimizer, model.parameters(), settings.seed)
    if not group.lead:  # the same initial weights, and a dropout of its own
        torch.manual_seed(seed_from(f"{settings.seed} rank {group.rank}"))
    own: Record = {"task": task.state_dict(), "generators": _generators()}
    task.forward = group.parallel(model)
    if recipe.compile:
        say(console, f"compiling {recipe.network}, which may take a minute or two")
        speed.compile_forward(task)
    if group.size > 1 or recipe.compile:
        # DDP orders its sums by the arrival of the first gradients it sees. These are for that alone, or the
        # first step of a resumed run would be rounded in another order than that of one never stopped. What
        # cannot be compiled shows here too, before anything is written.
        with group.together():
            speed.try_out(task)
    base_lr = optimizer.param_groups[0]["lr"]

    steps_per_epoch = task.size / task.batch
    total = max(1, round(recipe.epochs * steps_per_epoch))
    step, seconds, losses, count, metrics_size = 0, 0.0, 0.0, 0, 0
    judged: dict[str, float] | None = None

    saved, complaints = group.first(lambda: checkpoint.load(folder.path))
    if saved is not None:
        step, seconds = saved["step"], saved["seconds"]
        losses, count, metrics_size = saved["losses"], saved["count"], saved["metrics_size"]
        total = saved.get("total", total)  # less than the recipe's epochs make, once stop_at_loss has struck
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        own = saved if group.lead else saved["others"][group.rank - 1]
    task.load_state_dict(own["task"])
    _set_generators(own["generators"])

    # `save` and `measure` run in the lead alone, as do the files they write to.
    def save(lead: Record, *others: Record) -> None:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), **lead}
        if not all(bool(value.isfinite().all()) for value in state["model"].values()):
            raise Diverged(f"weights that are not finite at step {step} of {total}")
        counts = {
            "step": step,
            "total": total,
            "seconds": seconds,
            "losses": losses,
            "count": count,
            "metrics_size": metrics.sync(),
        }
        checkpoint.save(folder.path, {**counts, **state, "others": others})

    def measure(lr: float, *, evaluating: bool) -> tuple[dict[str, float] | None, bool]:
        record: Record = {
            "step": step,
            "epoch": step / steps_per_epoch,
            "loss": losses / count,
            "lr": lr,
        }
        record |= {"seconds": seconds, **_diagnostics(optimizer)}
        judged = None
        if evaluating and dataset.validation is not None:
            with outer_weights(task, optimizer):
                judged = task.judge("validation")
            if not math.isfinite(judged["loss"]):
                raise Diverged(f"a validation loss of {judged['loss']} at step {step} of {total}")
            record |= {"validation_loss" if key == "loss" else key: judged[key] for key in judged}
        reached = False
        if evaluating and recipe.stop_at_loss is not None:
            with outer_weights(task, optimizer):
                record["training_loss"] = task.judge("training")["loss"]
            reached = record["training_loss"] <= recipe.stop_at_loss
            if not reached and step == total:
                display.say(
                    f"note: the training loss, {record['training_loss']:.4g}, is still above stop_at_loss, "
                    f"{recipe.stop_at_loss:g}"
                )
        metrics.write(record)
        for key, entry in record.items():
            if entry is not None and key != "step":
                board.add_scalar(key, entry, step)
        display.show(record, evaluated=evaluating)
        return judged, reached

    title = f"{recipe.name} seed {settings.seed}"
    files = ExitStack()
    try:
        with group.together():
            if group.lead:
                metrics = files.enter_context(closing(Metrics(folder.path, metrics_size)))
                board = files.enter_context(closing(_tensorboard(folder.path, step)))
        with StopSignals() as stop, Display(console, title, recipe.epochs, recipe.metric) as display:
            for note in (*folder.notes, *(f"{text}: the one before it is used" for text in complaints)):
                display.say(f"note: {note}")
            if saved is not None:
                display.say(f"resumed at step {step} of {total}")
            if total < getattr(recipe.optimizer, "L", 1):
                display.say(
                    f"note: {total} steps are less than one cycle of L, so the outer weights stay as they are"
                )
            began = saved_at = time.monotonic()
            began -= seconds
            pause = checkpoint_seconds
            while step < total:
                epoch = step / steps_per_epoch
                lr = base_lr * recipe.drops.scale(epoch)
                for parameters in optimizer.param_groups:
                    parameters["lr"] = lr
                optimizer.zero_grad()
                loss = task.loss()
                (loss * task.scale if task.scale != 1 else loss).backward()
                value = group.mean(loss.item())
                if not math.isfinite(value):
                    raise Diverged(f"a loss of {value} at step {step + 1} of {total}")
                if recipe.clip_norm is not None:
                    clip_grad_norm_(model.parameters(), recipe.clip_norm)
                optimizer.step()

                step, losses, count = step + 1, losses + value, count + 1
                now = time.monotonic()
                seconds = now - began
                display.advance(step / steps_per_epoch, now)
                evaluating = step == total or _passes(recipe.evaluate_every * steps_per_epoch, step)
                if evaluating or _passes(recipe.log_every * steps_per_epoch, step):
                    judged, reached = group.first(partial(measure, lr, evaluating=evaluating))
                    losses, count = 0.0, 0
                    if reached:
                        total = step
                # a signal or a clock of one process is heeded by all
                signum, due = group.max(stop.received or 0, now - saved_at >= pause)
                if signum or due or step == total:
                    before = time.monotonic()
                    states = group.gather({"task": task.state_dict(), "generators": _generators()})
                    group.first(partial(save, *states))
                    saved_at = time.monotonic()
                    if (
                        checkpoint_seconds > 0
                    ):  # saving large networks must not take more than a twentieth of the time
                        pause = max(checkpoint_seconds, 20 * (saved_at - before))
                if signum and step < total:
                    raise Interrupted(
                        int(signum), f"stopped at step {step} of {total}, and saved: use --resume"
                    )

            counts = {"gradient_evaluations": step, "epochs": step / steps_per_epoch, "seconds": seconds}
            summary = group.first(partial(_conclude, settings, task, optimizer, folder, judged, counts))
            display.say(f"{title}: {describe(summary)} in {duration(seconds)}: {folder.path}")
            (signum,) = group.max(stop.received or 0)
            if signum:  # for whoever would start the next run
                raise Interrupted(int(signum), f"stopped after the end of {title}")
            return summary
    except Diverged as error:
        reason = {"status": "diverged", "recipe": recipe.name, "seed": settings.seed, "reason": str(error)}
        group.first(lambda: folder.write_summary(reason))
        raise Diverged(f"{title}: {error}. The last good checkpoint is kept in {folder.path}") from None
    except OSError as error:
        raise LabError(
            f"cannot go on writing to {folder.path}: {error}. The last checkpoint is intact."
        ) from error
    finally:
        files.close()


def _passes(period: float, step: int) -> bool:
    """Whether a whole multiple of `period`, in steps, lies in (step - 1, step]."""
    return math.floor(step / period + 1e-9) > math.floor((step - 1) / period + 1e-9)


def _generators() -> dict[str, Any]:
    """The state of torch's own generators, which dropout draws from."""
    return {"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all()}


def _set_generators(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["cpu"])
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])


def _tensorboard(folder: Path, step: int) -> Any:
    """A writer that hides what earlier writers in the folder said of later steps."""
    from torch.utils.tensorboard import SummaryWriter  # takes a second to import

    return SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)  # pyright: ignore[reportUnknownVariableType]


def _diagnostics(optimizer: torch.optim.Optimizer) -> Record:
    """What the optimizer itself can tell.

    SGLD's step size; the scope, the lengths and the angle of Entropy-SGD's last whole cycle, None before it.
    """
    if isinstance(optimizer, SGLD):
        group = optimizer.param_groups[0]
        return {"lr": group["lr"] / (1 + group["t"]) ** group["b"]}
    if not isinstance(optimizer, LocalEntropy):
        return {}
    values = optimizer.diagnostics()
    cosine = values.pop("cosine")
    # rounding may push the cosine past 1; NaN, before the first whole cycle, stays NaN
    values["angle"] = math.nan if math.isnan(cosine) else math.degrees(math.acos(max(-1.0, min(1.0, cosine))))
    return {key: value if math.isfinite(value) else None for key, value in values.items()}


def _conclude(
    settings: Settings,
    task: tasks.Task,
    optimizer: torch.optim.Optimizer,
    folder: RunFolder,
    judged: dict[str, float] | None,
    counts: Record,
) -> Record:
    """Keep the outer weights, judge them, on the test set too if the run is final, and write the summary.

    `judged` is the evaluation at the last step, if this process has made it.
    """
    with outer_weights(task, optimizer):
        weights = task.model.state_dict()
        checkpoint.write(folder.path / WEIGHTS, weights)
        if judged is None and task.data.validation is not None:
            judged = task.judge("validation")
        summary: Record = {
            "status": "finished",
            "recipe": settings.recipe.name,
            "seed": settings.seed,
            "final": settings.final,
            "metric": settings.recipe.metric,
            "validation": judged,
            "test": task.judge("test") if settings.final else None,
            "parameters": sum(parameter.numel() for parameter in task.model.parameters()),
            "weights_sha256": checkpoint.digest(weights),
            **counts,
        }
    folder.write_summary(summary)
    return summary


def describe(summary: Record) -> str:
    """The outcome in a few words."""
    units = {"error": "{:.2f} % error", "perplexity": "perplexity {:.2f}", "nats": "{:.4f} nats"}
    parts = [
        f"{split} {units[summary['metric']].format(summary[split][summary['metric']])}"
        for split in ("validation", "test")
        if summary[split] is not None
    ]
    return ", ".join(parts) or "no validation data"
