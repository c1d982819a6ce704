"""A run, from the first batch to the summary.

Progress is counted in effective epochs, gradient evaluations x batch / data size, for every method alike,
those of all processes together where there are several. Everything the next step depends on is in the
checkpoint, so that a run that was stopped anywhere continues bit for bit.
"""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TypeGuard

import torch
from rich.console import Console

from entropy_sgd.lab import Diverged, Interrupted, LabError, methods, tasks
from entropy_sgd.lab.data.batches import seed_from
from entropy_sgd.lab.runs import checkpoint, environment, trajectory
from entropy_sgd.lab.runs.folder import WEIGHTS, RunFolder, Settings
from entropy_sgd.lab.runs.records import Record
from entropy_sgd.lab.training import acceleration, starting
from entropy_sgd.lab.training.display import Display, describe, duration, say
from entropy_sgd.lab.training.evaluation import judged_weights
from entropy_sgd.lab.training.gradient import Gradient, generators, set_generators
from entropy_sgd.lab.training.log import Log
from entropy_sgd.lab.training.processes import Processes
from entropy_sgd.lab.training.progress import Progress
from entropy_sgd.lab.training.stop import StopSignals


def train(
    settings: Settings,
    folder: RunFolder,
    *,
    data_dir: Path | None = None,
    device: str = "auto",
    checkpoint_seconds: float = 30.0,
    keep_weights: int = 0,
    console: Console | None = None,
    processes: Processes | None = None,
) -> Record:
    """Train as `settings` say, in `folder`, from its checkpoint if it has one, and return the summary.

    `keep_weights` is how many times along the run the judged weights are kept, for pictures of its way.

    All of `processes` call this; only their lead reads or writes the folder. One process alone starts those
    of a method that has replicas.
    """
    processes = processes or Processes()
    console = (console or Console()) if processes.lead else Console(quiet=True, force_terminal=False)
    summary = processes.first(lambda: folder.summary)
    if _finished(summary):
        say(console, f"{folder.path} is finished already")
        return summary
    count = methods.of(settings.recipe.optimizer).replicas(settings.recipe.optimizer)
    if count > 1 and processes.size == 1:
        given = {
            "data_dir": data_dir,
            "device": device,
            "checkpoint_seconds": checkpoint_seconds,
            "keep_weights": keep_weights,
        }
        return starting.start(count, {"settings": settings, "folder": folder, **given})
    with acceleration.threads(settings.recipe.threads):
        # everything is checked, and the data found, before the folder is touched
        trainer = Trainer(settings, folder, processes, console, data_dir, device)
        with ExitStack() as claimed:
            with processes.together():
                if processes.lead:
                    claimed.enter_context(folder)
            summary = processes.first(lambda: folder.summary)
            if _finished(summary):  # by another process, a moment ago
                return summary
            trainer.resume()
            return trainer.run(checkpoint_seconds, keep_weights)


def _finished(summary: Record | None) -> TypeGuard[Record]:
    return summary is not None and summary["status"] == "finished"


class Trainer:
    """One run that is not finished: prepared on construction, then `resume` and `run`."""

    def __init__(
        self,
        settings: Settings,
        folder: RunFolder,
        processes: Processes,
        console: Console,
        data_dir: Path | None,
        device: str,
    ) -> None:
        self.settings, self.recipe, self.folder = settings, settings.recipe, folder
        self.processes, self.console = processes, console
        self.title = f"{self.recipe.name} seed {settings.seed}"
        options = self.recipe.optimizer
        self.method = methods.of(options)
        self.cost = self.method.evaluations(options)
        self.replicas = self.method.replicas(options)
        if self.replicas not in (1, processes.size):
            raise LabError(f"{self.replicas} replicas need as many processes, got {processes.size}")
        with processes.together():
            chosen = processes.device(device)
            acceleration.require_compiler(self.recipe, chosen)
            self.task = tasks.load(
                self.recipe,
                seed=settings.seed,
                final=settings.final,
                device=chosen,
                data_dir=data_dir,
                share=tasks.Share(processes.rank, processes.size),
            )
            self.steps_per_epoch = self.task.size / (self.task.batch * self.cost)
            self.progress = Progress(max(1, round(self.recipe.epochs * self.steps_per_epoch)))
        with processes.together():  # replicas send weights here: all must have come so far
            self.optimizer = methods.build(
                options, self.task.model, seed=settings.seed, steps=self.progress.total
            )
        self.base_lr = self.optimizer.param_groups[0]["lr"]
        self.notes = self.method.notes(options, self.progress.total)
        self.judged: dict[str, float] | None = None
        """The evaluation at the last step, if this process has made it."""

    # ---- before the first step ----

    def resume(self) -> None:
        """Make the forward pass ready, then go to where the checkpoint is, if there is one."""
        processes, task = self.processes, self.task
        if not processes.lead:  # the same initial weights, and a dropout of its own
            torch.manual_seed(seed_from(f"{self.settings.seed} rank {processes.rank}"))
        own = self._own_state()
        self._wrap()
        saved, complaints = processes.first(self._saved)
        self.metrics_size = 0
        self.greeting = [f"note: {note}" for note in processes.first(lambda: self.folder.notes)]
        self.greeting += [f"note: {text}: the previous one is used" for text in complaints]
        with processes.together(), self._fitting():
            if saved is not None:
                self.progress = Progress.read(saved, self.progress.total)
                self.metrics_size = int(saved["metrics_size"])
                before = 1 + sum("model" in other for other in saved["others"])
                own = self._take_over(saved) if before == self.replicas else self._change(saved, before)
                self.greeting.append(f"resumed at step {self.progress.step} of {self.progress.total}")
            task.load_state_dict(own["task"])
            set_generators(own["generators"])
        self.greeting += [f"note: {note}" for note in self.notes]

    def _take_over(self, saved: Record) -> Record:
        """Go on from a checkpoint; the state this process has for itself."""
        own = saved if self.processes.lead else saved["others"][self.processes.rank - 1]
        trained = own if self.replicas > 1 else saved
        self.task.model.load_state_dict(trained["model"])
        self.optimizer.load_state_dict(trained["optimizer"])
        return own

    def _saved(self) -> tuple[Record | None, list[str]]:
        """The checkpoint, where a run is continued."""
        if not self.folder.resumed:
            return None, []
        return checkpoint.load(self.folder.path, asdict(self.settings))

    @contextmanager
    def _fitting(self) -> Generator[None]:
        """Inside, a checkpoint is taken over; one whose contents do not fit this run is refused."""
        try:
            yield
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise LabError(
                f"the checkpoint in {self.folder.path} does not fit this run ({type(error).__name__}: "
                f"{reason}): it is from another run, or damaged. Use --overwrite to train again."
            ) from error

    def _change(self, saved: Record, before: int) -> Record:
        """Go on from a checkpoint of another number of replicas; the state this process has for itself.

        All start from the mean x̄, with the next pass over the data; the budget still counts gradients.
        """
        self.progress.change_replicas(
            before,
            self.replicas,
            cost=self.cost,
            steps_per_epoch=self.steps_per_epoch,
            epochs=self.recipe.epochs,
        )
        self.task.model.load_state_dict(saved["model"])
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"state_dict: saved with (\d|rho)", UserWarning)  # see the note
            self.optimizer.load_state_dict(saved["optimizer"])
        self.task.begin_pass_after(saved["task"])
        here = f"rank {self.processes.rank} step {self.progress.step}"
        torch.manual_seed(seed_from(f"{self.settings.seed} {here}"))
        self.greeting.append(
            f"note: there were {before} replicas and are now {self.replicas}: all start from the mean weights"
        )
        return {"task": self.task.state_dict(), "generators": generators()}

    def _wrap(self) -> None:
        """Let training batches go through DistributedDataParallel and the compiler, where they are wanted."""
        apart = self.replicas > 1
        self.task.forward = self.task.model if apart else self.processes.parallel(self.task.model)
        if self.recipe.compile:
            say(self.console, f"compiling {self.recipe.network}, which may take a minute")
            acceleration.compile_forward(self.task)
        if (self.processes.size > 1 and not apart) or self.recipe.compile:
            # DDP orders its sums by the arrival of the first gradients it sees. These are for that alone, or
            # the first step of a resumed run would be rounded in another order than that of one never
            # stopped. What cannot be compiled shows here too, before anything is written.
            with self.processes.together():
                acceleration.try_out(self.task)

    def _own_state(self) -> Record:
        """What each process has for itself."""
        own = {"task": self.task.state_dict(), "generators": generators()}
        return {**own, **self._weights()} if self.replicas > 1 else own

    def _weights(self) -> Record:
        return {"model": self.task.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    # ---- the run ----

    def run(self, checkpoint_seconds: float, keep_weights: int = 0) -> Record:
        """Take all steps that are left and write the summary."""
        recipe, processes = self.recipe, self.processes
        planned = max(1, round(recipe.epochs * self.steps_per_epoch))
        self.kept = trajectory.steps(keep_weights, planned) if keep_weights else set[int]()
        files = ExitStack()
        try:
            with processes.together():
                if processes.lead:
                    self.folder.begin()
                    self.log = files.enter_context(
                        closing(Log(self.folder.path, self.metrics_size, self.progress.step))
                    )
            display = Display(self.console, self.title, recipe.epochs, recipe.metric)
            with StopSignals() as self.stop, display as self.display:
                for line in self.greeting:
                    display.say(line)
                self._steps(checkpoint_seconds)
                summary = processes.first(self._conclude)
                took = duration(self.progress.seconds)
                display.say(f"{self.title}: {describe(summary)} in {took}: {self.folder.path}")
                (signum,) = processes.max(self.stop.received or 0)
                if signum:  # so that a comparison does not start the next run
                    raise Interrupted(int(signum), f"stopped after the end of {self.title}")
                return summary
        except Diverged as error:
            known = {"recipe": recipe.name, "seed": self.settings.seed}
            reason = {"status": "diverged", **known, "reason": str(error)}
            processes.first(lambda: self.folder.write_summary(reason))
            kept = f"The last good checkpoint is kept in {self.folder.path}."
            left = processes.first(lambda: checkpoint.left(self.folder.path, kept))
            raise Diverged(f"{self.title}: {error}. {left}") from None
        except OSError as error:
            why, left = error.strerror or error, checkpoint.left(self.folder.path)
            raise LabError(f"cannot continue writing to {self.folder.path}: {why}. {left}") from error
        finally:
            files.close()

    def _steps(self, checkpoint_seconds: float) -> None:
        """Step, measure and save until the end, or until a signal comes."""
        recipe, progress, processes = self.recipe, self.progress, self.processes
        before = saved_at = time.monotonic()
        pause = checkpoint_seconds
        while progress.step < progress.total:
            if progress.step in self.kept:
                processes.first(self._keep)
            lr = self._step()
            if progress.step == progress.total:
                self.method.finish(self.optimizer)
            now = time.monotonic()
            # a suspended or virtual machine's clock may jump, and no time is negative
            progress.seconds += max(0.0, now - before)
            before, saved_at = now, min(saved_at, now)
            self.display.advance(self.epoch, now)
            evaluating = progress.step == progress.total or self._passes(recipe.evaluate_every)
            if evaluating or self._passes(recipe.log_every):
                self.judged, reached = processes.first(partial(self._measure, lr, evaluating=evaluating))
                progress.losses, progress.count = 0.0, 0
                if reached:
                    progress.total = progress.step
            # a signal or a clock of one process counts for all
            signum, due = processes.max(self.stop.received or 0, now - saved_at >= pause)
            if signum or due or progress.step == progress.total:
                began = time.monotonic()
                states = processes.gather(self._own_state())
                processes.first(partial(self._save, *states))
                saved_at = time.monotonic()
                if checkpoint_seconds > 0:
                    # saving large networks must not take more than a twentieth of the time
                    pause = max(checkpoint_seconds, 20 * (saved_at - began))
            if signum and progress.step < progress.total:
                where = f"step {progress.step} of {progress.total}"
                raise Interrupted(int(signum), f"stopped at {where}, and saved: use --resume")

    def _step(self) -> float:
        """One step of the method on the next batch; returns its learning rate."""
        lr = self.base_lr * self.recipe.drops.scale(self.epoch)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        gradient = Gradient(
            self.task,
            self.processes,
            clip_norm=self.recipe.clip_norm,
            repeated=self.cost > 1,
            where=f"step {self.progress.step + 1} of {self.progress.total}",
        )
        self.method.step(self.optimizer, gradient)
        self.progress.step += 1
        self.progress.losses += gradient.value
        self.progress.count += 1
        return lr

    @property
    def epoch(self) -> float:
        """Effective epochs so far."""
        return self.progress.epoch(self.steps_per_epoch)

    def _passes(self, period: float) -> bool:
        """Whether the last step reached a whole multiple of `period` effective epochs."""
        return self.progress.passes(period, self.steps_per_epoch)

    # ---- in the lead alone, as the files are ----

    def _measure(self, lr: float, *, evaluating: bool) -> tuple[dict[str, float] | None, bool]:
        """Write a line of metrics; also the evaluation, and whether `stop_at_loss` is reached."""
        progress, task, wanted = self.progress, self.task, self.recipe.stop_at_loss
        record: Record = {
            "step": progress.step,
            "epoch": self.epoch,
            "loss": progress.losses / progress.count,
            "lr": lr,
            "seconds": progress.seconds,
            **self.method.diagnostics(self.optimizer),
        }
        judged, reached = None, False
        if evaluating and task.validated:
            with judged_weights(task, self.method, self.optimizer):
                judged = task.judge("validation")
            if not math.isfinite(judged["loss"]):
                raise Diverged(f"a validation loss of {judged['loss']} at {self._where}")
            record |= {"validation_loss" if key == "loss" else key: judged[key] for key in judged}
        if evaluating and wanted is not None:
            with judged_weights(task, self.method, self.optimizer):
                record["training_loss"] = task.judge("training")["loss"]
            reached = record["training_loss"] <= wanted
            if not reached and progress.step == progress.total:
                self.display.say(
                    f"note: the training loss, {record['training_loss']:.4g}, is still above stop_at_loss, "
                    f"{wanted:g}"
                )
        self.log.write(record)
        self.display.show(record, evaluated=evaluating)
        return judged, reached

    @property
    def _where(self) -> str:
        return f"step {self.progress.step} of {self.progress.total}"

    def _save(self, lead: Record, *others: Record) -> None:
        """Write a checkpoint of weights that are finite."""
        state = {**self._weights(), **lead}
        for rank, own in enumerate((state, *others)):
            if not all(bool(value.isfinite().all()) for value in own.get("model", {}).values()):
                whose = f" of replica {rank}" if self.replicas > 1 else ""
                raise Diverged(f"weights{whose} that are not finite at {self._where}")
        counts = {**asdict(self.progress), "metrics_size": self.log.sync()}
        settings = json.loads(json.dumps(asdict(self.settings)))
        checkpoint.save(self.folder.path, {**counts, **state, "others": others, "settings": settings})
        self.folder.saved()

    def _keep(self) -> None:
        """Keep the judged weights of this step."""
        with self.method.judged(self.optimizer):
            trajectory.keep(self.folder.path, self.progress.step, self.task.model)

    def _conclude(self) -> Record:
        """Keep the judged weights, judge them, on the test set too if the run is final; the summary."""
        task, settings, judged = self.task, self.settings, self.judged
        with judged_weights(task, self.method, self.optimizer):
            weights = task.model.state_dict()
            checkpoint.write(self.folder.path / WEIGHTS, weights)
            if judged is None and task.validated:
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
                "gradient_evaluations": self.progress.evaluations(self.cost * self.replicas),
                "epochs": self.epoch,
                "seconds": self.progress.seconds,
                "peak_memory_bytes": environment.peak_memory(),
            }
        self.folder.write_summary(summary)
        return summary
