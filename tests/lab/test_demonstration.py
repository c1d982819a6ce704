from __future__ import annotations

import io
import json
from dataclasses import replace

from rich.console import Console

from entropy_sgd.lab import demonstration, recipes


def test_flatness_stands_beside_the_error_and_the_pictures_are_there(tmp_path, monkeypatch):
    tiny = {"train_limit": 96, "batch_size": 32, "epochs": 2, "evaluate_every": 2, "statistics_samples": 64}
    family = recipes.family("demo")
    written = tuple(replace(recipe, **tiny) for recipe in family.written if recipe.method != "adam")
    monkeypatch.setattr(recipes, "family", lambda name: replace(family, written=written))
    monkeypatch.setattr(demonstration, "SEEDS", (0, 1))
    quick = replace(demonstration.FLATNESS, gamma=(1000.0,), samples=20, probes=2, steps=2)
    monkeypatch.setattr(demonstration, "FLATNESS", quick)
    monkeypatch.setattr(demonstration, "PLANE", replace(demonstration.PLANE, points=3, samples=20))
    stream = io.StringIO()
    rows, page = demonstration.demonstrate(tmp_path / "demo", console=Console(file=stream, width=80))
    text = stream.getvalue()
    assert [row.recipe for row in rows] == ["demo/sgd", "demo/entropy-sgd"]
    records = {
        (record["recipe"], record["seed"]): record["spectrum"]["maximum"]
        for record in map(
            json.loads, (p.read_text() for p in (tmp_path / "demo/measured").glob("*laplace.json"))
        )
    }
    for recipe in ("demo/sgd", "demo/entropy-sgd"):
        assert f"{(records[recipe, 0] + records[recipe, 1]) / 2:.4g} ± " in text
    assert "Flattest on average: by the largest eigenvalue" in text
    assert "<h2>Flatness</h2>" in page.read_text()
    for name in ("plane.png", "plane.pdf", "profile.png"):
        assert (page.parent / name).stat().st_size > 1000
