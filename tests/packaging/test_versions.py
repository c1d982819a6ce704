"""Versions agree wherever they are named."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def pins() -> dict[str, Version]:
    lines = (ROOT / "constraints.txt").read_text().split()
    return {
        canonicalize_name(name): Version(version) for name, version in (line.split("==") for line in lines)
    }


def oldest(requirements: list[str]) -> dict[str, Version]:
    """The lower bounds of some requirements."""
    found = {}
    for requirement in map(Requirement, requirements):
        bounds = [Version(s.version) for s in requirement.specifier if s.operator in (">=", "==")]
        if bounds:
            found[requirement.name] = max(bounds)
    return found


def test_modules_ask_for_the_versions_of_the_extra():
    extra = oldest(PROJECT["optional-dependencies"]["frameworks"])
    asked = {}
    for module in (ROOT / "src/entropy_sgd/frameworks").glob("*.py"):
        asked.update(re.findall(r'^require\("(\w+)", "([\d.]+)"\)', module.read_text(), re.MULTILINE))
    assert asked.keys() >= {"lightning", "transformers"}
    for name, version in asked.items():
        assert Version(version).release[:2] == extra[name].release[:2], name


def test_torch_is_claimed_from_the_version_that_is_tested():
    assert oldest(PROJECT["dependencies"])["torch"].release == pins()["torch"].release[:2]


def test_numpy_is_claimed_from_the_version_of_make_oldest():
    (version,) = re.findall(r"numpy==([\d.]+)", (ROOT / "Makefile").read_text())
    assert oldest(PROJECT["dependencies"])["numpy"] == Version(version)


def test_every_package_that_is_installed_for_development_is_pinned():
    known = pins()
    extras = PROJECT["optional-dependencies"]
    todo = [(Requirement(r), "") for r in [*PROJECT["dependencies"], *extras["dev"]]]
    seen = set()
    while todo:
        requirement, extra = todo.pop()
        name = canonicalize_name(requirement.name)
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        for part in ("", *requirement.extras):
            if (name, part) in seen:
                continue
            seen.add((name, part))
            if name == "entropy-sgd":
                todo += [(Requirement(r), "") for r in extras.get(part, [])]
            elif name not in ("torchvision", "pip"):  # torchvision is removed again, see the Makefile
                assert name in known, f"{name}, which {part or 'the environment'} needs"
                todo += [(Requirement(r), part) for r in metadata.requires(name) or []]


def test_the_citation_names_the_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["license"] == PROJECT["license"]
    assert citation["title"].startswith(PROJECT["name"])
    assert "1611.01838" in str(citation["references"])
    assert "version" not in citation  # it stands in src/entropy_sgd/__init__.py alone
