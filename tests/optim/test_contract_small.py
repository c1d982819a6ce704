"""Small promises: independent noise, optimizers outside that keep more than usual, options of groups."""

from __future__ import annotations

import copy
import io
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from entropy_sgd import EntropyAdam, EntropySGD, LocalEntropy
from network import batch, network, weights


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        inputs, targets = batch(step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()


# ---- one optimizer for each parameter, stepping inside backward() ----


def in_backward(seeds: list[int], steps: int = 3) -> list[Tensor]:
    """How far two parameters of equal shape and gradient zero are moved: by the noise alone."""
    params = [nn.Parameter(torch.zeros(50)) for _ in seeds]
    for p, seed in zip(params, seeds, strict=True):
        optimizer = EntropySGD([p], L=10, noise=1.0, seed=seed)
        p.register_post_accumulate_grad_hook(lambda _, optimizer=optimizer: optimizer.step())
    for _ in range(steps):
        sum((0 * p).sum() for p in params).backward()
    return [p.detach() for p in params]


def test_optimizers_in_backward_that_share_a_seed_are_told_so_once():
    with pytest.warns(UserWarning, match="Give each optimizer its own seed") as said:
        first, second = in_backward([0, 0])
    assert len(said) == 1
    assert torch.equal(first, second)


def test_optimizers_in_backward_with_seeds_of_their_own_are_independent():
    first, second = in_backward([10, 11])
    assert abs(torch.corrcoef(torch.stack([first, second]))[0, 1]) < 0.5


# ---- outer optimizers that keep more than `state[p]` ----


class Warm(torch.optim.SGD):
    """SGD whose rate grows with the updates, counted in an attribute that its own `state_dict` saves."""

    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, lr)
        self.count = 0

    def step(self, closure: Any = None) -> Any:
        self.count += 1
        for group in self.param_groups:
            group["lr"] = 0.1 * self.count
        return super().step(closure)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "count": self.count}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self.count = state_dict["count"]


class Counting(torch.optim.Optimizer):
    """Counts its updates in `state` beside the parameters, and writes names that collide into its group."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1, "gamma": None, "alpha": 0.0})
        self.state["updates"] = 0  # type: ignore[index]  # a key that is no parameter, on purpose

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # as third-party optimizers write it
        self.state["updates"] += 1  # type: ignore[index]  # a key that is no parameter, on purpose
        for group in self.param_groups:
            group["gamma"] = (group["gamma"] or 0.0) + 0.5
            group["alpha"] += 1.0
            for p in group["params"]:
                p -= group["lr"] * group["gamma"] * self.state["updates"] * p.grad  # type: ignore[index]  # a key that is no parameter, on purpose


@pytest.mark.parametrize("outer", [Warm, Counting])
@pytest.mark.parametrize("stop", [1, 4, 7])
def test_what_an_outer_optimizer_keeps_beside_parameters_is_saved_and_copied(outer, stop):
    def make(model: nn.Module) -> LocalEntropy:
        return LocalEntropy(model.parameters(), outer, L=3, gamma=0.1)

    model = network()
    optimizer = make(model)
    train(model, optimizer, range(stop))
    twin = copy.deepcopy((model, optimizer))
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    other = network()
    resumed = make(other)
    other.load_state_dict(saved["model"])
    resumed.load_state_dict(saved["optimizer"])
    train(model, optimizer, range(stop, stop + 8))
    optimizer.eval()
    optimizer.train()
    for its, theirs in (twin, (other, resumed)):
        train(its, theirs, range(stop, stop + 8))
        assert torch.equal(weights(its), weights(model))


def test_an_outer_optimizer_of_ours_is_stepped_as_it_steps_alone():
    """The counts and the colliding options reach it unchanged: against Counting by hand."""
    model, twin = network(), network()
    optimizer = LocalEntropy(model.parameters(), Counting, L=1, gamma=0.1, alpha=1.0, noise=0.0, inner_lr=0.2)
    outer = Counting(twin.parameters())
    for step in range(4):
        train(model, optimizer, range(step, step + 1))
        inputs, targets = batch(step)
        twin.zero_grad()
        nn.functional.cross_entropy(twin(inputs), targets).backward()
        # With Nesterov's form, the first step of a cycle is inner_lr (1 + inner_momentum) times the gradient.
        for p in twin.parameters():
            assert p.grad is not None
            p.grad *= 0.2 * 1.9
        outer.step()
    torch.testing.assert_close(weights(model), weights(twin), rtol=1e-4, atol=1e-6)
    assert optimizer.param_groups[0]["gamma"] == 0.1
    assert optimizer.param_groups[0]["outer_gamma"] == 2.0
    assert optimizer.param_groups[0]["outer_alpha"] == 4.0


@pytest.mark.parametrize("kind", [LocalEntropy, EntropySGD, EntropyAdam])
def test_local_entropy_does_not_go_around_itself(kind):
    with pytest.raises(ValueError, match="outer must be an optimizer that has no inner loop of its own"):
        LocalEntropy(network().parameters(), kind)


# ---- options of groups ----


@pytest.mark.parametrize("kind", [EntropySGD, EntropyAdam, LocalEntropy])
@pytest.mark.parametrize(("name", "value"), [("L", 5), ("seed", 3), ("gamma", 0.5), ("monitor", False)])
def test_a_common_option_in_the_only_group_is_that_of_the_optimizer(kind, name, value):
    runs = []
    for in_group in (False, True):
        model = network()
        params = list(model.parameters())
        options = {name: value}
        optimizer = kind([{"params": params, **options}]) if in_group else kind(params, **options)
        train(model, optimizer, range(7))
        runs.append((weights(model), str(optimizer.diagnostics())))
    assert torch.equal(runs[0][0], runs[1][0])
    assert runs[0][1] == runs[1][1]


def test_monitor_in_one_of_two_groups_is_refused_by_name():
    first, second = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))
    with pytest.raises(ValueError, match=r"monitor is common to all parameter groups.*monitor=False"):
        EntropySGD([{"params": first, "monitor": False}, {"params": second}])


# ---- in place, by the model itself ----


def test_an_embedding_that_renormalises_itself_starts_cycles_over():
    """`max_norm` writes into the weights in the forward pass: a trap, told once."""
    torch.manual_seed(0)
    table = nn.Embedding(5, 3, max_norm=0.5)
    optimizer = EntropySGD(table.parameters(), L=3)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(6):
            optimizer.zero_grad()
            table(torch.arange(5)).square().sum().backward()
            optimizer.step()
    assert [str(w.message)[:60] for w in said if "changed from outside" in str(w.message)] != []
    assert optimizer.outer_steps == 0
