"""Two replicas against two data-parallel processes, at equal gradients: bytes sent and time.

    python benchmarks/replicas.py [--steps 200] [--width 1000]

Both train the same network on the same mini-batches, each process its own. Bytes are the kernel's count over
all TCP connections of a process. Rounds alternate, and the fastest of each is kept. Both processes share this
machine, and its loopback interface is faster than any network: the time is a lower bound of what is saved.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from common import machine, table, write
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from entropy_sgd import EntropySGD, Replicas

L, PROCESSES, ROUNDS = 20, 2, 3


def bytes_sent() -> int:
    """Over all TCP connections of this process (tcpi_bytes_sent of Linux's TCP_INFO)."""
    total = 0
    for name in list(Path("/proc/self/fd").iterdir()):
        if not name.is_socket():
            continue
        with socket.socket(fileno=os.dup(int(name.name))) as connection:
            if connection.family != socket.AF_UNIX and connection.type == socket.SOCK_STREAM:
                info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                total += struct.unpack_from("Q", info, 200)[0]
    return total


def ddp(model: nn.Module) -> tuple[nn.Module, Any]:
    parallel = DistributedDataParallel(model)
    return parallel, EntropySGD(parallel.parameters(), L=L)


def replicas(**options: Any) -> Callable[[nn.Module], tuple[nn.Module, Any]]:
    return lambda model: (model, Replicas(model.parameters(), L=L, **options))


CANDIDATES: dict[str, Callable[[nn.Module], tuple[nn.Module, Any]]] = {
    "DDP": ddp,
    "Replicas": replicas(rho=0.1),
    "Replicas, bfloat16": replicas(rho=0.1, exchange_dtype=torch.bfloat16),
    "Replicas, rho=inf": replicas(rho=math.inf),
}


def work(steps: int, width: int, file: Path) -> None:
    """One of the processes."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rows = {name: {"seconds": math.inf, "bytes": 0.0} for name in CANDIDATES}
    parameters = 0
    for _ in range(ROUNDS):
        for name, make in CANDIDATES.items():
            torch.manual_seed(0)
            model = nn.Sequential(nn.Linear(784, width), nn.ReLU(), nn.Linear(width, 10))
            parameters = sum(p.numel() for p in model.parameters())
            model, optimizer = make(model)
            step(model, optimizer, 0, 2 * L)  # the first exchange of Replicas is whole, not in 16 bits
            dist.barrier()
            sent, start = bytes_sent(), time.perf_counter()
            step(model, optimizer, 2 * L, 2 * L + steps)
            optimizer.eval()
            dist.barrier()
            row = rows[name]
            row["seconds"] = min(row["seconds"], time.perf_counter() - start)
            row["bytes"] = (bytes_sent() - sent) / steps
    if dist.get_rank() == 0:
        file.write_text(json.dumps({"parameters": parameters, "rows": rows}))
    dist.barrier()
    dist.destroy_process_group()


def step(model: nn.Module, optimizer: Any, first: int, last: int) -> None:
    for i in range(first, last):
        generator = torch.Generator().manual_seed(PROCESSES * i + dist.get_rank())
        inputs = torch.randn(32, 784, generator=generator)
        targets = torch.randint(10, (32,), generator=generator)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=10 * L)
    parser.add_argument("--width", type=int, default=1000)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)  # of a process that torchrun starts
    arguments = parser.parse_args()
    if arguments.file is not None:
        work(arguments.steps, arguments.width, arguments.file)
        return
    before = machine()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows.json")
        command = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            f"--nproc-per-node={PROCESSES}",
        ]
        given = ["--steps", str(arguments.steps), "--width", str(arguments.width), "--file", str(file)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        subprocess.run([*command, __file__, *given], env=environment, check=True)
        measured = json.loads(file.read_text())
    ddp_row = measured["rows"]["DDP"]
    rows = [
        {
            "optimizer": name,
            "bytes per gradient": row["bytes"],
            "of DDP's": row["bytes"] / ddp_row["bytes"],
            "ms a gradient": 1e3 * row["seconds"] / arguments.steps,
            "time of DDP's": row["seconds"] / ddp_row["seconds"],
        }
        for name, row in measured["rows"].items()
    ]
    table(
        f"{measured['parameters']} parameters, L = {L}, {PROCESSES} processes, {arguments.steps} gradients",
        rows,
    )
    settings = {
        "L": L,
        "processes": PROCESSES,
        "gradients": arguments.steps,
        "parameters": measured["parameters"],
    }
    write("replicas", {"machine": before, "settings": settings, "rows": rows})


if __name__ == "__main__":
    main()
