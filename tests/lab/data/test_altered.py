from __future__ import annotations

from collections import Counter

import pytest
import torch

from entropy_sgd.lab.data.altered import part, wrong_labels

TARGETS = torch.tensor([0] * 40 + [1] * 25 + [2] * 3)


def test_a_part_has_the_same_share_of_each_class():
    index = part(TARGETS, 0.2, seed=0)
    assert Counter(TARGETS[index].tolist()) == {0: 8, 1: 5, 2: 1}
    assert index.tolist() == sorted(set(index.tolist()))
    assert torch.equal(index, part(TARGETS, 0.2, seed=0))
    assert not torch.equal(index, part(TARGETS, 0.2, seed=1))


def test_a_larger_part_holds_the_smaller_one():
    smaller, larger = (set(part(TARGETS, fraction, 3).tolist()) for fraction in (0.1, 0.5))
    assert smaller < larger


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5])
def test_as_many_labels_as_said_are_wrong_and_the_wrong_ones_are_uniform(share):
    targets = torch.arange(50_000) % 10
    labels = wrong_labels(targets, 10, share, seed=0)
    assert (labels != targets).sum().item() == 50_000 * share
    shift = Counter(((labels - targets) % 10)[labels != targets].tolist())
    for count in shift.values():  # each of nine other classes alike, within 5 standard deviations
        assert abs(count - 50_000 * share / 9) < 5 * (50_000 * share / 9) ** 0.5
    assert torch.equal(labels, wrong_labels(targets, 10, share, seed=0))
