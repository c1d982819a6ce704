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


def test_landscape_imports_only_what_all_layers_share() -> None:
    files = list(Path(entropy_sgd.landscape.__file__).parent.glob("*.py"))
    assert len(files) > 10
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, file
                names = [f"{node.module}.{name.name}" for name in node.names]
            elif isinstance(node, ast.Import):
                names = [name.name for name in node.names]
            else:
                continue
            for name in names:
                shared = ("entropy_sgd.landscape.", "entropy_sgd.arguments", "entropy_sgd.extras")
                allowed = name.startswith(shared)
                assert allowed or not name.startswith("entropy_sgd"), (file, name)
