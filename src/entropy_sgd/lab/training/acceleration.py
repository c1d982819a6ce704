"""What changes the speed of a run, its rounding and what dropout draws, but not what it computes.

This module has threads and `torch.compile`. The third such setting, the layout of images, is part of the
batches: see tasks/images.py.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

import torch

from entropy_sgd.lab import LabError
from entropy_sgd.lab.recipes import Recipe
from entropy_sgd.lab.tasks import Task


def check_threads(count: int | None) -> None:
    """Refuse more threads than make sense: thousands of them stall torch, or end it."""
    most = max(64, 8 * (os.cpu_count() or 1))
    if count is not None and count > most:
        raise LabError(f"threads must be at most {most} on this machine, got {count}")


@contextmanager
def threads(count: int | None) -> Generator[None]:
    """Inside, torch computes with `count` threads, or with as many as before if None.

    The number belongs to the whole process, so it is put back afterwards.
    """
    if count is None:
        yield
        return
    check_threads(count)
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def require_compiler(recipe: Recipe, device: torch.device) -> None:
    """Refuse to compile where there is no compiler."""
    if not recipe.compile or device.type != "cpu":  # for a GPU torch brings its own compiler
        return
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        get_cpp_compiler()
    except (RuntimeError, OSError) as error:
        raise LabError(
            f"compile needs a C++ compiler, and none was found ({error}): install one (g++), name it in the "
            "environment variable CXX, or train without compile"
        ) from error


def compile_forward(task: Task) -> None:
    """Let training batches go through a compiled network; `task.model` itself stays as it is.

    So the names in its `state_dict` stay too, and evaluations, whose batches differ in size, need no
    compiling. Weights are arguments of the compiled network, not constants, so it sees what optimizers
    write into them. It is compiled at the first batch, whose shape all batches of training have.
    """
    # Every further network of a class is compiled beside those before it, and after eight torch gives up in
    # silence: a comparison has more runs than that.
    torch.compiler.reset()
    task.forward = torch.compile(task.forward, dynamic=False)


def try_out(task: Task) -> None:
    """Compute one gradient and drop it, so that wrappers set themselves up; weights and statistics stay."""
    untouched = {name: value.clone() for name, value in task.model.state_dict().items()}
    try:
        task.loss(task.draw()).backward()
    except RuntimeError as error:
        # torch's own errors of compilation can only be named after importing its compiler, which is slow
        if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
            raise
        reason = str(error).strip().partition("\n")[0]
        raise LabError(f"torch.compile fails on this network: {reason}. Train without compile.") from error
    task.model.load_state_dict(untouched)
