from __future__ import annotations

import json

import numpy as np
import pytest

from entropy_sgd.lab.cli import main
from entropy_sgd.lab.spectra.figures import FIGURES, draw


@pytest.fixture(scope="module")
def spectra(adam, sgd, tmp_path_factory):
    """The exact spectrum of one run by small-lenet's recipe, and its Fisher diagonal as if by All-CNN's."""
    folder = tmp_path_factory.mktemp("spectra")
    out = ["--samples", "20", "--out", str(folder)]
    assert main(["spectrum", str(adam), "--method", "exact", *out]) == 0
    assert main(["spectrum", str(sgd), "--method", "lanczos", "--steps", "4", *out]) == 0
    fisher = folder / "allcnn.json"
    assert main(["spectrum", str(adam), "--method", "fisher", "--out", str(fisher)]) == 0
    assert main(["spectrum", str(adam), "--method", "fisher", *out]) == 0  # from samples: not the paper's
    record = json.loads(fisher.read_text())
    fisher.write_text(json.dumps({**record, "recipe": "allcnn/adam"}))
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


def test_the_lines_are_the_histograms(spectra):
    record = json.loads((spectra / "small-lenet-adam-seed3-exact.json").read_text())
    figure = draw(FIGURES["figure-1-small-lenet"], [record, {**record, "seed": 4}])
    for axes, side in zip(figure.axes, ("negative", "centre", "positive"), strict=True):
        assert len(axes.patches) == 2
        values, edges, _ = axes.patches[0].get_data()
        histogram = record["spectrum"]["histograms"][side]
        assert np.nan_to_num(values).tolist() == histogram["counts"]
        assert np.asarray(edges).tolist() == histogram["edges"]
    share = 100 * record["spectrum"]["near_zero"]["0.0001"]
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts[0].startswith(f"seed 3, 20 samples of {record['data']}: {share:.1f} % with |λ| < 0.0001")


def test_a_folder_that_is_not_there(tmp_path, capsys):
    assert main(["figures", str(tmp_path / "nowhere")]) == 2
    assert "nowhere does not exist" in capsys.readouterr().err
