"""All runs of a list: here, several at once here, or on a Dask cluster; results in the order of the list."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent import futures
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from entropy_sgd.lab import Interrupted, LabError
from entropy_sgd.lab.jobs import child, cluster
from entropy_sgd.lab.jobs.attempt import attempt
from entropy_sgd.lab.jobs.job import Job, Outcome
from entropy_sgd.lab.jobs.lease import Lease
from entropy_sgd.lab.jobs.making import make
from entropy_sgd.lab.jobs.progress import Board, Overall, roughly
from entropy_sgd.lab.runs.folder import read_summary
from entropy_sgd.lab.training.display import say
from entropy_sgd.lab.training.stop import StopSignals

POLL = 0.3
"""Seconds between two looks at signals and progress."""


def run(
    jobs: Sequence[Job],
    home: Path,
    *,
    at_once: int | None = None,
    dask: str | None = None,
    console: Console | None = None,
    ended: Callable[[Outcome], None] | None = None,
    speeds: Mapping[str, float] | None = None,
) -> list[Outcome]:
    """Make every run that is not finished and return how each ended, in the given order.

    A run that diverges has a summary that says so. One that fails has an error; the others go on. After
    Ctrl-C or SIGTERM all save themselves and `Interrupted` is raised.

    Args:
        jobs: the runs, each in a folder of its own. Their recipes should have `threads`: see `fixed_threads`.
        home: a folder that belongs to these runs alone; on a shared file system for `dask`.
        at_once: runs at the same time, each in a process of its own; 1 is this process. None: as many as
            torch would take threads for a single one, of one thread each; on a GPU 1.
        dask: address of a Dask scheduler, whose workers make the runs instead.
        console: where to print.
        ended: called in this process with each outcome as it comes.
        speeds: seconds per epoch of earlier runs by the `kind` of their recipe, for the time left.

    """
    if at_once is not None and at_once < 1:
        raise LabError(f"jobs must be at least 1, got {at_once}")
    if child.RUNNING in os.environ:
        raise LabError(
            "a file that is imported for a run starts runs itself: put that under if __name__ == '__main__'"
        )
    console = console or Console()
    if dask is not None:
        jobs = [_absolute(job) for job in jobs]
        with cluster.executor(dask) as (pool, slots):
            return _apart(jobs, home, pool, Overall(jobs, slots, speeds), console, ended)
    count = min(usual(jobs) if at_once is None else at_once, len(jobs))
    if count <= 1:
        return _here(jobs, Overall(jobs, 1, speeds), console, ended)
    jobs = [_absolute(job) for job in jobs]
    with futures.ThreadPoolExecutor(count) as pool:
        return _apart(jobs, home, pool, Overall(jobs, count, speeds), console, ended)


def usual(jobs: Sequence[Job]) -> int:
    """How many runs share this machine well."""
    import torch

    if any(job.device != "cpu" for job in jobs) and torch.cuda.is_available():
        return 1
    widest = max((job.settings.recipe.threads or torch.get_num_threads() for job in jobs), default=1)
    return max(1, torch.get_num_threads() // widest)


def failures(outcomes: Sequence[Outcome], again: str = "--resume") -> LabError | None:
    """What to tell the user at the end of runs some of which failed; `again` makes those again."""
    failed = [(outcome.job, outcome.error) for outcome in outcomes if outcome.error is not None]
    if not failed:
        return None
    by_reason: dict[str, list[str]] = {}
    for job, error in failed:
        by_reason.setdefault(str(error), []).append(job.title)
    reasons = "\n".join(f"  {', '.join(titles)}: {reason}" for reason, titles in by_reason.items())
    return LabError(f"{len(failed)} of {len(outcomes)} runs failed; {again} tries them again:\n{reasons}")


def _here(
    jobs: Sequence[Job], overall: Overall, console: Console, ended: Callable[[Outcome], None] | None
) -> list[Outcome]:
    """One after the other in this process."""
    outcomes: list[Outcome] = []
    for index, job in enumerate(jobs):
        left = overall.seconds_left()
        rest = "" if not left else f", about {roughly(left)} left in all"
        if len(jobs) > 1:
            say(console, f"run {index + 1} of {len(jobs)}{rest}: {job.title}")
        overall.start(index)
        outcomes.append(_one(job, console))
        overall.end(index, outcomes[-1])
        if ended is not None:
            ended(outcomes[-1])
    return outcomes


def _one(job: Job, console: Console) -> Outcome:
    outcome = make(job, console)
    if isinstance(outcome.error, Interrupted):
        raise outcome.error
    if outcome.error is not None:
        say(console, f"{job.title} failed: {outcome.error}")
    return outcome


def _apart(
    jobs: Sequence[Job],
    home: Path,
    pool: futures.Executor,
    overall: Overall,
    console: Console,
    ended: Callable[[Outcome], None] | None,
) -> list[Outcome]:
    """In processes of their own, `overall.slots` at a time."""
    outcomes: dict[int, Outcome] = {}
    say(console, f"{len(jobs)} runs, {min(overall.slots, len(jobs))} at once")
    with _leased(home) as lease, StopSignals() as stop, Board(console, overall) as board:

        def take(index: int, outcome: Outcome) -> None:
            outcomes[index] = outcome
            board.ended(index, outcome)
            if ended is not None:
                ended(outcome)

        path, here = lease.path.resolve(), Path.cwd()
        waiting: dict[futures.Future[Outcome], int] = {}
        for index, job in enumerate(jobs):
            if finished(job):  # a process would only find that out more slowly
                take(index, _one(job, Console(quiet=True)))
            else:
                waiting[pool.submit(attempt, job, path, lease.token, here)] = index
        while waiting:
            done, _ = futures.wait(waiting, POLL, futures.FIRST_COMPLETED)
            for future in done:
                index = waiting.pop(future)
                take(index, _outcome(jobs[index], future))
            if stop.received is not None:
                lease.end()
                for future in waiting:
                    future.cancel()
                _await_saving(waiting)
                count = sum(outcome.summary is not None for outcome in outcomes.values())
                raise Interrupted(
                    stop.received,
                    f"stopped with {count} of {len(jobs)} runs ended, the others saved: use --resume",
                )
            lease.renew()
            # futures of a cluster say that they run as soon as they are there
            running = [index for future, index in waiting.items() if future.running()]
            seen = [index for index in running if begun(jobs[index])]
            board.update(seen[: overall.slots], started=running[: overall.slots])
    return [outcomes[index] for index in range(len(jobs))]


def begun(job: Job) -> bool:
    """Whether the run has been seen at work."""
    return job.folder.exists()


def finished(job: Job) -> bool:
    """Whether there is nothing left to train."""
    try:
        summary = read_summary(job.folder)
    except LabError:  # damaged: the run itself will say so
        return False
    return summary is not None and summary["status"] == "finished"


def _outcome(job: Job, future: futures.Future[Outcome]) -> Outcome:
    try:
        return future.result()
    except Exception as error:  # of the cluster: a worker that died again and again, a package it lacks
        return Outcome(job, error=LabError(f"{type(error).__name__}: {error}"))


def _await_saving(waiting: Iterable[futures.Future[Outcome]]) -> None:
    """Until the runs that were asked to stop have done so."""
    patience = time.monotonic() + 90
    while any(not future.done() for future in waiting) and time.monotonic() < patience:
        futures.wait(waiting, POLL)


def _absolute(job: Job) -> Job:
    data = None if job.data_dir is None else job.data_dir.resolve()
    return replace(job, folder=job.folder.resolve(), data_dir=data)


@contextmanager
def _leased(home: Path) -> Generator[Lease]:
    lease = Lease(home)
    try:
        yield lease
    finally:
        lease.end()
