"""The Triton kernels: run in the interpreter, compiled for GPUs that are not here; and without Triton."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest
import torch

from entropy_sgd.optim import triton_step

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

TYPES = {"table": "*i64", "pairs": "*i64", "blocks": "*i32", "sums": "*fp32", "out": "*fp32"}
TYPES |= dict.fromkeys(("k0", "k1", "t", "l", "seed", "seed_high"), "i32")
TARGETS = {"sm_80": ("cuda", 80, 32), "sm_90": ("cuda", 90, 32), "gfx942": ("hip", "gfx942", 64)}
LANGEVIN = {"MOMENTUM": True, "NESTEROV": True, "NOISE": True, "MEAN": True, "TILES": 16}
KERNELS = {
    "float32": ("langevin", {**LANGEVIN, "HALF_STATE": False, "HALF_WEIGHTS": False}),
    "bfloat16 states": ("langevin", {**LANGEVIN, "HALF_STATE": True, "HALF_WEIGHTS": False}),
    "outer": (
        "outer",
        {
            "MOMENTUM": True,
            "NESTEROV": True,
            "MEAN": True,
            "HALF_STATE": False,
            "HALF_WEIGHTS": False,
            "SIZE": 1024,
        },
    ),
    "sketch": ("sketch", {"SUM": True, "HALF_A": False, "HALF_B": False, "TILES": 16, "BUCKETS": 4096}),
}
ELEMENTS = {"cuda": 4, "hip": 4}  # of a thread


def compiled(name: str, flags: dict[str, object], target: tuple[str, int | str, int]):
    import triton
    from triton.backends.compiler import GPUTarget

    from entropy_sgd.optim import triton_kernels

    function = getattr(triton_kernels, name)
    signature = {n: "constexpr" if n in flags else TYPES.get(n, "fp32") for n in function.arg_names}
    source = triton.compiler.ASTSource(function, signature=signature, constexprs=flags)
    return triton.compile(source, target=GPUTarget(*target), options=triton_step.OPTIONS)


def resources(kernel) -> dict[str, int]:
    """Registers and spilled bytes of a thread, and its instructions, from the machine code."""
    if "amdgcn" in kernel.asm:
        text = kernel.asm["amdgcn"]
        number = {name: int(value) for name, value in re.findall(r"\.(\w+):\s+(\d+)$", text, re.MULTILINE)}
        body = [line for line in text.splitlines() if re.match(r"\t[a-z]\w+_\w+", line)]
        spilled = (
            number["vgpr_spill_count"] + number["sgpr_spill_count"] + number["private_segment_fixed_size"]
        )
        return {"registers": number["vgpr_count"], "spilled": spilled, "instructions": len(body)}
    import triton

    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        usage, code = (
            subprocess.run(
                [tools / tool, *options, file.name], capture_output=True, text=True, check=True
            ).stdout
            for tool, options in (("cuobjdump", ["--dump-resource-usage"]), ("nvdisasm", ["-c"]))
        )
    (registers, stack, local) = re.search(r"REG:(\d+) STACK:(\d+) .*LOCAL:(\d+)", usage).groups()
    operations = re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(\w+)", code, re.MULTILINE)
    count = Counter(operations)
    assert not {"LDL", "STL"} & set(count)
    return {
        "registers": int(registers),
        "spilled": int(stack) + int(local),
        "instructions": len(operations) - count["NOP"],
    }


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", KERNELS)
def test_the_kernels_compile_without_spills(name, target, record_property):
    found = resources(compiled(*KERNELS[name], TARGETS[target]))
    per_element = found["instructions"] / ELEMENTS[TARGETS[target][0]]
    record_property("registers", found["registers"])
    record_property("instructions an element", per_element)
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
