from __future__ import annotations

import json
import re
import shutil
from functools import partial

import pytest
import torch
from torch.nn import functional

from entropy_sgd.lab import data, models
from entropy_sgd.lab.cli import main
from entropy_sgd.lab.models import CharLSTM
from entropy_sgd.landscape import network_entropy

DOUBLE = torch.float64
SAMPLES = 20


def spectrum(run, out, *arguments):
    assert main(["spectrum", str(run), "--out", str(out), *map(str, arguments)]) == 0
    return json.loads(out.read_text())


@pytest.fixture(scope="module")
def by_hand(images):
    """A function of a run's folder: its weights, and its loss as a function of them, in plain formulas."""
    split = data.load(images).train
    trained = [i * len(split) // 40 for i in range(40)]  # --train-limit: evenly spaced
    chosen = [trained[i * 40 // SAMPLES] for i in range(SAMPLES)]
    inputs, targets = split.inputs[chosen].to(DOUBLE).flatten(1), split.targets[chosen]

    def build(run):
        parts = list(torch.load(run / "weights.pt", weights_only=True).values())
        assert [tuple(part.shape) for part in parts] == [(64, 16), (64,), (3, 64), (3,)]

        def loss(w, inputs=inputs, targets=targets):
            one, bias, two, last = w.split([64 * 16, 64, 3 * 64, 3])
            hidden = (inputs @ one.view(64, 16).T + bias).clamp(min=0)
            logits = hidden @ two.view(3, 64).T + last
            return (logits.logsumexp(1) - logits[torch.arange(len(targets)), targets]).mean()

        return torch.cat([part.flatten() for part in parts]).to(DOUBLE), loss

    build.samples = list(zip(inputs.split(1), targets.split(1), strict=True))
    return build


@pytest.fixture(scope="module")
def hessian(sgd, by_hand):
    w, loss = by_hand(sgd)
    return torch.func.hessian(loss)(w)


@pytest.fixture(scope="module")
def exact(sgd, tmp_path_factory):
    out = tmp_path_factory.mktemp("exact") / "spectrum.json"
    return spectrum(sgd, out, "--method", "exact", "--samples", SAMPLES, "--batch", 7)


def test_exact_against_torchs_hessian(exact, hessian):
    expected = torch.linalg.eigvalsh(hessian)
    found = exact["spectrum"]
    assert found["count"] == exact["parameters"] == 1283
    assert found["smallest"] == pytest.approx(expected[:200].tolist(), abs=1e-10)
    assert found["largest"] == pytest.approx(expected[-200:].tolist(), abs=1e-10)
    assert found["trace"] == pytest.approx(float(hessian.trace()), rel=1e-9)
    assert found["near_zero"]["0.01"] == float((expected.abs() < 1e-2).double().mean())


def test_loss_and_gradient_norm_are_those_at_the_outer_weights(exact, sgd, by_hand):
    w, loss = by_hand(sgd)
    slope = torch.func.grad(loss)(w)
    assert exact["loss"] == pytest.approx(float(loss(w)), rel=1e-10)
    assert exact["gradient_norm"] == pytest.approx(float(slope.norm()), rel=1e-10)


def test_the_file_says_what_was_measured_and_where(exact, sgd):
    assert exact["command"].startswith(f"entropy-sgd spectrum {sgd}")
    assert (exact["recipe"], exact["seed"]) == ("small-mnistfc/sgd", 0)
    assert (exact["samples"], exact["samples_available"]) == (SAMPLES, 40)
    assert exact["options"]["dtype"] == "float64"
    config = json.loads((sgd / "config.json").read_text())
    assert set(exact["environment"]) == set(config["environment"]) - {"command"}
    assert exact["run"]["settings"] == config["settings"]
    assert exact["peak_memory_bytes"] > 2**20
    assert exact["seconds"] > 0
    assert len(json.dumps(exact, indent=2)) < 200_000


def test_the_outer_weights_of_entropy_sgd_are_measured(entropy_sgd, by_hand, tmp_path):
    w, loss = by_hand(entropy_sgd)
    found = spectrum(
        entropy_sgd, tmp_path / "it.json", "--method", "lanczos", "--samples", SAMPLES, "--steps", 3
    )
    assert found["loss"] == pytest.approx(float(loss(w)), rel=1e-10)


def test_lanczos_finds_extremes_and_trace(sgd, hessian, tmp_path):
    options = ("--samples", SAMPLES, "--probes", 6, "--steps", 25)
    found = spectrum(sgd, tmp_path / "it.json", "--method", "lanczos", *options)["spectrum"]
    expected = torch.linalg.eigvalsh(hessian)
    assert found["maximum"] == pytest.approx(float(expected[-1]), rel=1e-9)
    assert found["minimum"] == pytest.approx(float(expected[0]), rel=1e-6)
    assert abs(found["trace"] - float(hessian.trace())) < 4 * found["trace_error"]


def test_fisher_from_the_moments_in_the_checkpoint(adam, tmp_path):
    found = spectrum(adam, tmp_path / "it.json", "--method", "fisher", "--batch", 9)
    state = torch.load(adam / "checkpoint.pt", weights_only=True)["state"]["optimizer"]
    entries = []
    for part in state["state"].values():
        t = float(part["step"])
        m, v = part["exp_avg"].to(DOUBLE) / (1 - 0.9**t), part["exp_avg_sq"].to(DOUBLE) / (1 - 0.999**t)
        entries += (v - m**2).flatten().tolist()
    assert t == 12 * 40 / 8
    assert found["of"] == "Fisher diagonal from Adam's moments"
    assert found["spectrum"]["largest"] == pytest.approx(sorted(entries)[-200:], rel=1e-9)
    assert found["spectrum"]["smallest"] == pytest.approx(sorted(entries)[:200], rel=1e-6, abs=1e-15)
    assert found["samples"] == 40  # all there are, for the loss


def test_fisher_from_the_gradients_of_samples(sgd, by_hand, tmp_path):
    found = spectrum(sgd, tmp_path / "it.json", "--method", "fisher", "--samples", SAMPLES)
    w, loss = by_hand(sgd)
    slopes = torch.stack([torch.func.grad(partial(loss, inputs=x, targets=y))(w) for x, y in by_hand.samples])
    expected = slopes.var(0, correction=0)
    assert found["spectrum"]["trace"] == pytest.approx(float(expected.sum()), rel=1e-9)
    assert found["spectrum"]["largest"] == pytest.approx(expected.sort().values[-200:].tolist(), rel=1e-8)


def test_local_entropy_against_the_closed_form(sgd, by_hand, hessian, tmp_path, capsys, monkeypatch):
    runs = []
    block_lanczos = network_entropy.block_lanczos
    monkeypatch.setattr(
        network_entropy, "block_lanczos", lambda *a: runs.append(len(a[1])) or block_lanczos(*a)
    )
    w, loss = by_hand(sgd)
    slope = torch.func.grad(loss)(w)
    lowest = float(torch.linalg.eigvalsh(hessian)[0])
    assert lowest < -1e-6
    out = tmp_path / "it.json"
    gammas = [-lowest / 2, 0.5, 20.0]
    options = ["--samples", SAMPLES, "--probes", 24, "--steps", 30, "--gamma", *gammas]
    assert main(["local-entropy", str(sgd), "--out", str(out), *map(str, options)]) == 0
    assert runs == [25]  # one for all gammas, from the probes and the gradient
    printed = capsys.readouterr().out
    first, *rest = json.loads(out.read_text())["local_entropy"]
    assert "normalized" not in first
    assert "most negative eigenvalue" in first["reason"]
    assert first["reason"] in printed
    for entry, gamma in zip(rest, gammas[1:], strict=True):
        shifted = hessian + gamma * torch.eye(1283, dtype=DOUBLE)
        expected = -loss(w) + slope @ torch.linalg.solve(shifted, slope) / 2
        expected = float(expected - torch.linalg.slogdet(shifted / gamma).logabsdet / 2)
        assert abs(entry["normalized"] - expected) < 4 * entry["error"]
        assert entry["error"] < 0.1 * abs(expected)
        assert f"{entry['normalized']:.4f}" in printed


def test_text_is_measured_as_it_was_trained(train, tmp_path, monkeypatch):
    """An LSTM of 3 units on 8 lines of 6 characters, written out cell by cell."""
    small = partial(CharLSTM, vocabulary=96, hidden=3, layers=1, output_bias=False)
    monkeypatch.setitem(models._NETWORKS, "small-char-lstm", small)
    text = tmp_path / "text.txt"
    text.write_bytes(bytes(97 + (i * i // 7 + i // 3) % 5 for i in range(200)))
    changes = {"data": f"text:{text}", "vocabulary": 7, "batch_size": 8, "unroll": 6, "train_limit": 49}
    run = train("small-char-lstm/adam", epochs=30, **changes)
    found = spectrum(run, tmp_path / "it.json", "--method", "exact", "--batch", 3)

    tokens = torch.tensor(sorted(set(text.read_bytes())))
    tokens = (torch.tensor(list(text.read_bytes()))[:49, None] == tokens).long().argmax(1)
    inputs, targets = tokens[:48].view(8, 6), tokens[1:49].view(8, 6)
    assert found["samples"] == found["samples_available"] == 8
    parts = torch.load(run / "weights.pt", weights_only=True)
    shapes = [part.shape for part in parts.values()]

    def loss(w):
        kernel, recurrent, bias, bias2, output = (
            part.view(shape)
            for part, shape in zip(w.split([shape.numel() for shape in shapes]), shapes, strict=True)
        )
        h, c, total = torch.zeros(8, 3, dtype=DOUBLE), torch.zeros(8, 3, dtype=DOUBLE), 0.0
        for t in range(6):
            one_hot = functional.one_hot(inputs[:, t], 7).to(DOUBLE)
            gates = one_hot @ kernel.T + bias + h @ recurrent.T + bias2
            i, f, g, o = gates.chunk(4, dim=1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            logits = h @ output.T
            total = total + (logits.logsumexp(1) - logits[torch.arange(8), targets[:, t]]).mean()
        return total / 6

    w = torch.cat([part.flatten() for part in parts.values()]).to(DOUBLE)
    expected = torch.linalg.eigvalsh(torch.func.hessian(loss)(w))
    assert found["loss"] == pytest.approx(float(loss(w)), rel=1e-10)
    assert len(expected) == found["parameters"] < 200
    assert found["spectrum"]["largest"] == pytest.approx(expected.tolist(), abs=1e-11)


def test_a_measurement_is_kept_and_never_replaced_by_another(sgd, tmp_path, capsys):
    out = tmp_path / "it.json"
    first = ("--method", "fisher", "--samples", 5)
    spectrum(sgd, out, *first)
    written = out.read_bytes()
    spectrum(sgd, out, *first)
    assert out.read_bytes() == written  # seconds and all
    assert main(["spectrum", str(sgd), "--out", str(out), "--method", "fisher", "--samples", "6"]) == 2
    assert "samples: 5 there, 6 now" in capsys.readouterr().err
    assert out.read_bytes() == written
    assert spectrum(sgd, out, "--method", "fisher", "--samples", 6, "--overwrite")["samples"] == 6


def test_several_runs_give_a_file_each(sgd, adam, tmp_path):
    options = ["--method", "fisher", "--samples", "5", "--out", str(tmp_path / "new")]
    assert main(["spectrum", str(sgd), str(adam), *options]) == 0
    names = {"small-mnistfc-sgd-seed0-fisher-samples.json", "small-lenet-adam-seed3-fisher-samples.json"}
    assert {path.name for path in (tmp_path / "new").iterdir()} == names


def unfinished(run):
    (run / "summary.json").unlink()


def diverged(run):
    summary = json.loads((run / "summary.json").read_text())
    kept = {"recipe": summary["recipe"], "seed": summary["seed"]}
    (run / "summary.json").write_text(json.dumps({"status": "diverged", **kept, "reason": "a loss of nan"}))


def no_run(run):
    (run / "config.json").unlink()


def no_weights(run):
    (run / "weights.pt").unlink()


def damaged(run):
    (run / "weights.pt").write_bytes(b"PK nothing")


def exchanged(run):
    torch.save({key: value + 1 for key, value in torch.load(run / "weights.pt").items()}, run / "weights.pt")


def another_version(run):
    config = json.loads((run / "config.json").read_text())
    config["settings"]["recipe"]["optimizer"]["warmup"] = 3
    (run / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("harm", "expected"),
    [
        (unfinished, "not finished"),
        (diverged, "diverged"),
        (no_run, "not the folder of a run"),
        (no_weights, "weights.pt does not exist"),
        (damaged, "damaged"),
        (exchanged, "SHA-256"),
        (another_version, "warmup"),
    ],
)
def test_runs_that_cannot_be_measured(sgd, tmp_path, capsys, harm, expected):
    run = tmp_path / "run"
    shutil.copytree(sgd, run)
    harm(run)
    for command in (["spectrum", "--method", "lanczos"], ["local-entropy"]):
        assert main([*command, str(run), "--out", str(tmp_path / "out")]) == 2
        assert expected in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["spectrum", "--method", "fisher"], "Adam"),
        (["spectrum", "--method", "exact", "--samples", "0"], "samples must be at least 1, got 0"),
        (["spectrum", "--method", "exact", "--batch", "-1"], "batch must be at least 1, got -1"),
        (["spectrum", "--method", "lanczos", "--probes", "0"], "probes"),
        (["spectrum", "--method", "lanczos", "--checkpoint", "rows"], "--checkpoint is for the exact"),
        (["spectrum", "RUN", "--method", "lanczos", "--out", "one.json"], "folder for 2 runs"),
        (["spectrum", "RUN", "--method", "lanczos"], "two of the runs"),
        (["local-entropy", "--gamma", "0"], "gamma must be a finite number above 0, got 0"),
        (["local-entropy", "--gamma", "1e-9", "--samples", "9", "--steps", "4"], "negative eigenvalue"),
        (["local-entropy", "--method", "langevin", "--steps", "3"], "steps"),
    ],
)
def test_mistakes(sgd, tmp_path, monkeypatch, capsys, arguments, expected):
    monkeypatch.chdir(tmp_path)
    arguments = [str(sgd) if argument == "RUN" else argument for argument in arguments]
    assert main([arguments[0], str(sgd), *arguments[1:]]) == 2
    assert expected in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize(
    ("command", "what"),
    [
        (["report"], "RUN"),
        (["spectrum", "--method", "exact"], "RUN"),
        (["local-entropy"], "RUN"),
        (["flatness"], "FILE"),
    ],
    ids=lambda command: command[0],
)
def test_a_run_must_be_named(capsys, monkeypatch, command, what):
    assert main(command) == 2
    assert re.search(f"name at least one .*: entropy-sgd {command[0]} {what}…", capsys.readouterr().err)
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit):
        main([command[0], "--help"])
    usage, _, explanation = capsys.readouterr().out.partition("positional arguments")
    assert f" {what} [{what} ...]" in usage
    assert "(required)" in explanation.partition("options")[0]


def test_a_matrix_that_does_not_fit_names_what_does(sgd, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("entropy_sgd.landscape.hessian.available_memory", lambda: 2**20)
    assert main(["spectrum", str(sgd), "--method", "exact", "--out", str(tmp_path)]) == 2
    assert "--method lanczos" in capsys.readouterr().err
