from __future__ import annotations

import numpy as np
import pytest
import torch

from entropy_sgd.lab.data import DataError, Images, cifar10, load
from entropy_sgd.lab.data.whitening import Whitening

GENERATOR = np.random.default_rng(0)
TRAIN = GENERATOR.integers(0, 256, (5, 4, 3, 32, 32), dtype=np.uint8)  # 5 files of 4 images
TEST = GENERATOR.integers(0, 256, (3, 3, 32, 32), dtype=np.uint8)
LABELS = np.arange(20, dtype=np.uint8).reshape(5, 4) % 10


def encode(images: np.ndarray, labels: np.ndarray) -> bytes:
    return b"".join(bytes([label]) + image.tobytes() for image, label in zip(images, labels, strict=True))


def contrast(images: np.ndarray) -> np.ndarray:
    rows = images.reshape(-1, 3072).astype(np.float64)
    rows -= rows.mean(axis=1, keepdims=True)
    return 55 * rows / np.linalg.norm(rows, axis=1, keepdims=True)


def whitened(images: np.ndarray, train: np.ndarray) -> torch.Tensor:
    """(C + 0.1 I)^(-1/2) (x - m), by way of the few directions in which the few training images differ."""
    mean = contrast(train).mean(axis=0)
    _, singular, basis = np.linalg.svd(contrast(train) - mean, full_matrices=False)
    scale = (singular**2 / len(train) + 0.1) ** -0.5
    centred = contrast(images) - mean
    inside = centred @ basis.T  # the rest of each image has variance 0, and is scaled by 0.1^(-1/2)
    result = (inside * scale) @ basis + (centred - inside @ basis) * 0.1**-0.5
    return torch.tensor(result).float().view(-1, 3, 32, 32)


@pytest.fixture
def published(publish, monkeypatch):
    monkeypatch.setattr(cifar10, "VALIDATION", 6)
    contents = {
        f"cifar-10-batches-bin/data_batch_{number + 1}.bin": encode(TRAIN[number], LABELS[number])
        for number in range(5)
    }
    contents["cifar-10-batches-bin/test_batch.bin"] = encode(TEST, np.array([7, 8, 9]))
    return publish("cifar10", contents)


def test_images_are_whitened_by_the_training_part_then_come_from_the_cache(published, tmp_path, monkeypatch):
    flat = TRAIN.reshape(20, 3, 32, 32)
    for _ in range(2):
        data = load("cifar10", tmp_path)
        assert isinstance(data, Images)
        assert data.validation is not None
        test = data.test()
        torch.testing.assert_close(data.train.inputs, whitened(flat[:14], flat[:14]), atol=1e-3, rtol=1e-3)
        torch.testing.assert_close(
            data.validation.inputs, whitened(flat[14:], flat[:14]), atol=1e-3, rtol=1e-3
        )
        torch.testing.assert_close(test.inputs, whitened(TEST, flat[:14]), atol=1e-3, rtol=1e-3)
        assert data.train.targets.tolist() == LABELS.flatten()[:14].tolist()
        assert data.validation.targets.tolist() == LABELS.flatten()[14:].tolist()
        assert test.targets.tolist() == [7, 8, 9]
        assert data.classes == 10
        monkeypatch.delattr(Whitening, "fit", raising=False)  # the second time, the cache must do without


def test_each_way_of_whitening_is_fitted_once_and_cached_apart(published, tmp_path, monkeypatch):
    fitted_on: list[int] = []

    def fit(images: torch.Tensor) -> Whitening:
        fitted_on.append(len(images))
        return Whitening(torch.zeros(3072), torch.eye(3072))

    monkeypatch.setattr(Whitening, "fit", fit)
    for final in (False, True, False, True):
        data = load("cifar10", tmp_path, final=final)
        assert isinstance(data, Images)
        assert (data.validation is None) == final
        assert len(data.train) == (20 if final else 14)
    assert fitted_on == [14, 20]
    monkeypatch.setattr("entropy_sgd.lab.data.whitening.BIAS", 0.2)
    load("cifar10", tmp_path)
    assert fitted_on == [14, 20, 14]


def test_a_cut_record_is_told(publish, tmp_path):
    publish(
        "cifar10", {"cifar-10-batches-bin/data_batch_1.bin": b"x" * 3074, "cifar-10-batches-bin/t.bin": b"x"}
    )
    with pytest.raises(DataError, match=r"data_batch_1\.bin: 3074 bytes are not whole records of 3073"):
        load("cifar10", tmp_path)
