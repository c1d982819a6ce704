from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from rich.console import Console

from begun import begun
from entropy_sgd.lab import LabError, recipes
from entropy_sgd.lab.cli import main
from entropy_sgd.lab.comparison.comparison import Comparison, run
from entropy_sgd.lab.report import write
from entropy_sgd.lab.runs.folder import Settings
from entropy_sgd.lab.runs.reading import collect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    path = tmp_path_factory.mktemp("comparison")
    tiny = {"train_limit": 96, "batch_size": 16, "epochs": 4, "evaluate_every": 2, "log_every": 0.5}
    chosen = tuple(replace(recipes.get(f"demo/{name}"), **tiny) for name in ("sgd", "entropy-sgd"))
    run(Comparison(chosen, (0, 1)), path, console=Console(file=io.StringIO()))
    return path


@pytest.fixture(scope="module")
def page(comparison, tmp_path_factory):
    return write([comparison], tmp_path_factory.mktemp("report"))


class Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.attributes, self.ids, self.open, self.text = [], [], [], ""

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, name, value) for name, value in attrs]
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_data(self, data):
        self.text += data


def read(page):
    reader = Reader()
    reader.feed(page.read_text())
    return reader


def test_the_page_needs_nothing_but_itself(page):
    reader = read(page)
    for tag, name, value in reader.attributes:
        if name in ("src", "href", "xlink:href", "action", "data"):
            assert value.startswith(("#", "data:")), (tag, name, value)
    content = page.read_text()
    assert not re.search(r"@import|url\((?!#)|<script|<iframe", content)
    assert len(reader.ids) == len(set(reader.ids))
    for reference in re.findall(r'(?:url\(#|href="#)([^")]+)', content):
        assert reference in reader.ids


def test_the_page_says_what_the_runs_say(page, comparison):
    text = read(page).text
    rows = json.loads((comparison / "comparison.json").read_text())["rows"]
    for row in rows:
        assert row["recipe"] in text
        assert f"{row['result']['mean']:.2f}" in text
    assert f"{rows[1]['difference']['mean']:+.2f} ± {rows[1]['difference']['margin']:.2f}" in text
    environment = json.loads((comparison / "config.json").read_text())["environment"]
    for value in ("recipe.optimizer.inner_lr", environment["torch"], environment["python"], "sgd-seed1"):
        assert value in text


def test_figures_are_also_pictures(page):
    for name in ("loss", "error", "gamma", "angle"):
        assert (page.parent / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (page.parent / f"{name}.pdf").read_bytes().startswith(b"%PDF")


def test_the_same_runs_give_the_same_page(page, comparison, tmp_path):
    assert write([comparison], tmp_path).read_bytes() == page.read_bytes()


def test_a_name_that_ends_in_html_is_the_page_itself(page, comparison, tmp_path, capsys):
    out = tmp_path / "new" / "mine.html"
    assert main(["report", str(comparison), "--out", str(out)]) == 0
    assert capsys.readouterr().out.strip() == str(out)
    assert out.read_bytes() == page.read_bytes()
    assert list(out.parent.iterdir()) == [out]


def test_a_folder_that_ends_in_html_is_not_written_over(comparison, tmp_path, capsys):
    out = tmp_path / "mine.html"
    out.mkdir()
    assert main(["report", str(comparison), "--out", str(out)]) == 2
    assert f"cannot write the report to {out}" in capsys.readouterr().err


def test_unfinished_runs_and_runs_of_one_recipe_are_told_apart(comparison, tmp_path):
    recipe = replace(recipes.get("demo/sgd"), batch_size=16)
    begun(tmp_path / "a", Settings(recipe))
    begun(tmp_path / "b", Settings(replace(recipe, optimizer=replace(recipe.optimizer, lr=0.25))))
    (tmp_path / "a" / "metrics.jsonl").write_text(
        '{"step": 1, "epoch": 0.5, "loss": 2.0, "lr": 0.1}\n{"step": 2, "ep'
    )
    labels = [run.label for run in collect([tmp_path / "a", tmp_path / "b"])]
    assert labels == [f"demo/sgd, optimizer.lr {recipe.optimizer.lr}", "demo/sgd, optimizer.lr 0.25"]
    text = read(write([tmp_path / "a", tmp_path / "b"], tmp_path / "out")).text
    assert "not finished" in text


def test_names_are_escaped(tmp_path):
    begun(tmp_path / "a", Settings(replace(recipes.get("demo/sgd"), data="<script>alert(1)</script>")))
    assert "<script" not in write([tmp_path / "a"], tmp_path / "out").read_text()


def test_a_folder_without_a_run_is_named(tmp_path):
    with pytest.raises(LabError, match="not the folder of a run"):
        write([tmp_path / "nothing"], tmp_path)


@pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium on this machine: the page was not opened in a browser"
)
def test_a_browser_shows_the_page(page, tmp_path):
    from matplotlib.image import imread

    picture = tmp_path / "page.png"
    options = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
        "--disable-component-update --disable-sync --hide-scrollbars --window-size=1200,1400 "
        f"--enable-logging=stderr --user-data-dir={tmp_path / 'profile'}"
    ).split()

    def browse(*action):
        return subprocess.run(
            [CHROMIUM, *options, *action, page.as_uri()],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )

    shown = browse(f"--screenshot={picture}")
    assert "CONSOLE" not in shown.stderr, shown.stderr
    pixels = imread(picture)[..., :3]
    # The curves' colours are on the screen: blue of the first recipe, vermilion of the second.
    for colour in ((0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)):
        distance = abs(pixels * 255 - colour).max(axis=-1)
        assert (distance < 12).sum() > 200
    # What the browser made of it: every section, and a figure of real size for each drawing.
    dom = browse("--dump-dom").stdout
    assert dom.count("<figure") == dom.count("</svg>") == len(list(page.parent.glob("*.png")))
    for title in ("Results", "Curves", "Diagnostics", "Configuration", "Environment"):
        assert f"<h2>{title}</h2>" in dom
