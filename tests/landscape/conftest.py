"""Small networks of each layer type, with data in unequal batches."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, hessian


class Problem(NamedTuple):
    model: nn.Module
    loss_fn: Callable[[Any, Any], Tensor]
    batches: list[tuple[Tensor, Tensor]]


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(5, 4, batch_first=True)
        self.out = nn.Linear(4, 3, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        h, state = self.lstm(x)
        return self.out(h), state


def sequence_loss(outputs: Any, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs[0].flatten(0, 1), targets.flatten())


def _data(
    sizes: tuple[int, ...], shape: tuple[int, ...], targets: tuple[int, ...]
) -> list[tuple[Tensor, Tensor]]:
    return [(torch.randn(n, *shape), torch.randint(3, (n, *targets))) for n in sizes]


def make(name: str) -> Problem:
    torch.manual_seed(0)
    if name == "linear":
        return Problem(nn.Sequential(nn.Linear(4, 3)), F.cross_entropy, _data((7, 4), (4,), ()))
    if name == "mlp":
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
        return Problem(model, F.cross_entropy, _data((9, 5, 2), (6,), ()))
    if name == "conv":
        layers = [nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 5), nn.Tanh()]
        model = nn.Sequential(*layers, nn.Linear(5, 3))
        return Problem(model, F.cross_entropy, _data((6, 3), (1, 6, 6), ()))
    if name == "batch-norm":
        model = nn.Sequential(
            nn.Conv2d(1, 2, 3),
            nn.BatchNorm2d(2),
            nn.Softplus(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(8, 3),
        )
        batches = _data((6, 3), (1, 6, 6), ())
        for inputs, _ in batches:  # running statistics that are not zeros and ones
            model(inputs)
        return Problem(model.eval(), F.cross_entropy, batches)
    if name == "lstm":
        # 4 characters, 3 classes: only the last dimension of the outputs can hold the classes.
        return Problem(Recurrent(), sequence_loss, _data((4, 2), (4, 5), (4,)))
    raise ValueError(name)


NAMES = ("linear", "mlp", "conv", "batch-norm", "lstm")


@pytest.fixture(params=NAMES)
def problem(request: pytest.FixtureRequest) -> Problem:
    return make(request.param)


@pytest.fixture
def mlp() -> Problem:
    return make("mlp")


def exact_hessian(problem: Problem) -> Tensor:
    """The oracle: torch.func.hessian in float64 of the loss on all samples as a single batch."""
    model = problem.model.double()
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    parameters = [p.detach() for p in model.parameters() if p.requires_grad]
    inputs = torch.cat([x for x, _ in problem.batches]).double()
    targets = torch.cat([y for _, y in problem.batches])

    def loss(w: Tensor) -> Tensor:
        parts = w.split([p.numel() for p in parameters])
        tensors = {n: t.view_as(p) for n, t, p in zip(names, parts, parameters, strict=True)}
        return problem.loss_fn(functional_call(model, tensors, (inputs,)), targets)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch compiles its rules by a function it has deprecated
        return hessian(loss)(torch.cat([p.flatten() for p in parameters]))


@pytest.fixture
def oracle() -> Callable[[Problem], Tensor]:
    return exact_hessian
