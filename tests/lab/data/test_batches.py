from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from entropy_sgd.lab.data import DataError, Split
from entropy_sgd.lab.data.batches import (
    SequenceBatches,
    ShuffledBatches,
    evaluation_batches,
    evaluation_windows,
)


def numbered(count: int) -> Split:
    """Samples whose input and target are their own number."""
    number = torch.arange(count)
    return Split(number.float().view(-1, 1, 1, 1), number)


def take(batches, count: int) -> list[list[int]]:
    return [targets.flatten().tolist() for _, targets, *_ in itertools.islice(batches, count)]


def test_an_epoch_has_whole_batches_of_different_samples():
    batches = ShuffledBatches(numbered(23), batch_size=5, seed=0)
    assert len(batches) == 4
    left_out = set()
    for _ in range(30):
        drawn = []
        for inputs, targets in itertools.islice(batches, len(batches)):
            assert inputs.shape == (5, 1, 1, 1)
            assert torch.equal(inputs.flatten().long(), targets)
            drawn += targets.tolist()
        assert len(set(drawn)) == 20
        left_out |= set(range(23)) - set(drawn)
    assert left_out == set(range(23))


def test_the_order_is_a_function_of_seed_and_epoch_alone():
    torch.manual_seed(1)
    state = torch.get_rng_state()
    orders = {seed: take(ShuffledBatches(numbered(64), 64, seed), 3) for seed in (0, 1, 2, 2**32, -1)}
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert take(ShuffledBatches(numbered(64), 64, 0), 3) == orders[0]
    every = [tuple(order) for epochs in orders.values() for order in epochs]
    assert len(set(every)) == len(every)


def test_orders_are_uniform():
    batches = ShuffledBatches(numbered(4), 1, seed=0)
    epochs = 2400
    orders = [tuple(itertools.chain(*take(batches, 4))) for _ in range(epochs)]
    counts = [orders.count(order) for order in itertools.permutations(range(4))]
    chi_squared = sum((count - epochs / 24) ** 2 / (epochs / 24) for count in counts)
    assert chi_squared < 49.7  # 0.999 quantile for 23 degrees of freedom


@pytest.mark.parametrize(
    "build",
    [
        lambda: ShuffledBatches(numbered(23), 5, seed=3),
        lambda: SequenceBatches(torch.arange(47), batch_size=3, unroll=4),
    ],
    ids=["shuffled", "sequence"],
)
def test_a_walk_is_resumed_at_any_batch(build):
    whole = [
        [t.tolist() if isinstance(t, torch.Tensor) else t for t in batch]
        for batch in itertools.islice(build(), 12)
    ]
    for done in range(12):
        first = build()
        take(first, done)
        state = first.state_dict()
        assert all(type(value) is int for value in state.values())
        second = build()
        take(second, 7)
        second.load_state_dict(state)
        rest = itertools.islice(second, 12 - done)
        assert [[t.tolist() if isinstance(t, torch.Tensor) else t for t in batch] for batch in rest] == whole[
            done:
        ]


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"epoch": 0},
        {"epoch": -1, "position": 0},
        {"epoch": 0, "position": 5},
        {"epoch": 0, "position": -1},
    ],
)
def test_a_state_that_cannot_be_is_refused(state):
    batches = ShuffledBatches(numbered(23), 5, seed=3)
    take(batches, 2)
    with pytest.raises(ValueError, match="state must have"):
        batches.load_state_dict(state)
    assert batches.state_dict() == {"epoch": 0, "position": 2}


@given(st.integers(2, 200), st.integers(1, 6), st.integers(1, 9))
@settings(max_examples=200, deadline=None)
def test_rows_continue_each_other_and_targets_come_next(count, batch_size, unroll):
    tokens = torch.arange(count)
    if batch_size * unroll + 1 > count:
        with pytest.raises(DataError, match=f"at least {batch_size * unroll + 1} tokens, got {count}"):
            SequenceBatches(tokens, batch_size, unroll)
        return
    batches = SequenceBatches(tokens, batch_size, unroll)
    for _ in range(2):  # two passes
        rows: list[list[int]] = [[] for _ in range(batch_size)]
        for window, (inputs, targets, first) in enumerate(itertools.islice(batches, len(batches))):
            assert first == (window == 0)
            assert inputs.shape == (batch_size, unroll)
            assert torch.equal(targets, inputs + 1)
            for row, part in zip(rows, inputs.tolist(), strict=True):
                row += part
        stride = (count - 1) // batch_size
        assert rows == [
            list(range(b * stride, b * stride + len(batches) * unroll)) for b in range(batch_size)
        ]
        assert stride - len(batches) * unroll < unroll  # no whole window is left out


@given(st.integers(1, 60), st.integers(1, 70))
def test_evaluation_meets_every_sample_once(count, batch_size):
    split = numbered(count)
    seen = [
        (inputs.flatten().tolist(), targets.tolist())
        for inputs, targets in evaluation_batches(split, batch_size)
    ]
    assert list(itertools.chain(*(targets for _, targets in seen))) == list(range(count))
    assert all(inputs == targets for inputs, targets in seen)
    assert all(len(targets) == batch_size for _, targets in seen[:-1])


@given(st.integers(1, 120), st.integers(1, 9), st.integers(1, 6))
@settings(max_examples=200, deadline=None)
def test_evaluation_predicts_every_token_but_the_first_once(count, unroll, batch_size):
    predicted, last = [], None
    for inputs, targets, first in evaluation_windows(torch.arange(count), unroll, batch_size):
        assert torch.equal(targets, inputs + 1)
        assert inputs.shape[1] <= unroll
        assert first or torch.equal(inputs[:, 0], last)  # goes on where the state comes from
        last = targets[:, -1]
        predicted += targets.flatten().tolist()
    assert sorted(predicted) == list(range(1, count))


def test_one_stream_is_never_interrupted():
    firsts = [first for *_, first in evaluation_windows(torch.arange(100), unroll=7)]
    assert firsts == [True] + [False] * 14


def test_nonsense_arguments_are_named():
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        ShuffledBatches(numbered(5), 0, seed=0)
    with pytest.raises(ValueError, match="unroll must be at least 1, got -2"):
        SequenceBatches(torch.arange(50), 1, -2)
    with pytest.raises(DataError, match="batch_size must be at most the 5 training samples, got 6"):
        ShuffledBatches(numbered(5), 6, seed=0)
