"""What compilers for GPUs make of the Triton kernels; no GPU is needed.

python tests/gpu_code.py          the table of docs/devices.md
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

from entropy_sgd.optim import triton_step

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
ELEMENTS = 4  # of a thread


def compiled(name: str, flags: dict[str, object], target: tuple[str, int | str, int]):
    import triton
    from triton.backends.compiler import GPUTarget

    from entropy_sgd.optim import triton_kernels

    function = getattr(triton_kernels, name)
    signature = {n: "constexpr" if n in flags else TYPES.get(n, "fp32") for n in function.arg_names}
    source = triton.compiler.ASTSource(function, signature=signature, constexprs=flags)
    # wavefronts of AMD are twice as wide: half as many for as many threads
    options = {**triton_step.OPTIONS, "num_warps": 256 // target[2]}
    return triton.compile(source, target=GPUTarget(*target), options=options)


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


def main() -> None:
    print("| kernel | target | registers | spilled bytes | instructions per element |")
    print("|---|---|---|---|---|")
    for name, kernel in KERNELS.items():
        for target, description in TARGETS.items():
            found = resources(compiled(*kernel, description))
            each = found["instructions"] / ELEMENTS
            print(f"| {name} | {target} | {found['registers']} | {found['spilled']} | {each:.0f} |")


if __name__ == "__main__":
    main()
