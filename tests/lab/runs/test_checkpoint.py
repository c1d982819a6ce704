from __future__ import annotations

import os
import pickle
import resource

import pytest
import torch

from entropy_sgd.lab import LabError
from entropy_sgd.lab.runs import checkpoint


def state(step):
    return {"step": step, "weights": torch.arange(1000.0) + step, "nested": [{"a": (1.5, None)}, "text"]}


def equal(a, b):
    return a["step"] == b["step"] and torch.equal(a["weights"], b["weights"]) and a["nested"] == b["nested"]


def test_what_was_saved_is_loaded_and_the_one_before_is_kept(tmp_path):
    assert checkpoint.load(tmp_path) == (None, [])
    for step in (1, 2, 3):
        checkpoint.save(tmp_path, state(step))
    loaded, complaints = checkpoint.load(tmp_path)
    assert equal(loaded, state(3))
    assert complaints == []
    (tmp_path / "checkpoint.pt").unlink()  # killed between the two renames
    loaded, complaints = checkpoint.load(tmp_path)
    assert equal(loaded, state(2))
    assert complaints == []


@pytest.mark.parametrize("damage", ["truncated", "empty", "zeros", "one byte of a weight"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_used(tmp_path, damage):
    for step in (1, 2):
        checkpoint.save(tmp_path, state(step))
    path = tmp_path / "checkpoint.pt"
    content = path.read_bytes()
    if damage == "one byte of a weight":
        at = content.index(state(2)["weights"].numpy().tobytes()) + 1234
        content = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
    else:
        content = {"truncated": content[:-500], "empty": b"", "zeros": bytes(len(content))}[damage]
    path.write_bytes(content)
    loaded, complaints = checkpoint.load(tmp_path)
    assert equal(loaded, state(1))
    assert len(complaints) == 1
    assert str(path) in complaints[0]
    (tmp_path / "checkpoint.previous.pt").unlink()
    with pytest.raises(LabError, match="damaged"):
        checkpoint.load(tmp_path)


def test_no_code_in_a_checkpoint_is_run(tmp_path):
    ran = tmp_path / "ran"

    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(ran),)

    torch.save({"sha256": "", "state": Trap()}, tmp_path / "checkpoint.pt")
    (tmp_path / "checkpoint.previous.pt").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(LabError, match="damaged"):
        checkpoint.load(tmp_path)
    assert not ran.exists()


def test_a_disk_that_is_full_leaves_the_last_checkpoint_intact(tmp_path):
    checkpoint.save(tmp_path, state(1))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Python ignores SIGXFSZ, so that a write past the limit fails with an OSError, as on a full disk
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    try:
        with pytest.raises(LabError, match=r"cannot write .*last checkpoint is intact"):
            checkpoint.save(tmp_path, state(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    loaded, complaints = checkpoint.load(tmp_path)
    assert equal(loaded, state(1))
    assert complaints == []
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["checkpoint.pt"]


def test_the_digest_tells_apart_what_differs():
    tensor = torch.tensor([0.0, 1.0])
    different = [
        tensor,
        torch.tensor([-0.0, 1.0]),
        tensor.double(),
        tensor[None],
        [tensor],
        {"a": tensor},
        {"b": tensor},
        [0.0, 1.0],
        [0, 1],
        ["0.0", 1.0],
        [[0.0], 1.0],
        None,
        True,
    ]
    assert len({checkpoint.digest(value) for value in different}) == len(different)
    assert checkpoint.digest({"a": tensor}) == checkpoint.digest({"a": tensor.clone()})
    assert checkpoint.digest(torch.arange(6).view(2, 3).T) == checkpoint.digest(
        torch.arange(6).view(2, 3).T.clone()
    )
