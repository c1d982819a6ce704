from __future__ import annotations

import hashlib
from pathlib import Path

import platformdirs
import pytest

from entropy_sgd.lab.data import DataError, catalogue, data_root, files, status, verify


def test_the_data_folder_is_the_argument_else_the_variable_else_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("ENTROPY_SGD_DATA", str(tmp_path / "variable"))
    assert data_root(tmp_path / "argument") == tmp_path / "argument"
    assert data_root() == tmp_path / "variable"
    monkeypatch.delenv("ENTROPY_SGD_DATA")
    assert data_root() == Path(platformdirs.user_cache_dir("entropy-sgd", appauthor=False))


def test_the_catalogue_is_well_formed():
    assert list(catalogue.DATASETS) == ["mnist", "cifar10", "ptb", "warpeace"]
    for name, dataset in catalogue.DATASETS.items():
        assert dataset.name == name
        assert all(url.startswith("https://") for url in dataset.urls)
        for file in dataset.files:
            assert len(bytes.fromhex(file.sha256)) == 32
            assert file.urls or dataset.archive
            assert all(url.rsplit("/", 1)[1] == Path(file.path).name for url in file.urls)


def test_verify_tells_whole_damaged_and_missing_files_apart(publish, tmp_path):
    whole, damaged, missing = publish("ptb", {"ptb/a": b"aaa", "ptb/b": b"bbb", "ptb/c": b"ccc"})
    damaged.write_bytes(b"bb")
    missing.unlink()
    found = verify("ptb", tmp_path)
    assert [(file.path, file.state) for file in found] == [
        (whole, "ok"),
        (damaged, "damaged"),
        (missing, "missing"),
    ]
    assert [file.sha256 for file in found] == [
        hashlib.sha256(b"aaa").hexdigest(),
        hashlib.sha256(b"bb").hexdigest(),
        None,
    ]
    ptb = next(entry for entry in status(tmp_path) if entry.dataset.name == "ptb")
    assert (ptb.present, ptb.missing) == (2, (missing,))


def test_missing_data_names_the_files_the_command_and_the_address(monkeypatch, tmp_path):
    with pytest.raises(DataError) as error:
        files.require("mnist", tmp_path)
    message = str(error.value)
    for file in catalogue.DATASETS["mnist"].files:
        assert str(tmp_path / file.path) in message
    assert f"entropy-sgd data fetch mnist --data-dir {tmp_path}" in message
    assert "https://ossci-datasets.s3.amazonaws.com/mnist/train-images-idx3-ubyte.gz" in message

    monkeypatch.setenv("ENTROPY_SGD_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"entropy-sgd data fetch cifar10\n.*\n.*kriz/cifar-10-binary.tar.gz"):
        files.require("cifar10")


def test_a_damaged_file_is_named_with_both_hashes_and_left_alone(publish, tmp_path):
    (path,) = publish("warpeace", {"warpeace/warpeace_input.txt": b"Well, Prince"})
    path.write_bytes(b"Well, Princ")
    with pytest.raises(DataError) as error:
        files.require("warpeace", tmp_path)
    message = str(error.value)
    assert str(path) in message
    assert hashlib.sha256(b"Well, Prince").hexdigest() in message
    assert hashlib.sha256(b"Well, Princ").hexdigest() in message
    assert path.read_bytes() == b"Well, Princ"


def test_a_file_that_cannot_be_read_is_an_error_of_the_data(publish, tmp_path):
    (path,) = publish("warpeace", {"warpeace/warpeace_input.txt": b"Well, Prince"})
    path.unlink()
    path.mkdir()
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        files.require("warpeace", tmp_path)


def test_an_unknown_name_gets_the_closest_one():
    with pytest.raises(DataError, match=r"no dataset is called 'cifar'. Did you mean cifar10\?"):
        verify("cifar")
    with pytest.raises(DataError, match="nothing to fetch"):
        verify("digits")
