"""Tiny rows on a few digits: kept files, tables and verdicts, against figures computed by hand."""

from __future__ import annotations

import json
import math
import re
import shlex
from dataclasses import asdict, replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from entropy_sgd.lab import LabError, recipes
from entropy_sgd.lab.cli import main
from entropy_sgd.lab.cli.completion import candidates
from entropy_sgd.lab.cli.parse import parse
from entropy_sgd.lab.cli.train import Train
from entropy_sgd.lab.comparison.seeds import Spread
from entropy_sgd.lab.paper import figures, kept, numbers, page, table
from entropy_sgd.lab.paper.entry import Entry, Row
from entropy_sgd.lab.paper.numbers import Number
from entropy_sgd.lab.paper.rows import ROWS, TABLE_1, entries
from entropy_sgd.lab.paper.standing import command, stand
from entropy_sgd.lab.paper.verdicts import verdict
from entropy_sgd.lab.runs.folder import Settings
from entropy_sgd.lab.runs.reading import read
from entropy_sgd.lab.runs.records import write_json

RESULTS = Path(__file__).parents[3] / "results"
PAPER = Number("test", 1.39, 0.03, 66, "Table 1", runs=4)
ADAM = Entry("adam", "Adam", recipes.get("mnistfc/adam"), (0, 1, 2), paper=(PAPER,))
OURS = Entry("ours", "Ours", recipes.get("mnistfc/entropy-sgd"), (0, 1, 2), paper=(PAPER,), against="adam")
TINY = (Row("tiny", "two methods", (ADAM, OURS)),)


def begun(path: Path, entry: Entry, seed: int) -> Path:
    path.mkdir(parents=True)
    settings = asdict(Settings(entry.recipe, seed, entry.final))
    write_json(path / "config.json", {"settings": settings, "environment": {"command": ["/bin/entropy-sgd"]}})
    return path


def run(folder: Path, entry: Entry, seed: int, error: float | None, loss: float = 0.1) -> Path:
    """The folder of a run of `entry` that ended with this test error and loss, or diverged."""
    made = begun(folder / f"{entry.key}-{seed}", entry, seed)
    known = {"recipe": entry.recipe.name, "seed": seed}
    if error is None:
        write_json(
            made / "summary.json", {"status": "diverged", **known, "reason": "a loss of nan at step 3 of 9"}
        )
    else:
        judged = {"loss": loss, "error": error}
        parts = {"final": True, "metric": "error", "validation": None, "test": judged, "weights_sha256": "0"}
        write_json(
            made / "summary.json", {"status": "finished", **known, **parts, "epochs": 100.0, "seconds": 60.0}
        )
    lines = [{"step": i, "epoch": i / 2, "loss": 1 / i, "lr": 0.1, "seconds": 1.0} for i in range(1, 201)]
    (made / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return made


@pytest.fixture
def results(tmp_path) -> Path:
    out = tmp_path / "results"
    for entry, errors in ((ADAM, (1.30, 1.40, 1.50)), (OURS, (1.20, None, 1.46))):
        for seed, error in enumerate(errors):
            kept.keep(read(run(tmp_path / "runs", entry, seed, error)), out, TINY)
    return out


def test_verdicts_by_hand():
    # s = 0.1 over 3 seeds: 0.1/√3 = 0.05774; the paper's 0.03/√4 = 0.015; together 0.05965
    found = verdict(Spread(1.40, 0.1, 3), PAPER)
    assert (found.word, found.errors) == ("agrees", pytest.approx(0.01 / 0.05965, rel=1e-3))
    assert str(found) == "agrees (+0.2 se)"
    # beyond two standard errors either way: 0.119 is 1.995 of them, 0.120 is 2.012
    assert verdict(Spread(1.39 + 0.119, 0.1, 3), PAPER).word == "agrees"
    assert verdict(Spread(1.39 + 0.120, 0.1, 3), PAPER).word == "worse"
    assert str(verdict(Spread(1.39 - 0.120, 0.1, 3), PAPER)) == "better (−2.0 se)"
    # without a number of runs the paper's ± is its standard error; one seed has no deviation of its own
    alone = verdict(Spread(1.45, None, 1), replace(PAPER, runs=None))
    assert alone.errors == pytest.approx(0.06 / math.hypot(0.03, 0.03))
    # that of two may be tiny by chance: the paper's is taken if it is larger
    assert verdict(Spread(1.45, 0.001, 2), PAPER).errors == pytest.approx(
        0.06 / math.hypot(0.03 / 2**0.5, 0.015)
    )


def test_the_table_says_what_the_runs_say(results):
    standings = stand(results, TINY)
    headings, lines = (lambda found: (found.headings, found.lines))(table.row(TINY[0], standings))
    adam, ours = (dict(zip(headings, line, strict=True)) for line in lines)
    assert (adam["mean ± sd"], adam["seeds"], adam["epochs"]) == ("1.40 ± 0.10", "3", "100")
    assert (adam["the paper"], adam["its epochs"]) == ("1.39 ± 0.03", "66")
    assert adam["verdict"] == "agrees (+0.2 se)"
    # two seeds are left: 1.33 ± 0.184; differences −0.10 and −0.04, mean −0.07, and t(1) = 12.706 times 0.03
    assert (ours["mean ± sd"], ours["seeds"]) == ("1.33 ± 0.18", "2 (+ 1 diverged)")
    assert ours["verdict"] == "agrees (−0.5 se); 1 of 3 diverged"
    assert ours["difference (95 %)"] == "−0.07 ± 0.38 to adam"
    assert table.progress(standings, TINY).lines == (("tiny", "two methods", "6 of 6", "1"),)


def test_a_run_that_ends_hardly_better_than_guessing_has_diverged(tmp_path):
    for seed, (error, loss) in enumerate([(1.3, 0.1), (87.32, 2.27007), (60.0, 1.9)]):
        kept.keep(read(run(tmp_path / "runs", OURS, seed, error, loss)), tmp_path / "results", TINY)
    standing = stand(tmp_path / "results", TINY)[OURS.key]
    assert [run.seed for run in standing.finished] == [0, 2]
    assert standing.diverged == 1


def test_holes_are_called_not_run_and_divergence_has_no_mean(tmp_path):
    out = tmp_path / "results"
    kept.keep(read(run(tmp_path / "runs", OURS, 2, None)), out, TINY)
    standings = stand(out, TINY)
    adam, ours = table.row(TINY[0], standings).lines
    assert adam[2] == adam[7] == "not run"
    assert (ours[2], ours[3], ours[7]) == (
        "diverged",
        "0 (+ 1 diverged)",
        "1 of 1 diverged; 2 of 3 seeds not run",
    )
    assert standings["ours"].missing == [0, 1]


def test_a_kept_file_is_small_and_holds_the_curve(results):
    path = results / "adam-seed1.json"
    assert path.stat().st_size < 8000
    (found,) = [one for one in kept.read(results, TINY) if one.path == path]
    epochs, losses = found.training_loss
    assert (len(epochs), epochs[0], epochs[-1]) == (100, 1.0, 100.0)
    assert losses[:2] == [1 / 2, 1 / 4]  # the last line up to each whole epoch, of two
    assert found.result("test") == 1.40
    assert found.result("validation") is None


def test_only_runs_of_the_rows_are_kept_whatever_made_them_fast(tmp_path, capsys):
    slow = replace(ADAM, recipe=replace(ADAM.recipe, threads=1, log_every=0.5))
    assert kept.keep(read(run(tmp_path, slow, 4, 1.3)), tmp_path / "out", TINY).name == "adam-seed4.json"
    other = replace(ADAM, recipe=replace(ADAM.recipe, dropout=0.1))
    with pytest.raises(LabError, match=r"differs from adam in\n  dropout: 0.1 there, 0.5 here$"):
        kept.keep(read(run(tmp_path, other, 5, 1.3)), tmp_path / "out", TINY)
    unfinished = begun(tmp_path / "begun", ADAM, 6)
    with pytest.raises(LabError, match="has not ended"):
        kept.keep(read(unfinished), tmp_path / "out", TINY)
    write_json(tmp_path / "out" / "adam-seed9.json", {"settings": {}})
    with pytest.raises(LabError, match=r"adam-seed9.json is not what"):
        kept.read(tmp_path / "out", TINY)


def test_another_run_of_the_same_seed_is_replaced_only_on_demand(tmp_path):
    out = tmp_path / "out"
    first = kept.keep(read(run(tmp_path / "a", ADAM, 0, 1.3)), out, TINY)
    before = first.read_bytes()
    second = read(run(tmp_path / "b", ADAM, 0, 1.4))
    with pytest.raises(LabError, match=r"holds another run of adam: use --overwrite"):
        kept.keep(second, out, TINY)
    assert first.read_bytes() == before
    kept.keep(second, out, TINY, overwrite=True)
    assert json.loads(first.read_text())["summary"]["test"]["error"] == 1.4


def test_every_entry_is_told_from_every_other():
    known = list(entries())
    assert len({entry.key for entry in known}) == len(known)
    for entry in known:
        settings = json.loads(json.dumps(asdict(Settings(entry.recipe, 0, entry.final))))
        found = kept.belongs(kept.Run(Path("run"), settings, {}, [], None))
        assert found.key == entry.key
    for line in TABLE_1:
        assert {line.ours, line.baseline} <= {entry.key for entry in known}
    assert {entry.against for entry in known} <= {entry.key for entry in known} | {""}


def test_the_command_of_an_entry_makes_it():
    for entry in entries():
        _, _, name, *rest = shlex.split(command(entry).replace("SEED", "3"))
        options = parse(Train, rest, "train", Train(recipe=recipes.get(name)))
        assert (options.recipe, options.final, options.seed) == (entry.recipe, entry.final, 3)


def test_the_papers_numbers_are_those_of_its_recipes_and_table():
    """The recipes quote the same sentences of the paper, typed at another time."""
    for entry in entries():
        for number in entry.paper:
            assert f"{number.mean:.6g}".rstrip("0") in entry.recipe.paper.replace("0.50", "0.5")
    shown = [(n.mean, n.deviation, n.epochs) for n in (numbers.MNISTFC_ENTROPY_SGD, numbers.CHAR_ADAM)]
    assert shown == [(1.37, 0.03, 120), (1.226, 0.01, 40)]


def test_the_results_kept_so_far_are_read_and_drawn(tmp_path):
    standings = stand(RESULTS / "paper")
    assert standings["mnistfc-adam"].runs[0].result("test") == 1.32
    assert standings["mnistfc-entropy-sgd"].diverged >= 1
    for name in ("paper.html", "paper.md"):
        page.write(standings, tmp_path / "no-spectra", tmp_path / name)  # they are drawn in ../spectra
    text = (tmp_path / "paper.html").read_text()
    links = Links()
    links.feed(text)
    assert links.addresses
    assert all(address.startswith("data:") for address in links.addresses)
    for title in ("Where it stands", "Table 1", *figures.TITLES.values(), "SGLD (Appendix C.1)"):
        assert title.replace("'", "&#x27;") in text
    markdown = (tmp_path / "paper.md").read_text()
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", markdown)
    assert pictures
    assert all((tmp_path / picture).stat().st_size > 10_000 for picture in pictures)
    assert "| mnistfc | diverged |" in markdown or "mnistfc-entropy-sgd" in markdown


class Links(HTMLParser):
    """What a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.addresses += [value for name, value in attrs if name in ("src", "href")]


def test_a_band_is_mean_and_deviation_where_all_curves_are():
    epochs, mean, deviation = figures.band([([0, 2], [1, 3]), ([1, 3], [2, 2])], points=2)
    assert epochs.tolist() == [1, 2]
    assert mean.tolist() == [2, 2.5]  # 2 and 2; 3 and 2
    assert deviation.tolist() == [0, pytest.approx(0.5**0.5)]


def test_nonsense_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for arguments, message in (
        (["paper", "rum"], "no paper action is called 'rum'. Did you mean run?"),
        (["paper", "run", "lennet"], "no row of the paper is called 'lennet'. Did you mean lenet or allcnn?"),
        (["paper", "keep"], "name at least one folder of a run"),
        (["paper", "--out", "paper.pdf"], "--out must end in .html or .md, got paper.pdf"),
    ):
        assert main(arguments) == 2
        assert message in capsys.readouterr().err
    assert main(["paper"]) == 0  # without any results: all is not run
    assert f"0 of {sum(len(entry.seeds) for entry in ROWS[0].entries)}" in capsys.readouterr().out


def test_as_json(tmp_path, capfd):
    out = [
        "--results",
        str(RESULTS / "paper"),
        "--spectra",
        str(tmp_path),
        "--out",
        str(tmp_path / "page.html"),
    ]
    assert main(["paper", *out, "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    adam = found["entries"][0]
    assert (adam["entry"], adam["seeds"][:2], adam["judged"]) == ("mnistfc-adam", [0, 1], "test error")
    assert adam["paper"][0]["number"]["mean"] == 1.39
    assert adam["paper"][0]["verdict"]["word"] in ("agrees", "better", "worse")
    assert found["pages"] == [str(tmp_path / "page.html")]


def test_completion_knows_actions_and_rows():
    assert candidates(["paper", "r"]) == ["run"]
    assert candidates(["paper", "run", "lenet", "sg"]) == ["sgld"]
    assert "--jobs" in candidates(["paper", "run", "--"])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"summary": [1, 2]}, "has no status"),
        ({"evaluations": [{"epoch": "first"}]}, "'first' is not a number"),
        ({"training_loss": {"epoch": [1.0], "loss": []}}, "of different number"),
        ({"training_loss": {"epoch": [[1.0]], "loss": [1.0]}}, "is not a number"),
    ],
)
def test_a_damaged_file_is_named(results, damage, message):
    path = next(results.glob("*seed0.json"))
    path.write_text(json.dumps({**json.loads(path.read_text()), **damage}))
    with pytest.raises(LabError, match=rf"{path.name}.*{message}"):
        kept.read(results, TINY)
