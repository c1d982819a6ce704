from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from entropy_sgd.lab.cli import main
from entropy_sgd.lab.spectra import condense
from entropy_sgd.lab.spectra.figures import FIGURES, INSETS, Panel, draw

FIGURE_1 = FIGURES["figure-1-small-lenet"]


def made_up(recipe, method, seed=0, *, network=None, negative=True):
    """A measurement like that of a network: most of it near zero, a short and a long tail."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(2000, generator=generator, dtype=torch.float64) * 1e-5
    values[:200] = torch.rand(200, generator=generator, dtype=torch.float64) ** 8 * 40
    values[200:240] = -(torch.rand(40, generator=generator, dtype=torch.float64) ** 4) / 2
    return {
        "recipe": recipe,
        "method": method,
        "seed": seed,
        "network": network or recipe.partition("/")[0],
        "data": "mnist",
        "samples": 1024,
        "parameters": 2000,
        "spectrum": condense.eigenvalues(values if negative else values.abs()),
    }


@pytest.fixture
def spectra(tmp_path):
    """What Fig. 1 and Fig. 3c show, in two runs and one, among files that neither shows."""
    folder = tmp_path / "spectra"
    folder.mkdir()
    records = [
        made_up("small-lenet/adam", "exact", 3),
        made_up("small-lenet/adam", "exact", 4),
        made_up("allcnn/adam", "fisher", negative=False),
        made_up("small-lenet/adam", "exact", 5, network="lenet"),
        made_up("small-lenet/entropy-sgd", "exact"),
        made_up("small-lenet/sgd", "exact"),
        made_up("small-mnistfc/sgd", "lanczos"),
        made_up("small-mnistfc/entropy-sgd", "exact"),
        made_up("allcnn/adam", "fisher-samples"),
    ]
    for i, record in enumerate(records):
        (folder / f"{i}.json").write_text(json.dumps(record))
    entropy = {"recipe": "small-lenet/adam", "network": "small-lenet", "method": "laplace"}
    (folder / "entropy.json").write_text(json.dumps({**entropy, "local_entropy": []}))
    return folder


def test_what_is_there_is_drawn_and_what_is_not_is_named(spectra, tmp_path, capsys):
    out = tmp_path / "new" / "images"
    assert main(["figures", str(spectra), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    drawn = ("figure-1-small-lenet", "figure-3c-allcnn")
    assert {path.name for path in out.iterdir()} == {
        f"{name}.{end}" for name in drawn for end in ("png", "pdf")
    }
    assert (out / "figure-1-small-lenet.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "figure-3c-allcnn.pdf").read_bytes().startswith(b"%PDF")
    for name in set(FIGURES) - set(drawn):
        assert f"missing: {name}, " in printed


def test_only_the_papers_runs_are_shown(spectra):
    records = [json.loads(path.read_text()) for path in sorted(spectra.iterdir())]
    shown = {name: [r["seed"] for r in records if panel.shows(r)] for name, panel in FIGURES.items()}
    assert list(shown.values()) == [[3, 4], [], [], [0]]


def test_a_measured_file_is_drawn(adam, tmp_path, capsys):
    """As `entropy-sgd spectrum` writes it; but the run is not of small-LeNet, though by its recipe."""
    path = tmp_path / "spectra" / "it.json"
    assert main(["spectrum", str(adam), "--method", "exact", "--samples", "9", "--out", str(path)]) == 0
    path.write_text(json.dumps({**json.loads(path.read_text()), "network": "small-lenet"}))
    capsys.readouterr()
    assert main(["figures", str(path.parent), "--out", str(tmp_path)]) == 0
    assert str(tmp_path / "figure-1-small-lenet.png") in capsys.readouterr().out


def test_the_steps_are_the_histograms():
    records = [made_up("small-lenet/adam", "exact", seed) for seed in (3, 4)]
    (centre,) = draw(FIGURE_1, records).axes
    for axes, side in zip((centre, *centre.child_axes), ("centre", *INSETS), strict=True):
        assert axes.get_yscale() == "log"
        outlines = [patch for patch in axes.patches if not patch.get_fill()]
        for outline, record in zip(outlines, records, strict=True):
            histogram = record["spectrum"]["histograms"][side]
            counts, edges, _ = outline.get_data()
            assert [count if count > 0.5 else 0 for count in counts] == histogram["counts"]
            assert np.asarray(edges).tolist() == histogram["edges"]


def test_the_words_say_share_and_range():
    found = made_up("small-lenet/adam", "exact", 3)
    found["spectrum"] |= {"minimum": -0.4567, "maximum": 39.87, "near_zero": {"0.0001": 0.9412}}
    figure = draw(FIGURE_1, [found])
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["seed 3: 94.1 %, −0.457 to 39.9"]
    assert "$10^{-4}$" in legend.get_title().get_text()
    title = "small-LeNet, Hessian: 2,000 weights, 1,024 samples of mnist"
    assert figure.get_suptitle() == title
    assert draw(FIGURE_1, [found, {**found, "samples": 9}]).get_suptitle() == f"{title}; 9 samples of mnist"


@pytest.mark.parametrize("panel", FIGURES.values(), ids=FIGURES)
def test_each_threshold_of_the_paper_was_counted(panel: Panel):
    record = made_up(panel.recipe, panel.method)
    share = 100 * record["spectrum"]["near_zero"][f"{10.0**panel.exponent:g}"]
    text = draw(panel, [record]).legends[0].get_texts()[0].get_text()
    assert text.startswith(f"seed 0: {share:.1f} %")


@pytest.mark.parametrize("width", [1e-5, 1.0], ids=["narrow", "wide"])
@pytest.mark.parametrize("runs", [1, 5])
def test_the_insets_cover_nothing_and_the_words_fit(width, runs):
    values = torch.randn(100_000, dtype=torch.float64) * width
    values[:1000] = torch.rand(1000, dtype=torch.float64) * 40
    record = {**made_up("small-lenet/adam", "exact"), "spectrum": condense.eigenvalues(values)}
    figure = draw(FIGURE_1, [{**record, "seed": seed} for seed in range(runs)])
    figure.draw_without_rendering()
    (centre,) = figure.axes
    counts, edges, _ = centre.patches[1].get_data()
    for inset in centre.child_axes:
        box = inset.get_tightbbox()
        for count, left, right in zip(counts, edges, edges[1:], strict=False):
            (x0, top), (x1, _) = centre.transData.transform([(left, count), (right, count)])
            assert x1 < box.x0 or x0 > box.x1 or top < box.y0
    legend = figure.legends[0].get_window_extent()
    assert figure.bbox.x0 <= legend.x0 < legend.x1 <= figure.bbox.x1
    assert figure.bbox.y0 <= legend.y0


def test_without_a_negative_entry_there_is_one_inset():
    (centre,) = draw(FIGURES["figure-3c-allcnn"], [made_up("allcnn/adam", "fisher", negative=False)]).axes
    assert [inset.get_title() for inset in centre.child_axes] == ["positive tail, whole"]


def test_a_folder_that_is_not_there(tmp_path, capsys):
    assert main(["figures", str(tmp_path / "nowhere")]) == 2
    assert "nowhere does not exist" in capsys.readouterr().err
