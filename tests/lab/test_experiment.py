"""The user's own experiment: by command and from Python, as a function and as a class, right and wrong."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import pytest
import torch
from rich.console import Console

from entropy_sgd.lab import Interrupted, LabError, compare, experiment, tasks, train
from entropy_sgd.lab.cli import main
from lab.methods.tiny import watched

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_experiment.py"
QUIET = Console(quiet=True)

HEAD = """
import torch
from torch import nn
from entropy_sgd.lab import Experiment

generator = torch.Generator().manual_seed(0)
x = torch.randn(100, 3, generator=generator)
y = x @ torch.tensor([[1.0], [-2.0], [0.5]]) + 0.1 * torch.randn(100, 1, generator=generator)
def largest(outputs, targets):
    return (outputs - targets).abs().max()
"""
GOOD = {"model": "lambda: nn.Linear(3, 1)", "train": "(x[:80], y[:80])", "validation": "(x[80:], y[80:])"}
GOOD |= {"loss": "nn.functional.mse_loss", "metric": "largest", "batch_size": "8", "epochs": "3"}


def write(path: Path, head: str = HEAD, **changes: str) -> str:
    given = {name: value for name, value in (GOOD | changes).items() if value}
    arguments = ", ".join(f"{name}={value}" for name, value in given.items())
    path.write_text(f"{head}\ndef experiment():\n    return Experiment({arguments})\n")
    return str(path)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def own(tmp_path, monkeypatch) -> str:
    monkeypatch.chdir(tmp_path)
    return write(tmp_path / "mine.py")


def summary(path) -> dict:
    return json.loads((Path(path) / "summary.json").read_text())


def test_the_example_compares_reports_and_is_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = ["compare", str(EXAMPLE), "--methods", "sgd", "sam", "entropy-sgd", "--seeds", "0", "1"]
    assert main([*command, "--budget", "3", "--set", "sgd:optimizer.lr=0.05", "--out", "three"]) == 0
    result = json.loads((tmp_path / "three" / "comparison.json").read_text())
    rows = {row["recipe"]: row for row in result["rows"]}
    assert set(rows) == {f"own_experiment/{name}" for name in ("sgd", "sam", "entropy-sgd")}
    assert all(row["metric"] == "error" and row["result"]["mean"] < 15 for row in rows.values())
    evaluations = {run["gradient_evaluations"] for run in result["runs"]}
    assert max(evaluations) - min(evaluations) <= 1  # sam takes two a step
    assert main(["report", "three", "--out", "page.html"]) == 0
    assert "Validation error" in (tmp_path / "page.html").read_text()
    few = ["three/entropy-sgd-seed0", "--samples", "40", "--probes", "2", "--steps", "8"]
    assert main(["spectrum", *few, "--method", "lanczos", "--out", "spectrum.json"]) == 0
    assert main(["local-entropy", *few, "--gamma", "1000", "--out", "entropy.json"]) == 0
    measured = json.loads((tmp_path / "spectrum.json").read_text())
    assert measured["samples_available"] == 1437
    assert measured["network"] == "own_experiment.py"


def test_python_and_the_command_train_the_same_bits(own, tmp_path):
    command = ["train", own, "--method", "entropy-sgd", "--optimizer.L", "5", "--seed", "4", "--epochs", "2"]
    assert main([*command, "--out", "by-command"]) == 0
    options = {"optimizer": {"L": 5}, "seed": 4, "epochs": 2, "console": QUIET}
    by_path = train(own, "entropy-sgd", out="by-path", **options)
    spec = importlib.util.spec_from_file_location("mine", own)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    by_function = train(module.experiment, "entropy-sgd", out=tmp_path / "by-function", **options)
    found = {s["weights_sha256"] for s in (summary("by-command"), by_path, by_function)}
    assert len(found) == 1
    rows = compare(own, ["sgd", "adamw"], seeds=(0,), out="both", budget=2, console=QUIET)
    assert [row.recipe for row in rows] == ["mine/sgd", "mine/adamw"]
    with pytest.raises(LabError, match=r"learning_rate.*Known: lr"):
        train(own, "sgd", out="x", optimizer={"learning_rate": 1}, console=QUIET)
    with pytest.raises(LabError, match="Did you mean batch_size"):
        train(own, "sgd", out="x", batchsize=1, console=QUIET)


def test_the_loss_and_metric_are_the_users(own):
    found = train(own, "sgd", out="run", console=QUIET)
    spec = experiment.load(experiment.source(own))[1]
    model = spec.model()
    model.load_state_dict(torch.load("run/weights.pt", weights_only=True))
    inputs, targets = spec.validation
    assert found["validation"]["loss"] == pytest.approx(spec.loss(model(inputs), targets).item())
    assert found["validation"]["largest"] == pytest.approx(spec.metric(model(inputs), targets).item())


DATASET = """
class Pairs(torch.utils.data.Dataset):
    def __init__(self, start, stop): self.start, self.stop = start, stop
    def __len__(self): return self.stop - self.start
    def __getitem__(self, i): return x[self.start + i], y[self.start + i]
"""
CLASS = """
class Experiment:
    batch_size, epochs = 8, 3
    train, validation = (x[:80], y[:80]), (x[80:], y[80:])
    def model(self): return nn.Linear(3, 1)
    def loss(self, outputs, targets): return nn.functional.mse_loss(outputs, targets)
    def largest(self, outputs, targets): return (outputs - targets).abs().max()
    metric = largest
"""


def test_tensors_datasets_classes_and_modules_are_the_same_experiment(own, tmp_path):
    expected = train(own, "sgd", out="tensors", seed=3, console=QUIET)
    forms = {
        "datasets": write(
            tmp_path / "datasets.py", HEAD + DATASET, train="Pairs(0, 80)", validation="Pairs(80, 100)"
        ),
        "instance": write(tmp_path / "instance.py", model="nn.Linear(3, 1)"),
        "tensordataset": write(tmp_path / "td.py", train="torch.utils.data.TensorDataset(x[:80], y[:80])"),
    }
    (tmp_path / "whole.py").write_text(HEAD.replace("from entropy_sgd.lab import Experiment", "") + CLASS)
    forms["class"] = str(tmp_path / "whole.py")
    for form, file in forms.items():
        found = train(file, "sgd", out=form, seed=3, console=QUIET)
        assert found["weights_sha256"] == expected["weights_sha256"], form
        assert found["validation"] == expected["validation"], form


def test_it_resumes_and_an_edited_file_is_noticed(own, tmp_path, capsys):
    command = ["train", own, "--method", "swa", "--out"]
    assert main([*command, "whole"]) == 0
    with watched(tasks.Own, stop=11):
        assert main([*command, "parts"]) == 143
    assert (tmp_path / "parts" / "experiment.py").read_text() == Path(own).read_text()
    original = Path(own).read_text()
    Path(own).write_text(original + "\n# edited\n")
    assert main([*command, "parts", "--resume"]) == 2
    assert "The file has been edited since" in capsys.readouterr().err
    Path(own).write_text(original)
    (tmp_path / "elsewhere").mkdir()
    shutil.move(own, tmp_path / "elsewhere" / "mine.py")  # only its content counts
    command[1] = str(tmp_path / "elsewhere" / "mine.py")
    assert main([*command, "parts", "--resume"]) == 0
    assert summary("parts")["weights_sha256"] == summary("whole")["weights_sha256"]
    Path(command[1]).unlink()
    experiment._loaded.clear()
    few = ["--method", "lanczos", "--steps", "3", "--probes", "1", "--out", "measured.json"]
    assert main(["spectrum", "whole", *few]) == 0  # from the copy in the folder


def test_a_final_run_takes_all_data_and_reads_the_test_data(own, tmp_path):
    with pytest.raises(LabError, match="needs test data"):
        train(own, "sgd", out="none", final=True, console=QUIET)
    file = write(tmp_path / "tested.py", test="(x[:10], y[:10])")
    found = train(file, "sgd", out="final", final=True, console=QUIET)
    assert found["gradient_evaluations"] == round(3 * 100 / 8)
    assert found["validation"] is None
    assert found["test"]["largest"] > 0


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"model": "lambda: nn.Lineal(3, 1)"}, "AttributeError: module 'torch.nn' has no attribute 'Lineal'"),
        ({"train": "1 / 0"}, "ZeroDivisionError"),
        ({"loss": "lambda o, t: undefined"}, "NameError: name 'undefined' is not defined"),
        ({"metric": "lambda o, t: undefined"}, "NameError: name 'undefined' is not defined"),
    ],
)
def test_errors_in_the_file_have_their_traceback(tmp_path, capsys, monkeypatch, changes, line):
    monkeypatch.chdir(tmp_path)
    file = write(tmp_path / "broken.py", **changes)
    assert main(["train", file, "--method", "sgd", "--out", "run"]) == 2
    text = capsys.readouterr().err
    assert line in text
    assert f'File "{file}", line' in text
    assert "trainer.py" not in text
    (tmp_path / "broken.py").write_text("def experiment(:\n")
    assert main(["train", file, "--method", "sgd", "--out", "run2"]) == 2
    assert "SyntaxError" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"train": "None"}, "must return train"),
        ({"train": "[1, 2, 3]"}, "train must be a torch Dataset with a length, or a pair of tensors"),
        ({"train": "(x[:80], y[:70])"}, "must have a target for each of 80 inputs, got 70"),
        ({"validation": "(x[:0], y[:0])"}, "validation must have at least one sample"),
        ({"loss": "3"}, "loss must be a function, got 3"),
        (
            {"loss": "lambda o, t: (o - t) ** 2"},
            "loss must return a tensor with one element, got shape (8, 1)",
        ),
        ({"metric": "lambda o, t: 'good'"}, "lambda must return a single number, got str"),
        ({"metric": "lambda o, t: o - t"}, "lambda must return a single number, got shape (20, 1)"),
        ({"model": "lambda: 7"}, "model must make a torch.nn.Module, got int"),
        ({"model": "nn.ReLU"}, "model must have parameters to train"),
        ({"batch_size": "0"}, "batch_size must be an integer >= 1, got 0"),
        ({"epochs": "-1"}, "epochs must be a finite number above 0, got -1"),
        ({"epochs": "1e308"}, "epochs must be at most 1e+09, got 1e+308"),
        ({"batch_size": "1000"}, "batch_size must be at most the 80 training samples"),
    ],
)
def test_errors_in_its_use_are_a_sentence(tmp_path, capsys, monkeypatch, changes, sentence):
    monkeypatch.chdir(tmp_path)
    file = write(tmp_path / "wrong.py", **changes)
    assert main(["train", file, "--method", "sgd", "--out", "run"]) == 2
    text = capsys.readouterr().err
    assert sentence in text
    assert "Traceback" not in text


def test_what_is_typed_wrong_is_answered(own, capsys):
    for arguments, sentence in (
        (["train", "nowhere.py", "--method", "sgd"], "nowhere.py cannot be read"),
        (["train", "mime.py", "--method", "sgd"], "Did you mean mine.py?"),
        (["train", own, "--method", "sgd", "--sum-over-time"], "sum_over_time is decided in"),
        (["train", own], "--method is missing"),
        (["train", own, "--method"], "--method needs a value"),
        (["train", own, "--method", "sgdd"], "Did you mean sgd"),
        (["train", "lenet/sgd", "--method", "sgd"], "names a method already"),
        (["train", f"{own}:other", "--method", "sgd"], "must define other"),
        (["train", own, "--method", "sgd", "--dropout", "0.5"], "dropout is decided in"),
        (["train", own, "--method", "sgd", "--network", "lenet"], "network is decided in"),
        (["compare", own, "--methods", "sgd", "samm"], "Did you mean sam"),
    ):
        assert main(arguments) == 2
        assert sentence in capsys.readouterr().err


def test_interrupted_from_python(own):
    with pytest.raises(Interrupted), watched(tasks.Own, stop=5):
        train(own, "sam", out="run", console=QUIET)
    resumed = train(own, "sam", out="run", resume=True, console=QUIET)
    assert resumed["weights_sha256"] == train(own, "sam", out="whole", console=QUIET)["weights_sha256"]


def test_a_metric_of_any_name_or_none_is_shown_and_reported(own, tmp_path, capsys):
    plain = write(tmp_path / "plain.py", metric="None")
    for file, shown in ((own, "validation largest"), (plain, "validation loss")):
        run = f"run-{Path(file).stem}"
        assert main(["train", file, "--method", "adam", "--out", run]) == 0
        assert shown in capsys.readouterr().out
        assert main(["report", run, "--out", "page.html"]) == 0
        page = (tmp_path / "page.html").read_text()
        assert shown in page
        assert f'aria-label="{shown.capitalize()}"' in page


def test_which_is_best_by_a_metric_of_ones_own_is_told_if_its_direction_is(own, tmp_path, capsys):
    both = ["compare", own, "--methods", "sgd", "adam", "--seeds", "0", "--out", "both"]
    few = ["--set", "epochs=1", "sgd:optimizer.lr=0.01"]
    assert main([*both, *few, "--maximize"]) == 0
    rows = json.loads((tmp_path / "both" / "comparison.json").read_text())["rows"]
    first, last = (sorted(rows, key=lambda row: row["result"]["mean"])[i]["recipe"] for i in (0, -1))
    assert f"{last.removeprefix('mine/')} has the highest validation largest" in capsys.readouterr().out
    assert main([*both, *few, "--resume", "--minimize"]) == 0  # the same runs
    assert f"{first.removeprefix('mine/')} has the lowest validation largest" in capsys.readouterr().out
    assert main(["report", "both", "--maximize", "--out", "page.html"]) == 0
    assert "has the highest validation largest" in (tmp_path / "page.html").read_text()
    for command in ([*both, "--resume"], ["report", "both"]):
        assert main([*command, "--maximize", "--minimize"]) == 2
        assert "cannot be used together" in capsys.readouterr().err


PADDED = """
import torch
from torch import nn
from torch.utils.data import Dataset
from entropy_sgd.lab import Experiment

class Sentences(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        self.words = torch.randint(0, 5, (24, 6), generator=generator)
        self.tags = self.words % 3
        for i, row in enumerate(self.tags):
            row[1 + i % 6 :] = -100  # of different lengths
    def __len__(self):
        return len(self.words)
    def __getitem__(self, i):
        return {"words": self.words[i], "name": str(i)}, {"tags": self.tags[i]}

class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 3).requires_grad_(False)
        self.out, self.unused = nn.Linear(3, 3), nn.Linear(1, 1)
    def forward(self, batch):
        return {"scores": self.out(self.embedding(batch["words"])).transpose(1, 2)}

class Loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.of_tags = nn.CrossEntropyLoss(weight=torch.ones(3))
    def forward(self, outputs, targets):
        return self.of_tags(outputs["scores"], targets["tags"])

def experiment():
    return Experiment(Tagger, Sentences(), Sentences(), Loss(), batch_size=8, epochs=1)
"""


def test_padded_sequences_in_dictionaries_and_a_weighted_loss_are_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("padded.py").write_text(PADDED)
    assert main(["train", "padded.py", "--method", "sgd", "--out", "run"]) == 0
    measure = ["spectrum", "run", "--batch", "5", "--out", "spectrum.json"]
    assert main([*measure, "--method", "exact"]) == 0
    found = json.loads(Path("spectrum.json").read_text())

    module = experiment.load(experiment.source("padded.py"))[1]
    words, tags = module.train.words, module.train.tags
    weights = torch.load("run/weights.pt", weights_only=True)
    w = torch.cat([weights["out.weight"], weights["out.bias"][:, None]], 1).double().requires_grad_()
    inputs = torch.nn.functional.pad(weights["embedding.weight"][words].double(), (0, 1), value=1.0)
    # the mean over all words that have a tag, whatever the batches
    loss = torch.nn.functional.cross_entropy(inputs[tags != -100] @ w.T, tags[tags != -100])
    (slope,) = torch.autograd.grad(loss, w)
    assert found["loss"] == pytest.approx(loss.item(), rel=1e-12)
    assert found["gradient_norm"] == pytest.approx(slope.norm().item(), rel=1e-12)
    assert found["spectrum"]["count"] == 3 * 4 + 2
    assert main(["landscape", "run", "--points", "3", "--out", "pictures"]) == 0
    capsys.readouterr()
    assert main([*measure, "--method", "fisher", "--samples", "5", "--overwrite"]) == 2
    assert "needs inputs and targets that are tensors" in capsys.readouterr().err


def test_code_that_cannot_be_measured_is_shown_with_its_traceback(tmp_path, monkeypatch, capsys):
    line = (
        "return ((outputs - targets) @ torch.ones(1, 1)).square().mean()"  # which stays in single precision
    )
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "mine.py", f"{HEAD}\ndef loss(outputs, targets):\n    {line}\n", loss="loss")
    assert main(["train", path, "--method", "sgd", "--optimizer.lr", "0.01", "--out", "run"]) == 0
    capsys.readouterr()
    assert main(["spectrum", "run", "--method", "lanczos", "--probes", "2", "--steps", "3"]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"error: {path} fails:\nTraceback")
    assert line in told


def test_a_checkpoint_that_cannot_be_written_is_no_error_of_the_code(own, tmp_path, capsys):
    assert main(["train", own, "--method", "sgd", "--epochs", "0.5", "--out", "run"]) == 0
    (tmp_path / "file").touch()
    capsys.readouterr()
    assert main(["spectrum", "run", "--method", "exact", "--checkpoint", "file/rows"]) == 2
    told = capsys.readouterr().err
    assert "file" in told
    assert "fails" not in told
    assert "Traceback" not in told


def test_the_documentation_has_the_example_as_it_is():
    page = (EXAMPLE.parents[1] / "docs" / "experiments.md").read_text(encoding="utf-8")
    program = EXAMPLE.read_text(encoding="utf-8")
    assert f"```python\n{program[program.index('import torch') :]}```" in page
