from __future__ import annotations

import os
import subprocess
import sys

import pytest

from entropy_sgd.lab.data import DataError, Images, Text, data_root, load, names, verify

real = pytest.mark.skipif(
    "ENTROPY_SGD_DATA" not in os.environ, reason="needs the published data in the folder $ENTROPY_SGD_DATA"
)


def test_importing_the_package_imports_nothing_heavy():
    program = (
        "import sys, entropy_sgd.lab; before = set(sys.modules)\n"
        "import entropy_sgd.lab.data\n"
        "print(*sorted({'torch', 'numpy', 'pooch', 'requests'} & (set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("name", ["minst", "idx:", "text:", "idx", "mnist:x", ""])
def test_an_unknown_name_is_told_with_the_known_ones(name):
    with pytest.raises(
        DataError, match="Known: mnist, cifar10, ptb, warpeace, digits, idx:FOLDER, text:FILE"
    ):
        load(name)


def test_the_closest_name_is_offered():
    with pytest.raises(DataError, match="Did you mean mnist"):
        load("minst")
    assert names() == ["mnist", "cifar10", "ptb", "warpeace", "digits"]


@real
def test_published_mnist():
    data = load("mnist")
    assert isinstance(data, Images)
    assert data.validation is not None
    assert [len(split) for split in (data.train, data.validation, data.test())] == [55_000, 5_000, 10_000]
    assert data.train.inputs.shape[1:] == (1, 28, 28)
    assert data.test().targets.bincount().tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


@real
def test_published_penn_treebank():
    text = load("ptb")
    assert isinstance(text, Text)
    assert [len(part) for part in (text.train, text.validation, text.test())] == [929_589, 73_760, 82_430]
    assert len(text.vocabulary) == 10_000


@real
def test_published_war_and_peace():
    text = load("warpeace")
    assert isinstance(text, Text)
    assert sum(len(part) for part in (text.train, text.validation, text.test())) == 3_258_246
    assert len(text.vocabulary) == 87


@real
def test_published_cifar10():
    from entropy_sgd.lab.data import cifar10  # the images as they are: whitening them takes half a minute

    assert all(file.state == "ok" for file in verify("cifar10"))
    folder = data_root() / "cifar-10-batches-bin"
    images, labels = cifar10.read([folder / f"data_batch_{number}.bin" for number in range(1, 6)])
    assert images.shape == (50_000, 3_072)
    assert labels.bincount().tolist() == [5_000] * 10
