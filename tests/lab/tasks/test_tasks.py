from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from entropy_sgd.lab import data, recipes, tasks
from entropy_sgd.lab.training.gradient import Gradient
from entropy_sgd.lab.training.processes import Processes
from lab.methods.tiny import recipe

CPU = torch.device("cpu")


def images(**changes):
    chosen = recipe("sgd", dropout=0.5, **changes)
    return tasks.load(chosen, seed=0, final=False, device=CPU)


def text(tmp_path):
    file = tmp_path / "text.txt"
    file.write_bytes(bytes(32 + (i * i // 7 + i // 3) % 12 for i in range(1200)))
    changes = {"data": f"text:{file}", "batch_size": 6, "unroll": 8, "dropout": 0.5}
    chosen = replace(recipes.get("char-lstm/adam"), **changes)
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
