"""Replicas in two, three and four processes against transcriptions that run all replicas in one."""

from __future__ import annotations

import copy
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from entropy_sgd import EntropySGD, LocalEntropy, Replicas, ReplicatedLocalEntropy, scoping
from entropy_sgd.optim.coupling import replica_seed
from entropy_sgd.optim.noise import Span, gaussian
from frameworks.launch import torchrun
from optim.replicated import (
    COORDINATES,
    COUPLING,
    CURVATURE,
    CYCLES,
    DILOCO,
    ELASTIC,
    LOSS_UNIT,
    NOISY,
    PARLE,
    QUADRATIC,
    QUIET,
    RHO,
    drive,
)
from problem import KINDS, SHAPES, Problem, run

NUMBERS = (2, 3, 4)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of the four processes has saved; they check the rest themselves."""
    folder = tmp_path_factory.mktemp("replicas")
    torchrun(Path(__file__).with_name("replicated.py"), folder, processes=4)
    return [torch.load(folder / f"results-{rank}.pt", weights_only=True) for rank in range(4)]


def close(results: list[dict[str, Any]], n: int, name: str, expected: np.ndarray) -> None:
    """`expected` has x of each cycle and replica: (cycles, n, size)."""
    trained = torch.stack([torch.stack(results[a][f"{n}"][name]) for a in range(n)], dim=1)
    np.testing.assert_allclose(trained.numpy(), expected, rtol=1e-9, atol=1e-11)


def thermal(seed: int, t: int, l: int) -> np.ndarray:
    spans = [Span(i, 0, math.prod(shape)) for i, shape in enumerate(SHAPES)]
    return torch.cat(gaussian(spans, seed, t, l, torch.device("cpu"))).double().numpy()


@pytest.mark.parametrize("n", NUMBERS)
def test_parle(results, n):
    """Its equations in numpy: an inner loop for each replica, then the outer step with momentum."""
    problem, o = Problem(), PARLE
    x = np.tile(problem.start, (n, 1))
    v, trace = np.zeros_like(x), []
    for t in range(CYCLES):
        mu = x.copy()
        for a in range(n):
            y, w = x[a].copy(), 0.0
            for l in range(o["L"]):
                dy = problem.gradient(y, (t * o["L"] + l) * n + a) + o["gamma"](t) * (y - x[a])
                w = 0.9 * w + dy
                y = y - o["inner_lr"] * (dy + 0.9 * w)
                seed = (o["seed"] + a * 0x9E3779B97F4A7C15) % 2**64
                y = y + math.sqrt(o["inner_lr"]) * o["noise"] * thermal(seed, t, l)
                mu[a] = 0.25 * mu[a] + 0.75 * y
        v = o["momentum"] * v + (x - mu) + RHO(t) * (x - x.mean(0))
        if t == CYCLES - 1:
            before = x
        x = x - o["lr"] * v
        trace.append(x.copy())
    close(results, n, "parle", np.stack(trace))
    mean = before.mean(0)
    for a in range(n):
        figures = results[a][f"{n}"]["parle-figures"]
        assert figures["rho"] == pytest.approx(RHO(CYCLES - 1))
        assert figures["x_minus_mean"] == pytest.approx(np.linalg.norm(before[a] - mean))
        cosine = before[a] @ mean / np.linalg.norm(before[a]) / np.linalg.norm(mean)
        assert figures["overlap"] == pytest.approx(cosine)


def alone(options: dict[str, Any], replica: int, n: int) -> list[torch.Tensor]:
    """x of EntropySGD after each cycle, on the batches and with the noise of one replica."""
    problem = Problem()
    params = problem.parameters()
    optimizer = EntropySGD(params, **{**options, "seed": replica_seed(options["seed"], replica)})
    return drive(optimizer, params, problem, range(CYCLES * options["L"]), replica, n)[
        options["L"] - 1 :: options["L"]
    ]


def test_without_coupling_each_is_entropy_sgd_bit_for_bit(results):
    for n in NUMBERS:
        for a in range(n):
            trained = results[a][f"{n}"]["free"]
            assert all(map(torch.equal, trained, alone(PARLE, a, n)))


def test_one_replica_is_entropy_sgd_bit_for_bit(results):
    """In a group of one process, and without torch.distributed."""
    assert all(map(torch.equal, results[0]["1"]["parle"], alone(PARLE, 0, 1)))
    problem = Problem()
    for rho in (0.5, math.inf, scoping.ReplicaFocus(updates=9, loss=1.0)):
        for dtype in (torch.float32, torch.float64):
            params, single = problem.parameters(dtype), problem.parameters(dtype)
            optimizer = Replicas(params, momentum=0.9, L=4, noise=1e-2, rho=rho)
            assert torch.equal(
                run(optimizer, params, problem, 18), run(KINDS["sgd"](single), single, problem, 18)
            )
            optimizer.eval()
            optimizer.train()
            optimizer.finish()
    params, single = problem.parameters(), problem.parameters()
    options: Any = (torch.optim.AdamW, {"lr": 1e-2, "weight_decay": 0.1})
    optimizer = ReplicatedLocalEntropy(params, *options, L=4, noise=1e-2, weight_decay=0.01)
    assert torch.equal(run(optimizer, params, problem, 18), run(KINDS["adamw"](single), single, problem, 18))
    assert isinstance(optimizer, LocalEntropy)


@pytest.mark.parametrize("n", NUMBERS)
def test_elastic_averaging(results, n):
    """Zhang et al. (2015), eq. (5), with the mean as the centre."""
    problem, trace = Problem(), []
    x = np.tile(problem.start, (n, 1))
    for t in range(20):
        gradient = np.stack([problem.gradient(x[a], t * n + a) for a in range(n)])
        x = x - ELASTIC["inner_lr"] * gradient - 0.3 * (x - x.mean(0))
        trace.append(x)
    close(results, n, "elastic", np.stack(trace))


@pytest.mark.parametrize("n", NUMBERS)
def test_replicated_sgd(results, n):
    """Pittorino et al. (2021): descent of f(x_a) + g |x_a - x̄|^2 / 2 with focusing of g."""
    problem, trace, g = Problem(), [], 0.0
    x = np.tile(problem.start, (n, 1))
    for t in range(30):
        gradient, losses = np.empty_like(x), []
        for a in range(n):
            A = problem.A[t * n + a]
            losses.append((1 - np.cos(A @ x[a])).sum() / 2 + x[a] @ x[a] / 20)
            gradient[a] = problem.gradient(x[a], t * n + a)
        apart = x - x.mean(0)
        x = x - ELASTIC["inner_lr"] * (gradient + g * apart)
        trace.append(x)
        energy = (apart**2).sum(1).mean() / 2
        if t + 1 == 15:
            g = LOSS_UNIT * np.mean(losses) / energy
        elif t + 1 > 15:
            g *= 3 ** (1 / 30)
    close(results, n, "rsgd", np.stack(trace))
    rho = results[0][f"{n}"]["rsgd-figures"]["rho"]
    assert rho == pytest.approx(ELASTIC["inner_lr"] * g / 3 ** (1 / 30))


@pytest.mark.parametrize("n", NUMBERS)
def test_diloco(results, n):
    """Douillard et al. (2023), Algorithm 1: AdamW that lives on in every worker, Nesterov on their mean."""
    problem, trace = Problem(), []
    x = torch.nn.Parameter(torch.tensor(problem.start))
    workers = [torch.nn.Parameter(x.detach().clone()) for _ in range(n)]
    inner = [torch.optim.AdamW([w], **DILOCO["inner_options"]) for w in workers]
    outer = torch.optim.SGD([x], **DILOCO["outer_options"])
    for t in range(CYCLES):
        for a, worker in enumerate(workers):
            worker.data.copy_(x.data)
            for l in range(DILOCO["L"]):
                gradient = problem.gradient(worker.detach().numpy(), (t * DILOCO["L"] + l) * n + a)
                worker.grad = torch.tensor(gradient)
                inner[a].step()
        x.grad = torch.stack([x.detach() - w.detach() for w in workers]).mean(0)
        outer.step()
        trace.append(np.tile(x.detach().numpy(), (n, 1)))
    close(results, n, "diloco", np.stack(trace))
    for a in range(1, n):  # one x for all, to the bit
        assert all(map(torch.equal, results[a][f"{n}"]["diloco"], results[0][f"{n}"]["diloco"]))


def test_quadratic(results):
    """A cycle is linear: mu = k x + noise. Mean and spread of many coordinates against the closed form."""
    q, n = QUADRATIC, 3
    r = 1 - q["inner_lr"] * (CURVATURE + q["gamma"])
    k = r ** q["L"] + q["inner_lr"] * q["gamma"] * (1 - r ** q["L"]) / (1 - r)
    variance = q["lr"] ** 2 * q["noise"] ** 2 * q["inner_lr"] * sum(r ** (2 * l) for l in range(q["L"]))
    of_mean = 1 - q["lr"] * (1 - k)  # factor of x̄ in a cycle
    of_spread = of_mean - q["lr"] * COUPLING  # and of x_a - x̄
    x = torch.stack([torch.stack(results[a]["quadratic"]) for a in range(n)])  # (n, cycles, coordinates)
    mean, spread = x.mean(0), x - x.mean(0)
    error = 5 / math.sqrt(COORDINATES)
    expected_mean, mean_sq, spread_sq = 2.0, 0.0, 0.0
    for cycle in range(NOISY):
        expected_mean *= of_mean
        mean_sq = of_mean**2 * mean_sq + variance / n
        spread_sq = of_spread**2 * spread_sq + variance * (1 - 1 / n)
        assert mean[cycle].mean() == pytest.approx(expected_mean, abs=error * math.sqrt(mean_sq))
        assert mean[cycle].var() == pytest.approx(mean_sq, rel=1.5 * error)
        assert spread[:, cycle].square().mean() == pytest.approx(spread_sq, rel=1.5 * error)
    for cycle in range(NOISY, NOISY + QUIET):
        torch.testing.assert_close(mean[cycle], of_mean * mean[cycle - 1])
        torch.testing.assert_close(spread[:, cycle], of_spread * spread[:, cycle - 1])


def test_bytes_sent(results):
    """Counted by the kernel: 1/L of what DDP sends for a gradient, and half of that in bfloat16."""
    for rank in range(2):
        sent = results[rank]["bytes"]
        assert sent["ddp"] == pytest.approx(sent["weights"], rel=0.05)
        for name, part in (("replicas", 1), ("shared", 1), ("narrow", 2)):
            assert sent[name] == pytest.approx(sent["ddp"] / sent["L"] / part, rel=0.05), name


def test_parle_schedule():
    gamma, rho = scoping.parle(batches=390)
    for t in (0, 1, 1000):
        assert gamma(t) == pytest.approx(0.01 * (1 + 1 / 780) ** t)
        assert rho(t) == gamma(t)
    assert (gamma(10_000), rho(10_000)) == (1.0, 10.0)
    with pytest.raises(ValueError, match="batches must be an integer >= 1, got 0"):
        scoping.parle(0)


def test_bad_arguments(monkeypatch):
    params = Problem().parameters()
    for options, message in [
        ({"rho": -1.0}, r"rho must be a finite number in \[0, inf\), got -1.0"),
        ({"rho": math.nan}, "rho must be a finite number"),
        ({"rho": lambda t: -1.0}, "rho at outer step 0 .* must be a finite number"),
        ({"exchange_dtype": torch.float16}, "exchange_dtype must be torch.float32, torch.bfloat16 or None"),
        ({"process_group": "gloo"}, "process_group must be a process group of torch.distributed"),
        ({"gama": 1.0}, "gama"),
    ]:
        with pytest.raises((ValueError, TypeError), match=message):
            Replicas(params, **options)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RuntimeError, match=r"WORLD_SIZE=2 .*init_process_group was not called"):
        Replicas(params)


def test_an_outer_optimizer_with_modes_shares_x():
    class WithModes(torch.optim.SGD):
        def eval(self) -> None: ...

        def train(self) -> None: ...

    with pytest.raises(ValueError, match=r"outer must be an optimizer without eval\(\), or rho=inf"):
        ReplicatedLocalEntropy(Problem().parameters(), WithModes, {"lr": 1.0})
    ReplicatedLocalEntropy(Problem().parameters(), WithModes, {"lr": 1.0}, rho=math.inf)


def test_copies():
    problem = Problem()
    params = problem.parameters()
    optimizer = Replicas(params, L=4, rho=0.3, noise=1e-2)
    run(optimizer, params, problem, 6)
    copies = [copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))]
    expected = run(optimizer, params, problem, 6)
    for clone in copies:
        twins = [p for group in clone.param_groups for p in group["params"]]
        assert torch.equal(run(clone, twins, problem, 6), expected)
        assert clone.diagnostics() == optimizer.diagnostics()
