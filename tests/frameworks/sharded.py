"""One of two processes with sharded parameters: `sharded.py FOLDER`, under torchrun. See test_fsdp2.py."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint import DefaultLoadPlanner
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from entropy_sgd import SGLD, EntropyAdam, EntropySGD, LocalEntropy, scoping
from entropy_sgd.optim import sharding
from network import batch

KINDS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda ps: EntropySGD(ps, L=5, noise=1e-2, weight_decay=1e-3, gamma=scoping.MatchGradient()),
    "adam": lambda ps: EntropyAdam(ps, L=5, noise=1e-2, inner="adam", inner_lr=0.01, scale_by_gamma=True),
    "half": lambda ps: EntropySGD(ps, L=5, momentum=0.9, noise=1e-2, state_dtype=torch.bfloat16),
    "sgld": lambda ps: SGLD(ps, lr=0.05, noise=1e-2),
    "keep": lambda ps: EntropySGD(ps, L=5, noise=1e-2, inner_state="keep", momentum=0.5),
    "sgnht": lambda ps: EntropySGD(ps, L=5, noise=1e-2, inner="sgnht", inner_lr=0.02),
    "hosted": lambda ps: LocalEntropy(
        ps, outer_options={"lr": 1.0}, L=5, noise=1e-2, inner=torch.optim.AdamW, inner_lr=0.02
    ),
}
ENTROPIC = [name for name in KINDS if name != "sgld"]
SAVED, STEPS = 13, 22  # the save is in the middle of a cycle


def network() -> nn.Sequential:
    """Rows that two ranks cannot share evenly: 7 and 3, and a last layer of one row, empty on a rank."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 3), nn.Tanh(), nn.Linear(3, 1))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range, rank: int = 0, ranks: int = 1):
    for i in steps:
        inputs, targets = (part.chunk(ranks)[rank] for part in batch(i))
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs)[:, 0], targets.float()).backward()
        optimizer.step()


def whole(model: nn.Module) -> Tensor:
    """All weights, in one vector, on each rank."""
    full = (p.full_tensor() if isinstance(p, DTensor) else p for p in model.parameters())
    return torch.cat([p.detach().flatten() for p in full])


def save(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    weights, state = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": state}, checkpoint_id=folder)


def load(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path, *, partial: bool = False) -> None:
    weights, state = get_state_dict(model, optimizer)
    planner = DefaultLoadPlanner(allow_partial_load=partial)
    dcp.load({"model": weights, "optimizer": state}, checkpoint_id=folder, planner=planner)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)


def sharded(mesh: DeviceMesh) -> nn.Module:
    model = network()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def offsets_are_torchs_own(mesh: DeviceMesh) -> None:
    for shape in [(7, 5), (1, 3), (2,), (64, 3, 2), (9, 9)]:
        for placement in (Shard(0), Replicate()):
            whole = torch.arange(float(torch.Size(shape).numel())).view(shape)
            part = distribute_tensor(whole, mesh, [placement])
            local_shape, at = compute_local_shape_and_global_offset(torch.Size(shape), mesh, [placement])
            assert sharding.local(part).shape == local_shape
            assert sharding.local(part).data_ptr() == part.to_local().data_ptr()
            if part.to_local().numel():
                assert (
                    sharding.offset(part)
                    == at[0] * whole[0].numel()
                    == int(sharding.local(part).flatten()[0])
                )
    complex_part = distribute_tensor(torch.zeros(6, 4, dtype=torch.complex64), mesh, [Shard(0)])
    assert sharding.offset(complex_part) == dist.get_rank() * 3 * 4 * 2


def noise_is_the_slice_of_the_unsharded_noise(mesh: DeviceMesh) -> None:
    """With gradients of zero the noise alone moves the weights: bit for bit, also complex ones.

    `fused=False`, because the compiled step of plain tensors rounds its sums in another order.
    """
    shapes = [(7, 5), (1, 300), (130,)]
    for dtype in (torch.float32, torch.float64, torch.complex64):
        plain = [nn.Parameter(torch.ones(shape, dtype=dtype)) for shape in shapes]
        parts = [nn.Parameter(distribute_tensor(p.detach(), mesh, [Shard(0)])) for p in plain]
        for kind in (lambda ps: EntropySGD(ps, noise=1.0, L=4, fused=False), lambda ps: SGLD(ps, lr=0.1)):
            for params in (plain, parts):
                optimizer = kind(params)
                for _ in range(5):
                    for p in params:
                        p.grad = torch.zeros_like(p)
                    optimizer.step()
            for p, part in zip(plain, parts, strict=True):
                assert not torch.equal(p.detach(), torch.ones_like(p))
                assert torch.equal(part.detach().full_tensor(), p.detach())


def asking_for_the_state_changes_nothing(mesh: DeviceMesh) -> None:
    for make in KINDS.values():
        untouched, asked = sharded(mesh), sharded(mesh)
        plain, optimizer = make(untouched.parameters()), make(asked.parameters())
        before = str(optimizer.param_groups)
        for _ in range(2):
            get_state_dict(asked, optimizer)
        assert str(optimizer.param_groups) == before
        assert torch.equal(whole(asked), whole(untouched))
        for model, its in ((untouched, plain), (asked, optimizer)):
            train(model, its, range(12), dist.get_rank(), 2)
        assert torch.equal(whole(asked), whole(untouched))


def mixed_and_misplaced_parameters(mesh: DeviceMesh) -> None:
    def make(**options: Any) -> tuple[list[nn.Parameter], EntropySGD]:
        params = [nn.Parameter(torch.ones(5, 2)), nn.Parameter(torch.ones(3))]
        params[0] = nn.Parameter(distribute_tensor(params[0].detach(), mesh, [Shard(0)]))
        return params, EntropySGD(params, L=2, noise=0.1, gamma=scoping.MatchGradient(), **options)

    params, optimizer = make()
    reference = [nn.Parameter(torch.ones(5, 2)), nn.Parameter(torch.ones(3))]
    alone = EntropySGD(reference, L=2, noise=0.1, gamma=scoping.MatchGradient())
    for _ in range(6):
        for p in (*params, *reference):
            p.grad = torch.full_like(p, 0.5)
        optimizer.step()
        alone.step()
    assert optimizer.diagnostics() == pytest.approx(alone.diagnostics())
    torch.testing.assert_close(params[0].detach().full_tensor(), reference[0].detach())
    torch.testing.assert_close(params[1], reference[1])
    with pytest.raises(ValueError, match="its own group"):
        make(foreach=True)

    summands = nn.Parameter(DTensor.from_local(torch.ones(4), mesh, [Partial()]))
    misplaced = nn.Parameter(distribute_tensor(torch.ones(4, 4), mesh, [Shard(1)]))
    for kind in KINDS.values():
        with pytest.raises(ValueError, match=r"Partial.*Shard\(0\).*accepted"):
            kind([summands])
        with pytest.raises(ValueError, match=r"Shard\(dim=1\).*Shard\(0\).*accepted"):
            kind([misplaced])
    with pytest.raises(ValueError, match="accepted"):
        optimizer.add_param_group({"params": [misplaced]})
    assert len(optimizer.param_groups) == 1


def finished(model: nn.Module, optimizer: LocalEntropy, rank: int = 0, ranks: int = 1) -> Tensor:
    """x after a whole cycle and three steps of a second."""
    train(model, optimizer, range(8), rank, ranks)
    optimizer.finish()
    assert (optimizer.outer_steps, optimizer.inner_steps) == (2, 0)
    return whole(model)


def reloaded(model: nn.Module, optimizer: LocalEntropy, rank: int = 0, ranks: int = 1) -> list[Tensor]:
    """The weights after others are loaded in the middle of a cycle, as they were at first; x, and x later."""
    first = {name: value.clone() for name, value in model.state_dict().items()}
    train(model, optimizer, range(8), rank, ranks)
    model.load_state_dict(first)
    with pytest.warns(UserWarning, match="changed from outside in the middle of a cycle"):
        optimizer.eval()
    seen = [whole(model)]
    optimizer.train()
    seen.append(whole(model))
    train(model, optimizer, range(8, 15), rank, ranks)
    assert (optimizer.outer_steps, optimizer.inner_steps) == (2, 2)
    optimizer.eval()
    return [*seen, whole(model)]


def wrappers_that_cannot_serve_are_named() -> None:
    for original in (True, False):
        model = FullyShardedDataParallel(network(), device_id=torch.device("cpu"), use_orig_params=original)
        for make in KINDS.values():
            with pytest.raises(ValueError, match=r"FullyShardedDataParallel.*fully_shard"):
                make(model.parameters())
    from torch.distributed.optim import ZeroRedundancyOptimizer  # warns of torch's own use of torch.jit

    for kind in (EntropySGD, EntropyAdam, LocalEntropy):
        with pytest.raises(ValueError, match=r"ZeroRedundancyOptimizer.*fully_shard"):
            ZeroRedundancyOptimizer(network().parameters(), optimizer_class=kind, L=7)


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (2,))
    offsets_are_torchs_own(mesh)
    noise_is_the_slice_of_the_unsharded_noise(mesh)
    asking_for_the_state_changes_nothing(mesh)
    mixed_and_misplaced_parameters(mesh)
    wrappers_that_cannot_serve_are_named()

    results: dict[str, Any] = {}
    for name in ENTROPIC:
        for act in (finished, reloaded):
            model = sharded(mesh)
            results[f"{name}-{act.__name__}"] = act(model, KINDS[name](model.parameters()), rank, 2)
    for name, make in KINDS.items():
        model = sharded(mesh)
        optimizer = make(model.parameters())
        train(model, optimizer, range(SAVED), rank, 2)
        for p, state in optimizer.state.items():
            tensors = [v for v in state.values() if isinstance(v, Tensor) and v.dim() > 0]
            assert all(isinstance(v, DTensor) and v.placements == p.placements for v in tensors)
        save(model, optimizer, folder / f"{name}-by-two")
        train(model, optimizer, range(SAVED, STEPS), rank, 2)
        results[f"{name}-two"] = whole(model)
        results[f"{name}-diagnostics"] = getattr(optimizer, "diagnostics", dict)()

        loaded = sharded(mesh)
        optimizer = make(loaded.parameters())
        load(loaded, optimizer, folder / f"{name}-by-one")
        train(loaded, optimizer, range(SAVED, STEPS), rank, 2)
        results[f"{name}-one-then-two"] = whole(loaded)

    # Saved before there was an outer update: nothing of the outer optimizer is in the file.
    early = sharded(mesh)
    optimizer = KINDS["adam"](early.parameters())
    load(early, optimizer, folder / "early", partial=True)
    train(early, optimizer, range(3, STEPS), rank, 2)
    results["early"] = whole(early)

    # Sharded and replicated at once: each square is counted once.
    hybrid = sharded(init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicate", "shard")))
    optimizer = KINDS["sgd"](hybrid.parameters())
    train(hybrid, optimizer, range(STEPS), rank, 2)
    results["hybrid"] = whole(hybrid)
    results["hybrid-diagnostics"] = optimizer.diagnostics()

    if rank == 0:
        torch.save(results, folder / "results.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
