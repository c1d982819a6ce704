"""torch.compile around training: nothing is compiled again from step to step, whatever the schedules do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

from entropy_sgd import SGLD, EntropyAdam, EntropySGD, scoping
from network import batch, network, weights

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of torch.compile's own imports
]

KINDS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda ps: EntropySGD(ps, L=3, noise=1e-2, gamma=scoping.Exponential(1e-2, 0.1)),
    "match": lambda ps: EntropySGD(ps, L=3, noise=1e-2, gamma=scoping.MatchGradient()),
    "adam": lambda ps: EntropyAdam(ps, lr=torch.tensor(0.01), L=3, noise=1e-2, inner="adam", inner_lr=0.01),
    "sgld": lambda ps: SGLD(ps, lr=0.01),
}


class Loop:
    """A network with its optimizer and scheduler; `train` and `step` are what one compiles."""

    def __init__(self, kind: str) -> None:
        self.model = network()
        self.optimizer = KINDS[kind](self.model.parameters())
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.95)
        self.step: Callable[[], Any] = self.optimizer.step

    def gradient(self, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(inputs), targets).backward()

    def train(self, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        self.gradient(inputs, targets)
        self.optimizer.step()


def compiled_graphs() -> int:
    return counters["stats"]["unique_graphs"]


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("kind", KINDS)
def test_a_compiled_step_is_never_compiled_again(kind):
    eager, loop = Loop(kind), Loop(kind)
    loop.step = torch.compile(loop.optimizer.step, backend="aot_eager")
    for i in range(30):
        for each in (eager, loop):
            each.gradient(*batch(i))
        eager.step()
        with torch._dynamo.config.patch(error_on_recompile=i > 0):
            loop.step()
        for each in (eager, loop):
            each.scheduler.step()
        if i == 0:
            graphs = compiled_graphs()
    assert compiled_graphs() == graphs
    assert torch.equal(weights(eager.model), weights(loop.model))


@pytest.mark.parametrize("kind", KINDS)
def test_a_compiled_training_step_is_never_compiled_again(kind):
    """Forward and backward become graphs; the optimizer runs between them, as it is."""
    eager, loop = Loop(kind), Loop(kind)
    train = torch.compile(loop.train, backend="aot_eager")
    for i in range(30):
        eager.train(*batch(i))
        with torch._dynamo.config.patch(error_on_recompile=i > 0):
            train(*batch(i))
        for each in (eager, loop):
            each.scheduler.step()
        if i == 0:
            graphs = compiled_graphs()
    assert compiled_graphs() == graphs > 0
    torch.testing.assert_close(weights(loop.model), weights(eager.model), rtol=1e-4, atol=1e-5)
