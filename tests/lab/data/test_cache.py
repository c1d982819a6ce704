from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from entropy_sgd.lab.data import cache

ARRAYS = {"images": torch.arange(12.0).view(3, 4), "mean": torch.ones(4)}


def test_what_is_saved_is_loaded(tmp_path):
    folder = tmp_path / "deep" / "key"
    assert cache.load(folder) is None
    cache.save(folder, ARRAYS, {"bias": 0.1})
    loaded = cache.load(folder)
    assert loaded is not None
    assert loaded.keys() == ARRAYS.keys()
    assert all(torch.equal(loaded[name], ARRAYS[name]) for name in ARRAYS)
    assert json.loads((folder / "contents.json").read_text())["parameters"] == {"bias": 0.1}
    assert [path.name for path in folder.parent.iterdir()] == ["key"]


def test_a_changed_byte_is_found_and_the_folder_can_be_made_again(tmp_path):
    folder = tmp_path / "key"
    cache.save(folder, ARRAYS, {})
    content = bytearray((folder / "images.npy").read_bytes())
    content[-1] ^= 1
    (folder / "images.npy").write_bytes(content)
    with pytest.warns(UserWarning, match=r"images\.npy has the SHA-256 \w+, expected \w+"):
        assert cache.load(folder) is None
    cache.save(folder, ARRAYS, {})
    assert cache.load(folder) is not None


@pytest.mark.parametrize("content", ["", "{", "{}"])
def test_a_damaged_list_of_contents_is_found(tmp_path, content):
    folder = tmp_path / "key"
    cache.save(folder, ARRAYS, {})
    (folder / "contents.json").write_text(content)
    with pytest.warns(UserWarning, match="is damaged and will be made again"):
        assert cache.load(folder) is None


def test_a_file_that_vanished_is_found(tmp_path):
    folder = tmp_path / "key"
    cache.save(folder, ARRAYS, {})
    (folder / "mean.npy").unlink()
    with pytest.warns(UserWarning, match=r"mean\.npy"):
        assert cache.load(folder) is None


def test_a_full_disk_costs_a_warning_and_leaves_nothing_behind(tmp_path, monkeypatch):
    save = np.save

    def full(path: Path, array: np.ndarray, **options: bool) -> None:
        if path.name == "mean.npy":
            raise OSError(28, "No space left on device")
        save(path, array, **options)

    monkeypatch.setattr(np, "save", full)
    with pytest.warns(UserWarning, match="No space left on device"):
        cache.save(tmp_path / "key", ARRAYS, {})
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_costs_a_warning(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.warns(UserWarning, match="could not be written"):
        cache.save(tmp_path / "file" / "key", ARRAYS, {})


def test_pickled_objects_are_refused(tmp_path):
    folder = tmp_path / "key"
    cache.save(folder, ARRAYS, {})
    np.save(folder / "mean.npy", np.array([{"an": "object"}]), allow_pickle=True)
    contents = json.loads((folder / "contents.json").read_text())
    contents["sha256"]["mean.npy"] = cache.sha256(folder / "mean.npy")
    (folder / "contents.json").write_text(json.dumps(contents))
    with pytest.warns(UserWarning, match="allow_pickle=False"):
        assert cache.load(folder) is None
