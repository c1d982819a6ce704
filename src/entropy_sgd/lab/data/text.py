"""Text as a stream of tokens: words of the Penn Treebank, bytes of War and Peace or of any other file."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from entropy_sgd.lab.data import files
from entropy_sgd.lab.data.files import DataError
from entropy_sgd.lab.data.types import Text

if TYPE_CHECKING:
    from torch import Tensor


def ptb(data_dir: Path | None, *, final: bool = False) -> Text:
    """The Penn Treebank as Mikolov prepared it, by words, an `<eos>` after each line (Section 5.4.1).

    The vocabulary is that of the training text, the most frequent word first. The publisher gives a
    validation text, so there is nothing to cut and `final` changes nothing.
    """
    train, validation, test = files.require("ptb", data_dir)
    words = _words(train)
    counts = Counter(words)
    vocabulary = sorted(counts, key=lambda word: (-counts[word], word))
    index = {word: number for number, word in enumerate(vocabulary)}

    def tokens(path: Path) -> Tensor:
        try:
            return torch.tensor([index[word] for word in _words(path)])
        except KeyError as error:
            raise DataError(f"{path} has the word {error}, which {train} does not have.") from None

    return Text("ptb", tokens(train), tokens(validation), vocabulary, lambda: tokens(test))


def _words(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").replace("\n", " <eos> ").split()


def warpeace(data_dir: Path | None, *, final: bool = False) -> Text:
    """War and Peace by bytes: read so, its vocabulary is the paper's 87 (Section 5.4.2)."""
    return split_bytes("warpeace", files.require("warpeace", data_dir)[0])


def split_bytes(name: str, path: Path) -> Text:
    """Any file, read as bytes: the first 80 % to train on, the next 10 % to validate, the last to test.

    The vocabulary is the sorted bytes of the whole file, so that every part has an index for each byte: of
    the test set it tells which bytes occur, nothing more. The paper's split has a validation part of its
    own, so `final` changes nothing.
    """
    content = _read(path)
    digest = hashlib.sha256(content).digest()
    vocabulary = sorted(set(content))
    index = bytes.maketrans(bytes(vocabulary), bytes(range(len(vocabulary))))
    train, validation = len(content) * 8 // 10, len(content) * 9 // 10  # where each part ends

    def tokens(part: bytes) -> Tensor:
        return torch.frombuffer(bytearray(part.translate(index)), dtype=torch.uint8).long()

    def test() -> Tensor:
        again = _read(path)
        if hashlib.sha256(again).digest() != digest:
            raise DataError(f"{path} is not the file it was when the training data was read from it.")
        return tokens(again[validation:])

    return Text(name, tokens(content[:train]), tokens(content[train:validation]), vocabulary, test)


def _read(path: Path) -> bytes:
    size = files.regular(path)
    files.fits_memory(path, size, 9)  # the bytes, and an int64 for each
    try:
        with path.open("rb") as stream:
            content = stream.read(size)
    except OSError as error:
        raise DataError(f"The text {path} cannot be read: {error.strerror or error}.") from error
    if len(content) < 10:
        raise DataError(
            f"The text {path} must have at least 10 bytes to be split 80/10/10, got {len(content)}."
        )
    return content
