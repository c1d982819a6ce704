from __future__ import annotations

import gzip
import struct

import numpy as np
import pytest
import torch

from entropy_sgd.lab.data import DataError, Images, idx, load


def encode(array: np.ndarray) -> bytes:
    """The idx format, as its publisher describes it."""
    return (
        struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()
    )


def samples(count: int, seed: int, *, shape: tuple[int, ...] = (4, 5)) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return generator.integers(0, 256, (count, *shape)), generator.integers(0, 3, count)


def expected(images: np.ndarray, train: np.ndarray) -> torch.Tensor:
    scaled, reference = images / 255, train / 255
    return torch.tensor((scaled - reference.mean()) / reference.std()).float()[:, None]


@pytest.fixture
def published(publish, monkeypatch):
    monkeypatch.setattr(idx, "MNIST_VALIDATION", 6)
    train, test = samples(20, 0), samples(7, 1)
    train[1][-1] = 3  # a class that only the validation part has
    contents = [*train, *test]
    names = ["train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"]
    paths = publish(
        "mnist",
        {
            f"mnist/{name}-ubyte.gz": gzip.compress(encode(array))
            for name, array in zip(names, contents, strict=True)
        },
    )
    return train, test, paths


def test_mnist_keeps_the_last_images_for_validation(published, tmp_path):
    (x, y), (test_x, test_y), _ = published
    data = load("mnist", tmp_path)
    assert isinstance(data, Images)
    assert data.validation is not None
    torch.testing.assert_close(data.train.inputs, expected(x[:14], x[:14]), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(data.validation.inputs, expected(x[14:], x[:14]), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(data.test().inputs, expected(test_x, x[:14]), rtol=1e-4, atol=1e-5)
    assert data.train.targets.tolist() == y[:14].tolist()
    assert data.validation.targets.tolist() == y[14:].tolist()
    assert data.test().targets.tolist() == test_y.tolist()
    assert data.classes == 4
    assert data.train.inputs.dtype == torch.float32
    assert data.train.targets.dtype == torch.int64


def test_final_trains_on_all_of_it(published, tmp_path):
    (x, y), (test_x, _), _ = published
    data = load("mnist", tmp_path, final=True)
    assert isinstance(data, Images)
    assert data.validation is None
    torch.testing.assert_close(data.train.inputs, expected(x, x), rtol=1e-4, atol=1e-5)
    assert data.train.targets.tolist() == y.tolist()
    torch.testing.assert_close(data.test().inputs, expected(test_x, x), rtol=1e-4, atol=1e-5)


def test_the_test_set_is_read_only_when_asked_for(published, tmp_path, monkeypatch):
    _, _, paths = published
    opened = []
    read = idx.read
    monkeypatch.setattr(idx, "read", lambda path: opened.append(path) or read(path))
    data = load("mnist", tmp_path)
    assert opened == paths[:2]
    data.test()
    assert opened == paths


def test_a_folder_of_the_users_own(tmp_path):
    x, y = samples(25, 3, shape=(3, 4, 5))
    (tmp_path / "train-images-idx4-ubyte").write_bytes(encode(x))
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(encode(y)))
    data = load(f"idx:{tmp_path}")
    assert isinstance(data, Images)
    assert data.validation is not None
    assert data.validation.targets.tolist() == [y[9], y[19]]
    assert data.train.targets.tolist() == [label for place, label in enumerate(y) if place not in (9, 19)]
    assert data.train.inputs.shape == (23, 3, 4, 5)
    torch.testing.assert_close(data.train.inputs.mean(), torch.tensor(0.0), atol=1e-5, rtol=0)
    with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte\[.gz\]"):
        data.test()
    with pytest.raises(DataError, match="t10k-images"):
        load(f"idx:{tmp_path}", final=True)
    (tmp_path / "t10k-images-idx4-ubyte").write_bytes(encode(x[:2]))
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(encode(np.array([0, 3])))
    for reading in (data.test, lambda: load(f"idx:{tmp_path}", final=True)):  # before the training, too
        with pytest.raises(DataError, match="test set has class 3, the training set only 0 to 2"):
            reading()
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(encode(np.array([0, 2])))
    assert len(load(f"idx:{tmp_path}", final=True).train) == 25
    (tmp_path / "t10k-images-idx4-ubyte").write_bytes(encode(x[:2, :, :3]))
    with pytest.raises(DataError, match="test images of 3 x 3 x 5, but training images of 3 x 4 x 5"):
        load(f"idx:{tmp_path}", final=True)


good = encode(np.zeros((10, 4, 4)))


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (b"", encode(np.zeros(10)), "not an idx file"),
        (b"PNG.....", encode(np.zeros(10)), r"begins with \[50 4e 47 2e\]"),
        (good[:9], encode(np.zeros(10)), "ends inside its header"),
        (good[:-1], encode(np.zeros(10)), r"announces 160 elements \(10, 4, 4\), but holds 159"),
        (good + b"\0", encode(np.zeros(10)), "but holds 161"),
        (gzip.compress(good, mtime=0)[:-9], encode(np.zeros(10)), "cannot be read"),
        (good, encode(np.zeros(9)), r"one label for each of 10 images, got a shape of \(9,\)"),
        (encode(np.zeros((10, 16))), encode(np.zeros(10)), r"got a shape of \(10, 16\)"),
        (encode(np.zeros((9, 4, 4))), encode(np.zeros(9)), "at least 10 training images"),
        (encode(np.zeros((0, 4, 4))), encode(np.zeros(0)), r"got a shape of \(0, 1, 4, 4\)"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(tmp_path, images, labels, message):
    (tmp_path / "train-images-idx3-ubyte").write_bytes(images)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(labels)
    with pytest.raises(DataError, match=message):
        load(f"idx:{tmp_path}")


def test_images_of_one_colour_stay_finite(tmp_path):
    (tmp_path / "train-images-idx3-ubyte").write_bytes(good)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(encode(np.zeros(10)))
    assert load(f"idx:{tmp_path}").train.inputs.tolist() == torch.zeros(9, 1, 4, 4).tolist()
