from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import entropy_sgd.landscape


def test_landscape_needs_torch_and_numpy_only() -> None:
    """SciPy waits until it is needed."""
    code = (
        "import sys, torch, numpy; before = set(sys.modules); import entropy_sgd.landscape; "
        "new = {name.split('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names); "
        "print(sorted(new), 'entropy_sgd.lab' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "['entropy_sgd'] False"


def test_landscape_imports_nothing_else_of_the_project() -> None:
    files = list(Path(entropy_sgd.landscape.__file__).parent.glob("*.py"))
    assert len(files) > 10
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert node.level <= 1, file
                assert not (node.module or "").startswith("entropy_sgd"), file
            elif isinstance(node, ast.Import):
                assert not any(name.name.startswith("entropy_sgd") for name in node.names), file
