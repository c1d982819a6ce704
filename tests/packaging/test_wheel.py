"""The names and contents of wheels and source archives, built from the files of the checkout."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_string
from pathlib import Path
from sysconfig import get_platform

import pytest

import entropy_sgd

ROOT = Path(__file__).parents[2]


def build(what: str, source: Path, to: Path, **environment: str) -> Path:
    """What the build backend makes of `source`, without an isolated environment and so without a network."""
    code = f"from setuptools import build_meta; print(build_meta.build_{what}({str(to)!r}))"
    made = subprocess.run(
        [sys.executable, "-c", code],
        cwd=source,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return to / made.stdout.split()[-1]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """An unpacked source archive: what it lacks, no wheel can have."""
    folder = tmp_path_factory.mktemp("source")
    checkout = folder / "checkout"
    shutil.copytree(
        ROOT / "src", checkout / "src", ignore=shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__")
    )
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout)
    archive = build("sdist", checkout, folder)
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def libraries(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as opened:
        return [name for name in opened.namelist() if name.endswith((".so", ".pyd", ".dylib"))]


def test_the_compiled_wheel_is_named_for_its_platform_alone(source, tmp_path):
    wheel = build("wheel", source, tmp_path)
    platform = get_platform().replace("-", "_").replace(".", "_")
    assert wheel.name == f"entropy_sgd-{entropy_sgd.__version__}-py3-none-{platform}.whl"
    assert libraries(wheel) == ["entropy_sgd/optim/_kernel.so"]
    with zipfile.ZipFile(wheel) as opened:
        library = ctypes.CDLL(opened.extract("entropy_sgd/optim/_kernel.so", tmp_path))
    assert library.entropy_version() > 0


def test_without_a_compiler_the_wheel_has_another_name(source, tmp_path):
    # A library left over from the test above must not get into it.
    wheel = build("wheel", source, tmp_path, CC="/no/compiler")
    assert wheel.name == f"entropy_sgd-{entropy_sgd.__version__}-py3-none-any.whl"
    assert libraries(wheel) == []
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
        (about,) = [message_from_string(opened.read(n).decode()) for n in names if n.endswith("/METADATA")]
    assert about["Version"] == entropy_sgd.__version__
    assert "entropy_sgd/py.typed" in names
    modules = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src/entropy_sgd").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == modules
