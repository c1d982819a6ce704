from __future__ import annotations

import pytest
import torch

from entropy_sgd.lab.data import DataError, Text, load

TRAIN = " the cat sat on the mat \n the cat <unk> \n"
VALIDATION = " the mat sat \n"


def words(text: Text, tokens: torch.Tensor) -> list[str]:
    return [str(text.vocabulary[token]) for token in tokens.tolist()]


def published(publish, test: str) -> None:
    contents = {"ptb/ptb.train.txt": TRAIN, "ptb/ptb.valid.txt": VALIDATION, "ptb/ptb.test.txt": test}
    publish("ptb", {path: content.encode() for path, content in contents.items()})


def test_ptb_is_words_with_an_end_after_each_line(publish, tmp_path):
    published(publish, " cat <unk> on mat \n")
    for final in (False, True):
        text = load("ptb", tmp_path, final=final)
        assert isinstance(text, Text)
        assert text.vocabulary == ["the", "<eos>", "cat", "<unk>", "mat", "on", "sat"]
        assert words(text, text.train) == [
            "the",
            "cat",
            "sat",
            "on",
            "the",
            "mat",
            "<eos>",
            "the",
            "cat",
            "<unk>",
            "<eos>",
        ]
        assert words(text, text.validation) == ["the", "mat", "sat", "<eos>"]
        assert words(text, text.test()) == ["cat", "<unk>", "on", "mat", "<eos>"]
        assert text.train.dtype == torch.int64


def test_a_word_the_training_text_does_not_have_is_told(publish, tmp_path):
    published(publish, " the end \n")
    text = load("ptb", tmp_path)
    with pytest.raises(
        DataError, match=r"ptb\.test\.txt has the word 'end', which .*ptb\.train\.txt does not"
    ):
        text.test()


def test_war_and_peace_is_bytes_cut_80_10_10(publish, tmp_path):
    content = "«Eh bien, mon prince. Gênes et Lucques»".encode()
    publish("warpeace", {"warpeace/warpeace_input.txt": content})
    text = load("warpeace", tmp_path)
    assert isinstance(text, Text)
    parts = [
        bytes(text.vocabulary[token] for token in part.tolist())
        for part in (text.train, text.validation, text.test())
    ]
    assert b"".join(parts) == content
    assert [len(part) for part in parts] == [33, 4, 5]  # of 42
    assert text.vocabulary == sorted(set(content))


def test_any_file_of_the_users_own_is_bytes(tmp_path):
    path = tmp_path / "all.bin"
    path.write_bytes(bytes(range(256)) * 10)
    text = load(f"text:{path}")
    assert isinstance(text, Text)
    assert text.vocabulary == list(range(256))
    assert text.train.tolist() == list(range(256)) * 8
    path.write_bytes(bytes(2560))
    with pytest.raises(DataError, match="is not the file it was"):
        text.test()


def test_a_text_that_cannot_be_used_is_told(tmp_path):
    with pytest.raises(DataError, match=r"none\.txt cannot be read: No such file or directory"):
        load(f"text:{tmp_path / 'none.txt'}")
    (tmp_path / "short.txt").write_bytes(b"123456789")
    with pytest.raises(DataError, match="at least 10 bytes to be split 80/10/10, got 9"):
        load(f"text:{tmp_path / 'short.txt'}")
