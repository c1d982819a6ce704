"""Writes README's section on the cost of a step from results/bench/optimizer_step.json, as `make bench` does.

python benchmarks/section.py [--check]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCE, README = ROOT / "results" / "bench" / "optimizer_step.json", ROOT / "README.md"
BEGIN, END = "<!-- from results/bench/optimizer_step.json: make bench -->", "<!-- end -->"
STEPS = {
    "Langevin step": "Langevin",
    "the same, `state_dtype=torch.bfloat16`": "Langevin, bfloat16 states",
    "`Adam(fused=True)`": "Adam fused",
    "`SGD(foreach=True)`": "SGD foreach",
    "Langevin step without a compiler": "Langevin foreach",
    "a plain per-tensor transcription": "plain Langevin",
}
CYCLES = {
    "whole cycles of 20, per step": "20 steps / 20 SGD fused",
    "the same, `state_dtype=torch.bfloat16`": "with bfloat16 states",
    "`eval()` and `train()` together": "eval() and train() / SGD fused",
}


def text(measured: dict[str, Any]) -> str:
    """The section, in Markdown."""
    networks = list(dict.fromkeys(row["network"] for row in measured["steps"]))
    threads = [str(t) for t in dict.fromkeys(row["threads"] for row in measured["steps"])]
    machine = measured["machine"]
    lines = [
        f"Times as ratios to one step of `torch.optim.SGD(momentum=0.9, nesterov=True, fused=True)`, with "
        f"{' / '.join(threads)} threads, measured alternately ({machine['processor']}, "
        f"{machine['cores']} cores, {machine.get('instructions', 'no compiled step')}):",
        "",
        f"| | {' | '.join(networks)} |",
        f"|---|{'---|' * len(networks)}",
    ]
    for rows, names in ((measured["steps"], STEPS), (measured["cycles"], CYCLES)):
        for title, key in names.items():
            cells = [" / ".join(f"{r[key]:.2f}" for r in rows if r["network"] == n) for n in networks]
            lines.append(f"| {title} | {' | '.join(cells)} |")
    lines += [
        "",
        "Each number is the median over rounds of the ratio within a round. Steps are timed in turns with "
        "the other optimizers', whole cycles back to back; then SGD's three arrays fit the processor's cache "
        "on larger networks than the five of a Langevin step.",
        "",
        "Optimizer memory in bytes per float32 parameter, measured as growth of the process:",
        "",
        "| | bytes |",
        "|---|---|",
    ]
    lines += [f"| {row['optimizer']} | {row['bytes kept / parameter']:.0f} |" for row in measured["memory"]]
    return "\n".join(lines)


def replaced(readme: str, section: str) -> str:
    """`readme` with this section between the marks."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{section}\n{END}{after}"


def main() -> int:
    """Exit code 1 if `--check` finds README out of date."""
    readme = README.read_text(encoding="utf-8")
    new = replaced(readme, text(json.loads(SOURCE.read_text())))
    if sys.argv[1:] == ["--check"]:
        return int(new != readme)
    README.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
