"""Makes one run in this process, and says how it ended."""

from __future__ import annotations

from rich.console import Console

from entropy_sgd.lab import Diverged, LabError
from entropy_sgd.lab.jobs.job import Job, Outcome
from entropy_sgd.lab.runs.folder import RunFolder
from entropy_sgd.lab.training.display import say
from entropy_sgd.lab.training.trainer import train


def make(job: Job, console: Console) -> Outcome:
    """Train, from where the run in the folder is; the error of an outcome may be `Interrupted`."""
    try:
        folder = RunFolder(job.folder, job.settings, resume=True)
        try:
            summary = train(
                job.settings,
                folder,
                data_dir=job.data_dir,
                device=job.device,
                checkpoint_seconds=job.checkpoint_seconds,
                console=console,
            )
        except Diverged as error:
            say(console, f"note: {error}")
            summary = folder.summary
        return Outcome(job, summary)
    except LabError as error:
        return Outcome(job, error=error)
    except OSError as error:  # no permission, no space: the message has the file
        return Outcome(job, error=LabError(str(error)))
