"""In the loops people write: schedulers, scaling, clipping, accumulation, data parallelism, compilation."""

from __future__ import annotations

import copy
import math
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from entropy_sgd import EntropyAdam, EntropySGD
from network import batch, network, weights
from problem import Problem, flat

SCHEDULERS = {
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda t: 0.95**t),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda t: 0.9),
    "StepLR": lambda o: lr_scheduler.StepLR(o, 3),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [2, 7]),
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.8)], [3]
    ),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.8)]
    ),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, 10),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 5),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 4),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.1, 1.0, step_size_up=3),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 1.0, total_steps=13),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=1),
}


def test_no_scheduler_of_torch_is_forgotten():
    bases = (lr_scheduler.LRScheduler, lr_scheduler.ReduceLROnPlateau)
    known = {
        name
        for name, value in vars(lr_scheduler).items()
        if isinstance(value, type) and issubclass(value, bases) and not name.startswith("_")
    }
    assert known - {"LRScheduler"} == set(SCHEDULERS)


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (
            lambda ps: EntropySGD(ps, lr=0.5, momentum=0.9, L=3),
            lambda ps: torch.optim.SGD(ps, lr=0.5, momentum=0.9),
        ),
        (
            lambda ps: EntropyAdam(ps, lr=0.5, L=3),
            lambda ps: torch.optim.Adam(ps, lr=0.5, betas=(0.5, 0.999)),
        ),
    ],
)
def test_schedulers_do_to_it_what_they_do_to_torch(name, ours, theirs):
    problem, histories = Problem(), []
    for make in (ours, theirs):
        params = problem.parameters()
        optimizer = make(params)
        scheduler = SCHEDULERS[name](optimizer)
        closure, history = problem.closure(params, [0]), []
        for _ in range(12):
            optimizer.step(closure)
            scheduler.step(*([1.0] if name == "ReduceLROnPlateau" else []))
            group = optimizer.param_groups[0]
            history.append((group["lr"], group.get("momentum"), group.get("betas")))
        histories.append(history)
    assert histories[0] == histories[1]


def test_the_scheduled_rate_is_the_one_of_the_outer_update():
    p = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = EntropySGD(
        [p], lr=1.0, momentum=0.0, L=1, noise=0.0, alpha=1.0, inner_momentum=0.0, gamma=0.0, inner_lr=1.0
    )
    scheduler = lr_scheduler.ExponentialLR(optimizer, 0.5)
    for _ in range(4):
        p.grad = torch.ones_like(p)
        optimizer.step()
        scheduler.step()
    assert p.item() == pytest.approx(-(1 + 0.5 + 0.25 + 0.125))


def test_grad_scaler_and_a_skipped_step():
    """Scaling by a power of two is exact; a step with an infinite gradient advances nothing at all."""
    problem = Problem()
    a, b = problem.parameters(torch.float32), problem.parameters(torch.float32)
    scaled, plain = EntropySGD(a, L=3), EntropySGD(b, L=3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=1000)
    closure_a, closure_b = problem.closure(a, [0]), problem.closure(b, [0])
    for i in range(10):
        closure_a()
        for p in a:
            p.grad.mul_(scaler.get_scale())
        if i == 4:
            held, weights = [p.grad.clone() for p in a], flat(a).clone()
            state = str(scaled.state_dict())
            a[0].grad[0, 0] = math.inf
            scaler.scale(torch.zeros(()))
            scaler.step(scaled)
            scaler.update()
            assert torch.equal(flat(a), weights)
            assert str(scaled.state_dict()) == state
            for p, g in zip(a, held, strict=True):
                p.grad = g / 2  # the scale was halved
        scaler.scale(torch.zeros(()))
        scaler.step(scaled)
        scaler.update()
        plain.step(closure_b)
    assert torch.equal(flat(a), flat(b))


def test_accumulated_gradients_are_one_mini_batch():
    whole, parts = network(), network()
    a, b = EntropySGD(whole.parameters(), L=3), EntropySGD(parts.parameters(), L=3)
    for i in range(9):
        inputs, targets = batch(i)
        a.zero_grad()
        nn.functional.cross_entropy(whole(inputs), targets).backward()
        a.step()
        b.zero_grad()
        for half in (slice(0, 4), slice(4, 8)):
            (nn.functional.cross_entropy(parts(inputs[half]), targets[half]) / 2).backward()
        b.step()
    torch.testing.assert_close(weights(whole), weights(parts), rtol=1e-5, atol=1e-6)


def test_clipping_acts_on_the_gradient_of_the_langevin_step():
    model = network()
    optimizer = EntropySGD(model.parameters(), L=4, noise=0.0, inner_momentum=0.0, inner_lr=0.1, gamma=0.0)
    start = weights(model)
    (100 * nn.functional.cross_entropy(model(batch(0)[0]), batch(0)[1])).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    assert torch.linalg.norm(weights(model) - start).item() == pytest.approx(0.05, rel=1e-4)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_zero_grad_either_way(set_to_none):
    model = network()
    optimizer = EntropySGD(model.parameters(), L=2)
    for i in range(6):
        optimizer.zero_grad(set_to_none=set_to_none)
        nn.functional.cross_entropy(model(batch(i)[0]), batch(i)[1]).backward()
        optimizer.step()
    other = network()
    optimizer = EntropySGD(other.parameters(), L=2)
    for i in range(6):
        for p in other.parameters():
            p.grad = None
        nn.functional.cross_entropy(other(batch(i)[0]), batch(i)[1]).backward()
        optimizer.step()
    assert torch.equal(weights(model), weights(other))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.compile's own imports
def test_a_compiled_model_trains_alike():
    eager, to_compile = network(), network()
    compiled = torch.compile(to_compile, backend="aot_eager")
    a, b = EntropySGD(eager.parameters(), L=3), EntropySGD(compiled.parameters(), L=3)
    for i in range(9):
        for model, optimizer in ((eager, a), (compiled, b)):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(batch(i)[0]), batch(i)[1]).backward()
            optimizer.step()
    torch.testing.assert_close(weights(eager), weights(to_compile), rtol=1e-5, atol=1e-6)


def test_averaged_models_read_the_outer_weights():
    model = network()
    optimizer = EntropySGD(model.parameters(), L=3)
    average = torch.optim.swa_utils.AveragedModel(model)
    seen = []
    for i in range(6):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch(i)[0]), batch(i)[1]).backward()
        optimizer.step()
        optimizer.eval()
        average.update_parameters(model)
        seen.append(weights(model))
        optimizer.train()
    torch.testing.assert_close(weights(average.module), torch.stack(seen).mean(0), rtol=1e-5, atol=1e-6)


def test_data_parallel_ranks_stay_equal_and_equal_one_process(tmp_path: Path):
    worker = Path(__file__).with_name("data_parallel.py")
    processes = [subprocess.Popen([sys.executable, worker, str(rank), tmp_path]) for rank in range(2)]
    # torch 2.13's gloo now and then aborts a process that is leaving, when its weights are written.
    assert {process.wait(120) for process in processes} <= {0, -signal.SIGABRT}
    first, second = (torch.load(tmp_path / f"weights-{rank}.pt", weights_only=True) for rank in range(2))
    assert torch.equal(first, second)

    model = network()
    optimizer = EntropySGD(model.parameters(), L=5, noise=1e-2)
    for i in range(50):
        optimizer.zero_grad()
        pairs = [batch(2 * i + rank) for rank in range(2)]
        inputs, targets = (torch.cat(t) for t in zip(*pairs, strict=True))
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    torch.testing.assert_close(first, weights(model), rtol=1e-3, atol=1e-4)


def test_models_and_optimizers_are_copied_together():
    model = network()
    optimizer = EntropySGD(model.parameters(), L=3)
    twin_model, twin = copy.deepcopy((model, optimizer))
    for i in range(5):
        for m, o in ((model, optimizer), (twin_model, twin)):
            o.zero_grad()
            nn.functional.cross_entropy(m(batch(i)[0]), batch(i)[1]).backward()
            o.step()
    assert torch.equal(weights(model), weights(twin_model))
