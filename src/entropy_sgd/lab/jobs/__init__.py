"""Many runs at once: processes of this machine, or of a Dask cluster.

job.py        a run to be made, and how it ended
making.py     makes one run
child.py      the process that does so
attempt.py    starts that process and waits for it: on this machine, or on a worker of a cluster
lease.py      tells attempts that somebody still wants them
progress.py   how far all runs are, and how long they still take
running.py    all runs of a list, in their order

A run has its own process, because torch's generators, threads and compiler belong to a whole process. Threads
decide the rounding of a run, so their number is a setting of the run (`fixed_threads`), one by default,
and does not depend on how many runs there are at once. That makes results bit-identical with one job and
with many.
"""

from __future__ import annotations

from entropy_sgd.lab.jobs.job import Job, Outcome, fixed_threads
from entropy_sgd.lab.jobs.running import failures, run

__all__ = ["Job", "Outcome", "failures", "fixed_threads", "run"]
