from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from entropy_sgd.lab import LabError, data, recipes, tasks
from entropy_sgd.lab.training.gradient import Gradient
from entropy_sgd.lab.training.processes import Processes
from lab.methods.tiny import recipe

CPU = torch.device("cpu")


def images(**changes):
    chosen = recipe("sgd", dropout=0.5, **changes)
    return tasks.load(chosen, seed=0, final=False, device=CPU)


def text(tmp_path, **more):
    file = tmp_path / "text.txt"
    file.write_bytes(bytes(32 + (i * i // 7 + i // 3) % 12 for i in range(1200)))
    changes = {"data": f"text:{file}", "batch_size": 6, "unroll": 8, "dropout": 0.5}
    chosen = replace(recipes.get("char-lstm/adam"), **changes | more)
    return tasks.load(chosen, seed=0, final=False, device=CPU)


def test_a_ragged_last_batch_does_not_spoil_the_statistics():
    digits = data.load("digits")
    chosen = replace(recipes.get("demo/sgd"), train_limit=1001, statistics_samples=2000)
    task = tasks.build(chosen, digits, 0, CPU)
    assert [len(batch) for batch in task.statistics_batches()] == [200] * 5
    few = tasks.build(replace(chosen, statistics_samples=60), digits, 0, CPU)
    assert [len(batch) for batch in few.statistics_batches()] == [60]


@pytest.mark.parametrize("kind", ["images", "text"])
def test_a_second_gradient_has_the_same_batch_and_drops_the_same_units(kind, tmp_path):
    task = images() if kind == "images" else text(tmp_path)
    if kind == "text":  # so that a state is carried
        task.loss(task.draw())
    where = {"clip_norm": None, "where": "a test"}
    gradient = Gradient(task, Processes(), repeated=True, **where)
    first = gradient().item()
    gradients = [parameter.grad.clone() for parameter in task.model.parameters()]
    state, generator = task.state_dict(), torch.get_rng_state()
    assert gradient().item() == first == gradient.value
    assert all(map(torch.equal, gradients, (parameter.grad for parameter in task.model.parameters())))
    assert torch.equal(torch.get_rng_state(), generator)  # the next step draws as if there had been one
    if kind == "text":
        assert all(map(torch.equal, task.state_dict()["hidden"], state["hidden"]))
    careless = Gradient(task, Processes(), repeated=False, **where)
    assert careless().item() != careless().item()


def test_only_what_a_network_asks_for_is_told_to_it():
    assert images().model.network[1].in_features == 64  # of 8 x 8 pixels
    assert images(network="mnistfc").model.network[1].in_features == 64


def test_fewer_images_and_wrong_labels_are_training_data_alone():
    plain, altered = images(train_limit=None), images(train_limit=None, data_fraction=0.5, label_noise=0.2)
    assert (
        altered.size
        == len(altered.train)
        == sum(round(n / 2) for n in plain.train.targets.bincount().tolist())
    )
    position = {image.numpy().tobytes(): label for image, label in zip(*_pair(plain.train), strict=True)}
    wrong = [
        position[image.numpy().tobytes()] != label for image, label in zip(*_pair(altered.train), strict=True)
    ]
    assert sum(wrong) == round(0.2 * altered.size)
    for part in ("validation", "test"):
        ours, theirs = (
            task.data.test() if part == "test" else task.data.validation for task in (plain, altered)
        )
        assert torch.equal(ours.targets, theirs.targets)
        assert torch.equal(ours.inputs, theirs.inputs)


def _pair(split):
    return split.inputs, split.targets.tolist()


def test_another_seed_trains_on_the_same_altered_data():
    chosen = recipe("sgd", label_noise=0.3, data_fraction=0.5, train_limit=None)
    one, two = (tasks.load(chosen, seed=seed, final=False, device=CPU).train for seed in (0, 1))
    assert torch.equal(one.targets, two.targets)
    other = tasks.load(replace(chosen, data_seed=1), seed=0, final=False, device=CPU).train
    assert not torch.equal(one.targets, other.targets)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label_noise": 1.0}, r"label_noise must be a share in \[0, 1\), got 1.0"),
        ({"label_noise": float("nan")}, "label_noise must be"),
        ({"data_fraction": 0.0}, r"data_fraction must be a share in \(0, 1\], got 0.0"),
        ({"data_seed": -1}, "data_seed must be an integer >= 0, got -1"),
        ({"width": 0.0}, "width must be a finite number above 0, got 0.0"),
    ],
)
def test_nonsense_about_the_data_is_refused(changes, message):
    with pytest.raises(LabError, match=message):
        recipe("sgd", **changes)


def test_only_images_can_be_altered_and_only_allcnn_has_a_width(tmp_path):
    with pytest.raises(LabError, match=r"is text: label_noise is for images and must be left out, got 0.2"):
        text(tmp_path, label_noise=0.2)
    with pytest.raises(LabError, match=r"no option of network 'small-mnistfc' is called 'width'"):
        images(width=0.5)
