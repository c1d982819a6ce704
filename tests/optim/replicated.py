"""One of four processes, groups of which are replicas: `replicated.py FOLDER`, under torchrun.

What it trains it saves for test_replicas.py, which compares it with transcriptions in one process. What only
the processes themselves can see it checks here.
"""

from __future__ import annotations

import io
import math
import os
import socket
import struct
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from entropy_sgd import EntropySGD, Replicas, ReplicatedLocalEntropy, scoping
from entropy_sgd.optim.averaging import Diverged
from network import batch, network, weights
from problem import Problem, flat

Group = dist.ProcessGroup
PARLE: dict[str, Any] = {
    "lr": 0.7,
    "momentum": 0.5,
    "nesterov": False,
    "L": 4,
    "inner_lr": 0.05,
    "gamma": scoping.Exponential(0.1, 0.05),
    "noise": 1e-2,
    "alpha": 0.75,
    "inner_state": "reset",
    "seed": 7,
}
RHO = scoping.Exponential(0.2, 0.1)
ELASTIC: dict[str, Any] = {
    "lr": 1.0, "L": 1, "gamma": 0.0, "alpha": 1.0, "noise": 0.0, "inner_lr": 0.05, "inner_momentum": 0.0,
}  # fmt: skip
DILOCO: dict[str, Any] = {
    "outer": torch.optim.SGD,
    "outer_options": {"lr": 0.7, "momentum": 0.9, "nesterov": True},
    "L": 5,
    "gamma": 0.0,
    "alpha": 1.0,
    "noise": 0.0,
    "inner": torch.optim.AdamW,
    "inner_options": {"lr": 0.01, "weight_decay": 0.1},
    "inner_state": "keep",
}
QUADRATIC: dict[str, Any] = {
    "lr": 0.5, "L": 3, "gamma": 0.8, "alpha": 1.0, "noise": 1.0, "inner_lr": 0.2, "inner_momentum": 0.0,
}  # fmt: skip
CURVATURE, COUPLING, COORDINATES, NOISY, QUIET = 0.5, 0.3, 40_000, 6, 3
CYCLES = 6
LOSS_UNIT = 0.05  # of the loss that schedules see, for focusing to begin with a moderate rho


def drive(
    optimizer: Any, params: list[nn.Parameter], problem: Problem, steps: range, replica: int, n: int
) -> list[Tensor]:
    """Replica `replica` sees the mini-batches replica, replica + n, ...; returns what it holds after each."""
    trace = []
    for i in steps:
        closure = problem.closure(params, [i * n + replica])
        optimizer.step(lambda closure=closure: LOSS_UNIT * closure().detach())
        trace.append(flat(params).detach().clone())
    return trace


def trajectories(group: Group, n: int) -> dict[str, Any]:
    """x after every cycle, for the transcriptions."""
    a = dist.get_rank(group)
    problem, results = Problem(), dict[str, Any]()

    def run(name: str, make: Callable[[list[nn.Parameter]], Any], cycles: int) -> Any:
        params = problem.parameters()
        if a > 0:  # another start, which the optimizer replaces by that of replica 0
            for p in params:
                p.data.add_(1.0)
        optimizer = make(params)
        L = optimizer.param_groups[0]["L"]
        results[name] = drive(optimizer, params, problem, range(cycles * L), a, n)[L - 1 :: L]
        results[f"{name}-figures"] = optimizer.diagnostics()
        return optimizer

    parle = run("parle", lambda ps: Replicas(ps, rho=RHO, process_group=group, **PARLE), CYCLES)
    assert (parle.replica, parle.replicas) == (a, n)
    run("free", lambda ps: Replicas(ps, rho=0.0, process_group=group, **PARLE), CYCLES)
    run("elastic", lambda ps: Replicas(ps, rho=0.3, process_group=group, **ELASTIC), 20)
    rule = scoping.ReplicaFocus(updates=30, start=15, growth=3.0, maximum=None)
    run("rsgd", lambda ps: Replicas(ps, rho=rule, process_group=group, **ELASTIC), 30)
    run(
        "diloco",
        lambda ps: ReplicatedLocalEntropy(ps, rho=math.inf, process_group=group, **DILOCO),
        CYCLES,
    )
    return results


def quadratic(group: Group) -> list[Tensor]:
    """f = h x^2 / 2 on many independent coordinates: noise spreads the replicas, then they gather."""
    p = nn.Parameter(torch.full((COORDINATES,), 2.0, dtype=torch.float64))
    optimizer = Replicas([p], rho=COUPLING, process_group=group, seed=3, **QUADRATIC)
    trace = []
    for cycle in range(NOISY + QUIET):
        if cycle == NOISY:
            optimizer.param_groups[0]["noise"] = 0.0
        for _ in range(QUADRATIC["L"]):
            p.grad = CURVATURE * p.detach()
            optimizer.step()
        trace.append(p.detach().clone())
    return trace


# ---- which weights the model holds ----


def gathered(value: Tensor, group: Group) -> list[Tensor]:
    parts = [torch.empty_like(value) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, value, group=group)
    return parts


def learn(model: nn.Module, optimizer: Any, steps: range, replica: int, size: int = 8) -> None:
    for i in steps:
        inputs, targets = batch(10 * i + replica, size)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()


def eval_shows_the_mean(group: Group) -> None:
    a = dist.get_rank(group)
    for steps in (4, 10):  # a cycle's end and inside one
        model = network()
        optimizer = Replicas(model.parameters(), L=4, rho=0.2, noise=1e-2, process_group=group)
        learn(model, optimizer, range(steps), a)
        inside = weights(model)
        present = [optimizer.state[p]["entropy_x"] if steps % 4 else p.detach() for p in model.parameters()]
        own = gathered(torch.cat([x.flatten() for x in present]), group)
        assert not torch.equal(own[0], own[1])
        optimizer.eval()
        shown = weights(model)
        torch.testing.assert_close(shown, torch.stack(own).mean(0), rtol=1e-5, atol=1e-7)
        assert all(torch.equal(shown, other) for other in gathered(shown, group))
        optimizer.eval()
        assert torch.equal(weights(model), shown)
        optimizer.train()
        assert torch.equal(weights(model), inside)
        if a == 0:  # nothing is sent: one rank may look alone
            optimizer.eval()
            assert torch.equal(weights(model), shown)
            optimizer.train()
        learn(model, optimizer, range(steps, 17), a)
        straight = network()
        undisturbed = Replicas(straight.parameters(), L=4, rho=0.2, noise=1e-2, process_group=group)
        learn(straight, undisturbed, range(17), a)
        assert torch.equal(weights(model), weights(straight))


def weights_of_others_are_not_pulled_back(group: Group) -> None:
    """Written between cycles or inside one, in train mode or eval mode."""
    a = dist.get_rank(group)
    for steps, evaluating, dtype in [(8, False, None), (10, False, None), (8, True, None), (10, True, None),
                                     (8, False, torch.bfloat16)]:  # fmt: skip
        model = network()
        optimizer = Replicas(
            model.parameters(), L=4, rho=1.0, inner_lr=0.0, process_group=group, exchange_dtype=dtype
        )
        learn(model, optimizer, range(steps), a)
        if evaluating:
            optimizer.eval()
        with torch.no_grad():
            for p in model.parameters():
                p.fill_(0.25 + a)
        if dtype is not None:
            with pytest.raises(RuntimeError, match="restart"):
                learn(model, optimizer, range(1), a)
            optimizer.restart()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            learn(model, optimizer, range(3), a)
            optimizer.finish()
        assert torch.equal(weights(model), torch.full_like(weights(model), 0.25 + a)), (steps, evaluating)
        learn(model, optimizer, range(4), a)  # from then on, with rho = lr = 1, each moves onto the mean
        n = dist.get_world_size(group)
        torch.testing.assert_close(
            weights(model), torch.full_like(weights(model), 0.25 + (n - 1) / 2), rtol=1e-2, atol=0
        )


def a_write_to_what_does_not_train_is_seen(group: Group) -> None:
    p, idle = nn.Parameter(torch.zeros(50)), nn.Parameter(torch.zeros(3))  # which never has a gradient
    optimizer = Replicas([p, idle], lr=0.5, L=2, rho=0.1, process_group=group)
    for i in range(9):
        if i == 8:  # between two cycles, on all replicas
            with torch.no_grad():
                idle.fill_(7.0)
        p.grad = torch.ones(50)
        optimizer.step()
    optimizer.eval()
    assert idle.tolist() == [7.0] * 3


def narrow_numbers(group: Group) -> None:
    """bfloat16 on the way: x̄ is the same on all ranks, and far more precise than bfloat16 itself."""
    a = dist.get_rank(group)
    model = network()
    optimizer = Replicas(
        model.parameters(), L=4, alpha=0.25, rho=0.2, noise=1e-2, process_group=group,
        exchange_dtype=torch.bfloat16,
    )  # fmt: skip
    learn(model, optimizer, range(40), a)
    own = gathered(weights(model), group)
    mean = torch.stack(own).mean(0)
    optimizer.eval()
    shown = weights(model)
    assert all(torch.equal(shown, other) for other in gathered(shown, group))
    rounding = (mean.bfloat16().float() - mean).norm()
    assert 0 < (shown - mean).norm() < rounding / 5


def half_weights(group: Group) -> None:
    """Weights of bfloat16 have an x of float32, and so have their mean, at a cycle's end and inside one."""
    a = dist.get_rank(group)

    def learn(model: nn.Module, optimizer: Any, steps: range) -> None:
        for i in steps:
            inputs, targets = batch(10 * i + a)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs.bfloat16()).float(), targets).backward()
            optimizer.step()

    def make() -> tuple[nn.Module, Replicas]:
        model = network().bfloat16()
        return model, Replicas(model.parameters(), L=4, rho=0.2, noise=1e-2, process_group=group)

    straight, undisturbed = make()
    learn(straight, undisturbed, range(18))
    for steps in (8, 10):
        model, optimizer = make()
        learn(model, optimizer, range(steps))
        inside = weights(model)
        x = torch.cat([optimizer.state[p]["entropy_x"].flatten() for p in model.parameters()])
        assert x.dtype is torch.float32
        mean = torch.stack(gathered(x, group)).mean(0)
        optimizer.eval()
        torch.testing.assert_close(weights(model).float(), mean, rtol=2**-8, atol=0)
        assert all(torch.equal(weights(model), other) for other in gathered(weights(model), group))
        saved = through_a_file({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
        optimizer.train()
        assert torch.equal(weights(model), inside)
        model, optimizer = make()
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        optimizer.train()
        learn(model, optimizer, range(steps, 18))
        assert torch.equal(weights(model), weights(straight))


# ---- saving ----


def through_a_file(content: Any) -> Any:
    file = io.BytesIO()
    torch.save(content, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def resumes_to_the_same_bits(group: Group) -> None:
    a = dist.get_rank(group)
    makers: dict[str, Callable[[Any], Any]] = {
        "parle": lambda ps: Replicas(ps, L=4, momentum=0.5, rho=0.2, noise=1e-2, process_group=group),
        "shared": lambda ps: Replicas(ps, L=4, momentum=0.5, rho=math.inf, noise=1e-2, process_group=group),
        "narrow": lambda ps: Replicas(
            ps, L=4, rho=0.2, noise=1e-2, process_group=group, exchange_dtype=torch.bfloat16
        ),
        "adam": lambda ps: ReplicatedLocalEntropy(
            ps, torch.optim.Adam, {"lr": 0.01}, L=4, rho=0.2, noise=1e-2, process_group=group
        ),
    }
    for make in makers.values():
        straight = network()
        undisturbed = make(straight.parameters())
        learn(straight, undisturbed, range(26), a)
        for saved_at, evaluating in ((2, False), (8, False), (10, False), (8, True), (11, True)):
            model = network()
            optimizer = make(model.parameters())
            learn(model, optimizer, range(saved_at), a)
            if evaluating:
                optimizer.eval()
            saved = through_a_file({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
            model = network()
            optimizer = make(model.parameters())
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
            optimizer.train()
            learn(model, optimizer, range(saved_at, 26), a)
            assert torch.equal(weights(model), weights(straight)), saved_at
    wrong = {**saved["optimizer"], "param_groups": [dict(g) for g in saved["optimizer"]["param_groups"]]}
    wrong["param_groups"][0]["replica"] = a + 1
    before = weights(model)
    with pytest.raises(ValueError, match=f"by replica {a + 1}, but this is replica {a} of"):
        optimizer.load_state_dict(wrong)
    assert torch.equal(weights(model), before)


def another_number_starts_from_the_mean(two: Group | None, three: Group, folder: Path) -> None:
    """Saved by two, inside a cycle or at its end or in eval mode; resumed by three, from any of the files."""
    for steps, evaluating, last in ((10, False, False), (8, False, True), (10, True, False)):
        if two is not None:
            a = dist.get_rank(two)
            model = network()
            optimizer = Replicas(model.parameters(), L=4, rho=0.2, noise=1e-2, seed=5, process_group=two)
            learn(model, optimizer, range(steps), a)
            x = [optimizer.state[p]["entropy_x"] if steps % 4 else p.detach() for p in model.parameters()]
            mean = torch.stack(gathered(torch.cat([t.flatten() for t in x]), two)).mean(0)
            if evaluating:
                optimizer.eval()
            saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "mean": mean}
            torch.save(saved, folder / f"replica-{a}.pt")
        dist.barrier(three)
        a = dist.get_rank(three)
        saved = torch.load(folder / f"replica-{a % 2}.pt", weights_only=True)
        model = network()
        optimizer = Replicas(model.parameters(), L=4, rho=0.2, noise=1e-2, seed=5, process_group=three)
        for what in ("optimizer", "model") if last else ("model", "optimizer"):
            if what == "model":
                model.load_state_dict(saved["model"])
            else:
                with pytest.warns(
                    UserWarning, match="with 2 replicas, but now there are 3: all start from the mean"
                ):
                    optimizer.load_state_dict(saved["optimizer"])
        optimizer.eval()  # looks at the weights that are there, as a step would
        torch.testing.assert_close(weights(model), saved["mean"], rtol=1e-5, atol=1e-7)
        assert all(torch.equal(weights(model), other) for other in gathered(weights(model), three))
        assert optimizer.outer_steps == 2
        optimizer.train()
        learn(model, optimizer, range(9), 0)  # with the same data, noise alone makes them differ
        seen = gathered(weights(model), three)
        assert not torch.equal(seen[0], seen[1])
        assert not torch.equal(seen[1], seen[2])
        assert not torch.equal(seen[0], seen[2])


def a_single_run_becomes_replicas(group: Group) -> None:
    a = dist.get_rank(group)
    model = network()
    alone = EntropySGD(model.parameters(), L=4)
    learn(model, alone, range(10), 0)
    saved = through_a_file({"model": model.state_dict(), "optimizer": alone.state_dict()})
    alone.eval()
    model_x = weights(model)
    model = network()
    model.load_state_dict(saved["model"])
    optimizer = Replicas(model.parameters(), L=4, process_group=group)
    with pytest.warns(UserWarning, match="with 1 replicas"):
        optimizer.load_state_dict(saved["optimizer"])
    assert torch.equal(weights(model), model_x)
    learn(model, optimizer, range(9), a)


# ---- divergence ----


def the_diverged_is_named(group: Group) -> None:
    a, n = dist.get_rank(group), dist.get_world_size(group)
    for rho in (0.2, math.inf):
        model = network()
        optimizer = Replicas(model.parameters(), L=2, rho=rho, process_group=group)
        learn(model, optimizer, range(2), a)
        with pytest.raises(Diverged, match=rf"^replica 1 \(rank 1\) of {n} diverged"):  # noqa: PT012  (the step that fails is one of several)
            for i in range(2, 6):
                learn(model, optimizer, range(i, i + 1), a)
                if a == 1 and i == 2:
                    model[0].weight.grad[0, 0] = math.nan
                    optimizer.step()
                elif i == 2:
                    learn(model, optimizer, range(i, i + 1), a)
        with pytest.raises(Diverged) if rho == 0.2 else warnings.catch_warnings():
            optimizer.eval()


class OutOfMemory(torch.optim.SGD):
    """Fails when it is told to, after it has written."""

    fails = False

    def step(self, closure: Any = None) -> Any:
        super().step(closure)
        if self.fails:
            raise MemoryError


def what_a_failed_update_has_written_is_its_own(group: Group) -> None:
    """The mean stays as it arrived; narrow numbers, which would refuse weights of others, go on."""
    for dtype in (None, torch.bfloat16):
        model = network()
        options: dict[str, Any] = {"L": 2, "rho": 0.2, "process_group": group, "exchange_dtype": dtype}
        optimizer = ReplicatedLocalEntropy(model.parameters(), OutOfMemory, {"lr": 0.5}, **options)
        a = dist.get_rank(group)
        learn(model, optimizer, range(5), a)
        OutOfMemory.fails = True
        with pytest.raises(MemoryError):
            learn(model, optimizer, range(5, 6), a)
        OutOfMemory.fails = False
        means = [optimizer.state[p]["entropy_mean"].clone() for p in model.parameters()]
        learn(model, optimizer, range(6, 7), a)
        for p, mean in zip(model.parameters(), means, strict=True):
            assert torch.equal(optimizer.state[p]["entropy_mean"], mean)
        learn(model, optimizer, range(7, 10), a)
        assert optimizer.outer_steps == 4


# ---- replicas of several processes ----


def whole(model: nn.Module) -> Tensor:
    full = (p.full_tensor() if isinstance(p, DTensor) else p for p in model.parameters())
    return torch.cat([p.detach().flatten() for p in full])


def larger_than_a_process(mesh: DeviceMesh, two: Group | None, folder: Path) -> None:
    """Two replicas of two processes each, sharded or data-parallel, against two replicas of one process."""
    replica, part = mesh.get_local_rank("replica"), mesh.get_local_rank("shard")
    options: dict[str, Any] = {"L": 4, "rho": 0.3, "noise": 1e-2, "momentum": 0.5}
    steps, saved_at = 22, 10

    def train(model: nn.Module, optimizer: Any, steps: range, parts: int, part: int, replica: int) -> None:
        for i in steps:
            inputs, targets = (t.chunk(parts)[part] for t in batch(10 * i + replica))
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()

    def sharded() -> nn.Module:
        return fully_shard(network(), mesh=mesh["shard"])

    results: dict[str, Any] = {}
    if two is not None:
        model = network()
        optimizer = Replicas(model.parameters(), process_group=two, **options)
        train(model, optimizer, range(steps), 1, 0, dist.get_rank(two))
        results["inside"], results["figures"] = weights(model), optimizer.diagnostics()
        optimizer.eval()
        results["mean"] = weights(model)
        torch.save(results, folder / f"plain-{dist.get_rank(two)}.pt")
    dist.barrier()
    expected = torch.load(folder / f"plain-{replica}.pt", weights_only=True)

    def check(model: nn.Module, optimizer: Any) -> None:
        torch.testing.assert_close(whole(model), expected["inside"], rtol=1e-3, atol=1e-4)
        assert optimizer.diagnostics() == pytest.approx(expected["figures"], rel=1e-3)
        optimizer.eval()
        torch.testing.assert_close(whole(model), expected["mean"], rtol=1e-3, atol=1e-4)

    parallel = DistributedDataParallel(network(), process_group=mesh["shard"].get_group())
    optimizer = Replicas(parallel.parameters(), process_group=mesh["replica"].get_group(), **options)
    train(parallel, optimizer, range(steps), 2, part, replica)
    check(parallel, optimizer)

    model = sharded()
    optimizer = Replicas(model.parameters(), process_group=mesh["replica"], **options)
    train(model, optimizer, range(saved_at), 2, part, replica)
    weights_, state = get_state_dict(model, optimizer)
    # Each replica has its own checkpoint, which its own processes write.
    ours = mesh["shard"].get_group()
    place = folder / f"sharded-{replica}"
    dcp.save({"model": weights_, "optimizer": state}, checkpoint_id=place, process_group=ours)
    train(model, optimizer, range(saved_at, steps), 2, part, replica)
    straight = whole(model)
    check(model, optimizer)

    model = sharded()
    optimizer = Replicas(model.parameters(), process_group=mesh["replica"], **options)
    weights_, state = get_state_dict(model, optimizer)
    dcp.load({"model": weights_, "optimizer": state}, checkpoint_id=place, process_group=ours)
    set_state_dict(model, optimizer, model_state_dict=weights_, optim_state_dict=state)
    train(model, optimizer, range(saved_at, steps), 2, part, replica)
    assert torch.equal(whole(model), straight)

    with pytest.raises(ValueError, match=r"process_group: its ranks .* share one sharded copy"):
        Replicas(sharded().parameters())

    model = sharded()
    optimizer = Replicas(model.parameters(), L=1, process_group=mesh["replica"])
    train(model, optimizer, range(2), 2, part, replica)
    bad = next(iter(model.parameters())).to_local()
    with pytest.raises(Diverged, match=rf"^replica 1 \(rank {2 + part}\) of 2 diverged"):  # noqa: PT012  (the step that fails is one of several)
        for i in range(2, 5):
            if i == 2 and dist.get_rank() == 3:
                with torch.no_grad():
                    bad.fill_(math.nan)
            train(model, optimizer, range(i, i + 1), 2, part, replica)


# ---- what is sent ----


def bytes_sent() -> int:
    """Over all TCP connections of this process, by the kernel's own count (tcpi_bytes_sent of TCP_INFO)."""
    total = 0
    for name in list(Path("/proc/self/fd").iterdir()):
        if not name.is_socket():
            continue
        with socket.socket(fileno=os.dup(int(name.name))) as connection:
            if connection.family != socket.AF_UNIX and connection.type == socket.SOCK_STREAM:
                info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                total += struct.unpack_from("Q", info, 200)[0]
    return total


def what_is_sent(group: Group) -> dict[str, float]:
    """Bytes a gradient: data-parallel training, and replicas."""
    steps, L = 20, 5

    def count(make: Callable[[nn.Module], tuple[nn.Module, Any]]) -> float:
        torch.manual_seed(0)
        model, optimizer = make(nn.Sequential(nn.Linear(64, 1000), nn.Tanh(), nn.Linear(1000, 64)))
        dist.barrier(group)
        before = bytes_sent()
        for i in range(steps):
            inputs = torch.randn(4, 64, generator=torch.Generator().manual_seed(i))
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
        optimizer.eval() if isinstance(optimizer, Replicas) else None
        dist.barrier(group)
        return (bytes_sent() - before) / steps

    def parallel(model: nn.Module) -> tuple[nn.Module, Any]:
        model = DistributedDataParallel(model, process_group=group)
        model(torch.randn(4, 64)).mean().backward()  # DDP settles its buckets after the first pass
        return model, EntropySGD(model.parameters(), L=L)

    def replicas(**options: Any) -> Callable[[nn.Module], tuple[nn.Module, Any]]:
        return lambda model: (model, Replicas(model.parameters(), L=L, process_group=group, **options))

    return {
        "L": L,
        "weights": 4.0 * (64 * 1000 + 1000 + 1000 * 64 + 64),
        "ddp": count(parallel),
        "replicas": count(replicas()),
        "shared": count(replicas(rho=math.inf)),
        "narrow": count(replicas(rho=math.inf, exchange_dtype=torch.bfloat16)),
    }


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    warnings.simplefilter("error")
    # Early looks at x are meant; torch warns of its own deprecations inside checkpoints.
    warnings.filterwarnings("ignore", message="eval\\(\\) before the first outer update")
    warnings.filterwarnings("ignore", category=FutureWarning)
    rank = dist.get_rank()
    groups = {n: dist.new_group(list(range(n))) for n in (1, 2, 3, 4)}
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "shard"))
    results: dict[str, Any] = {}
    for n in (2, 3, 4):
        if rank < n:
            results[f"{n}"] = trajectories(groups[n], n)
    if rank == 0:
        results["1"] = trajectories(groups[1], 1)
    if rank < 3:
        results["quadratic"] = quadratic(groups[3])
        eval_shows_the_mean(groups[3])
        weights_of_others_are_not_pulled_back(groups[3])
        a_write_to_what_does_not_train_is_seen(groups[3])
        narrow_numbers(groups[3])
        half_weights(groups[3])
        the_diverged_is_named(groups[3])
        another_number_starts_from_the_mean(groups[2] if rank < 2 else None, groups[3], folder)
    if rank < 2:
        resumes_to_the_same_bits(groups[2])
        a_single_run_becomes_replicas(groups[2])
        what_a_failed_update_has_written_is_its_own(groups[2])
        results["bytes"] = what_is_sent(groups[2])
    larger_than_a_process(mesh, groups[2] if rank < 2 else None, folder)
    torch.save(results, folder / f"results-{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
