"""The Python in the pages runs, as a reader would run it: block after block."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from textwrap import dedent

import pytest
import torch
from torch import nn

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def run(page: Path, names: dict[str, object]) -> dict[str, object]:
    """Runs all blocks of `page` in one namespace; errors show the page's own line numbers."""
    text = page.read_text()
    blocks = list(BLOCK.finditer(text))
    assert blocks, f"no ```python block in {page}"
    for block in blocks:
        lines_before = text.count("\n", 0, block.start(1))
        exec(compile("\n" * lines_before + block[1], str(page), "exec"), names)
    return names


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Pages write their files to a temporary folder, and leave torch's generator as it was."""
    monkeypatch.chdir(tmp_path)
    with torch.random.fork_rng():
        yield


def test_getting_started(capsys):
    names = run(ROOT / "docs/getting-started.md", {})
    assert names["error"](names["flat"]) < 0.15  # of ten digits, 0.9 is chance
    assert "Entropy-SGD: eigenvalues from" in capsys.readouterr().out
    flat, plain = (names["training_loss"](names[name]) for name in ("flat", "plain"))
    assert 0.7 * plain < flat <= plain  # compared at the same loss


def test_readme():
    torch.manual_seed(0)
    batches = [(torch.randn(16, 4), torch.randint(3, (16,))) for _ in range(8)]
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    names = {
        "model": model,
        "loss_fn": nn.CrossEntropyLoss(),
        "loader": batches,
        "batches": batches,
        "training_batches": [inputs for inputs, _ in batches],
    }
    run(ROOT / "README.md", names)
    assert Path("checkpoint.pt").exists()


def gallery() -> list[tuple[str, str]]:
    """The blocks of the gallery, each with the example that its section names."""
    sections = re.split(r"^## ", (ROOT / "docs/gallery.md").read_text(), flags=re.MULTILINE)[1:]
    return [
        (re.search(r"\]\(\.\./(examples/\w+\.py)\)", s)[1], b) for s in sections for b in BLOCK.findall(s)
    ]


@pytest.mark.parametrize(("example", "block"), gallery())
def test_the_gallery_quotes_its_examples(example, block):
    # The examples themselves are run by other tests.
    lines = [line.strip() for line in (ROOT / example).read_text().splitlines()]
    quoted = [line.strip() for line in dedent(block).splitlines()]
    assert any(lines[i : i + len(quoted)] == quoted for i in range(len(lines))), block


def test_flatness():
    # Against the dense Hessian of torch.func.
    names = runpy.run_path(str(ROOT / "examples/flatness.py"))
    model = names["trained"]()
    measured = names["measure"](model)
    weights = {name: p.detach() for name, p in model.named_parameters()}
    shapes = [(name, p.shape, p.numel()) for name, p in weights.items()]
    points, labels = names["quadrants"](256)

    def loss(flat):
        pieces = torch.split(flat, [n for _, _, n in shapes])
        parameters = {name: piece.view(shape) for (name, shape, _), piece in zip(shapes, pieces, strict=True)}
        return nn.functional.cross_entropy(torch.func.functional_call(model, parameters, points), labels)

    eigenvalues = torch.linalg.eigvalsh(
        torch.func.hessian(loss)(torch.cat([p.flatten() for p in weights.values()]))
    )
    assert measured["largest eigenvalue"] == pytest.approx(eigenvalues[-1].item(), rel=1e-3)
    assert measured["trace of the Hessian"] == pytest.approx(eigenvalues.sum().item(), rel=0.5)
    assert measured["local entropy (higher is wider)"] < 0 < measured["adaptive sharpness"]
