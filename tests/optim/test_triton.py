"""The Triton kernels: run in the interpreter, compiled for GPUs that are not here; and without Triton."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from entropy_sgd.optim import triton_step
from gpu_code import ELEMENTS, KERNELS, TARGETS, compiled, resources

HERE = Path(__file__).parent


def test_the_kernels_in_the_interpreter():
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        str(HERE / "interpreted_triton.py"),
    ]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=HERE.parent.parent)
    assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-2000:]
    assert " passed" in run.stdout


# ---- ahead of time: no GPU is needed to see what its compiler makes of a kernel ----


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", KERNELS)
def test_the_kernels_compile_without_spills(name, target, record_property):
    found = resources(compiled(*KERNELS[name], TARGETS[target]))
    per_element = found["instructions"] / ELEMENTS
    record_property("registers", found["registers"])
    record_property("instructions per element", per_element)
    assert found["spilled"] == 0
    assert found["registers"] <= 64  # half of the threads an SM can hold, enough to hide memory
    assert per_element < 300


@pytest.mark.parametrize("half", [False, True])
def test_the_compiler_fuses_no_multiplication_of_the_noise(half):
    """PTX says how each operation is rounded: seven fused multiply-adds an element, all written by hand."""
    name = "bfloat16 states" if half else "float32"
    ptx = compiled(*KERNELS[name], TARGETS["sm_80"]).asm["ptx"]
    assert ptx.count("fma.rn.f32") == 7 * 4
    assert not re.search(r"\b(add|sub|mul|div|sqrt)(\.ftz|\.approx|\.full)*\.f32", ptx)


# ---- where Triton is missing or does not work ----


def test_fused_without_triton_is_an_error_that_names_it(monkeypatch):
    monkeypatch.setattr(triton_step, "installed", lambda: False)
    with pytest.raises(RuntimeError, match=r"fused=True.*cuda:0 needs Triton, which is not installed"):
        triton_step.require(torch.device("cuda", 0))
    triton_step.require(torch.device("cpu"))
