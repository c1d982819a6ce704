"""x for x' and back: every bit arrives, no memory moves, and little is held meanwhile."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from entropy_sgd import EntropySGD
from entropy_sgd.optim import exchange


def bits(tensors: list[Tensor]) -> list[list[int]]:
    """In the order of indices, whatever the layout; tells -0 from 0 and one NaN from another."""
    return [t.detach().reshape(-1).contiguous().view(torch.uint8).tolist() for t in tensors]


def assorted(seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    special = torch.tensor([0.0, -0.0, float("inf"), float("nan"), 1e-45, 3.0]).roll(seed)
    return [
        draw(),
        draw(0, 3),
        special,
        draw(3),
        draw(40, 7),
        draw(7, 40).t(),
        draw(1, 300),  # a row larger than a block
        draw(30, 3, 4, 4).to(memory_format=torch.channels_last),
        draw(50, 10)[::2, 1:8],
        draw(130).double(),
        draw(130).bfloat16(),
        torch.view_as_complex(draw(60, 2)),
        draw(20, 9).to(torch.int64),
    ]


@pytest.mark.parametrize("block", [1, 64, 1 << 17])
def test_every_bit_changes_places_and_no_memory_moves(monkeypatch, block):
    monkeypatch.setattr(exchange, "BLOCK", block)
    a, b = assorted(1), assorted(2)
    b[4] = b[4].t().contiguous().t()  # of another layout than its partner
    before = bits(a), bits(b)
    pointers = [t.data_ptr() for t in a + b]
    exchange.exchange(a, b)
    assert (bits(b), bits(a)) == before
    exchange.exchange(a, b)
    assert (bits(a), bits(b)) == before
    assert [t.data_ptr() for t in a + b] == pointers


def test_small_tensors_go_together_and_large_ones_in_blocks(monkeypatch):
    monkeypatch.setattr(exchange, "BLOCK", 100)
    held: list[list[int]] = []
    copy = torch._foreach_copy_

    def counted(target: list[Tensor], source: list[Tensor]) -> None:
        held.append([t.numel() for t in target])
        copy(target, source)

    monkeypatch.setattr(torch, "_foreach_copy_", counted)
    sizes = [(5,), (20,), (70,), (10,), (50, 5), (30,)]
    exchange.exchange([torch.zeros(s) for s in sizes], [torch.ones(s) for s in sizes])
    assert held[::3] == held[1::3] == held[2::3]
    assert held[::3] == [[5, 20, 70], [100], [100], [50], [10, 30]]


PATHS = [{}, {"foreach": True}, {"foreach": False}, {"fused": False}, {"monitor": False}, {"inner": "adam"}]


def inside_a_cycle(params: list[nn.Parameter], **options) -> tuple[EntropySGD, list[Tensor]]:
    """After a cycle and two steps of the next, in which the last parameter has no gradient; and x."""
    optimizer = EntropySGD(params, L=3, noise=1e-2, **options)
    generator = torch.Generator().manual_seed(3)
    x: list[Tensor] = []
    for step in range(5):
        for p in params:
            p.grad = torch.randn(p.shape, generator=generator).to(p.dtype)
        if step >= 3:
            params[-1].grad = None
        optimizer.step()
        if step == 2:
            x = [p.detach().clone() for p in params]
    return optimizer, x


@pytest.mark.parametrize("options", PATHS)
@pytest.mark.parametrize("block", [64, 1 << 17])
def test_eval_and_train_on_every_path(monkeypatch, options, block):
    monkeypatch.setattr(exchange, "BLOCK", block)
    params = [nn.Parameter(t) for t in assorted(1) if t.is_floating_point() and not t.isnan().any()]
    pointers = [p.data_ptr() for p in params]
    optimizer, outer = inside_a_cycle(params, **options)
    x, x_prime = bits(outer), bits(params)
    assert x[0] != x_prime[0]
    assert x[-1] == x_prime[-1]
    for _ in range(2):
        optimizer.eval()
        assert bits(params) == x
    state = optimizer.state_dict()["state"]
    assert bits([state[i]["entropy_x"] for i in range(len(params) - 1)]) == x_prime[:-1]
    for _ in range(2):
        optimizer.train()
        assert bits(params) == x_prime
    assert [p.data_ptr() for p in params] == pointers


def test_training_goes_on_as_if_nothing_had_been_exchanged():
    results = []
    for swaps in (0, 3):
        params = [nn.Parameter(torch.ones(shape)) for shape in [(140_000,), (300, 500), (9,)]]
        optimizer, _ = inside_a_cycle(params)
        for _ in range(4):
            for _ in range(swaps):
                optimizer.eval()
                optimizer.train()
            optimizer.step()
        results.append(params)
    assert all(map(torch.equal, *results))


def test_before_the_first_step_and_at_the_end_of_a_cycle_nothing_is_touched():
    p = nn.Parameter(torch.ones(3))
    optimizer = EntropySGD([p], L=1)
    for _ in range(2):
        version = p._version
        optimizer.eval()
        optimizer.train()
        assert p._version == version
        p.grad = torch.ones(3)
        optimizer.step()


@pytest.mark.parametrize("block", [2, 1 << 17])
def test_autograd_sees_the_exchange(monkeypatch, block):
    """A backward pass through weights that were exchanged meanwhile is refused."""
    monkeypatch.setattr(exchange, "BLOCK", block)
    p = nn.Parameter(torch.ones(6))
    optimizer = EntropySGD([p], L=3)
    p.grad = torch.ones(6)
    optimizer.step()
    loss = p.square().sum()
    with torch.inference_mode():
        optimizer.eval()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    assert p.is_leaf
    assert p.requires_grad
