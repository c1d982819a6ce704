from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from entropy_sgd.lab.data import DataError, catalogue, fetch


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def tar(members: Mapping[str, bytes | str]) -> bytes:
    """A tar.gz of files, or of symbolic links where a member's content is a string."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            if isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
                archive.addfile(member)
            else:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture
def served_files(monkeypatch, server) -> dict[str, bytes]:
    """Two files behind two mirrors each, the first of which has nothing."""
    address, folder = server
    contents = {"one.txt": b"first file", "two.txt": b"second file"}
    entries = []
    for name, content in contents.items():
        (folder / name).write_bytes(content)
        urls = (f"{address}/gone/{name}", f"{address}/{name}")
        entries.append(catalogue.File(f"ptb/{name}", sha256(content), urls))
    monkeypatch.setitem(catalogue.DATASETS, "ptb", catalogue.Dataset("ptb", "tiny", tuple(entries)))
    return contents


@pytest.fixture
def serve_archive(monkeypatch, server):
    """A function that serves an archive as CIFAR-10's, of which a.bin and b.bin are wanted."""
    address, folder = server

    def function(archive: bytes, digest: str | None = None) -> None:
        (folder / "all.tar.gz").write_bytes(archive)
        wanted = (
            catalogue.File("cifar/a.bin", sha256(b"content of a")),
            catalogue.File("cifar/b.bin", sha256(b"content of b")),
        )
        entry = catalogue.Archive((f"{address}/all.tar.gz",), digest or sha256(archive))
        monkeypatch.setitem(
            catalogue.DATASETS, "cifar10", catalogue.Dataset("cifar10", "tiny", wanted, entry)
        )

    return function


def everything_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


def test_missing_files_come_from_the_first_mirror_that_has_them(served_files, tmp_path, capfd):
    root = tmp_path / "data"
    assert fetch("ptb", root) == [root / "ptb/one.txt", root / "ptb/two.txt"]
    assert {name: (root / "ptb" / name).read_bytes() for name in served_files} == served_files
    assert "100%" in capfd.readouterr().err
    assert fetch("ptb", root) == []
    (root / "ptb/one.txt").unlink()
    assert fetch("ptb", root, progress=False) == [root / "ptb/one.txt"]


def test_a_damaged_file_is_not_overwritten(served_files, tmp_path):
    path = tmp_path / "ptb/one.txt"
    path.parent.mkdir()
    path.write_bytes(b"mine")
    with pytest.raises(DataError, match=sha256(b"mine")):
        fetch("ptb", tmp_path)
    assert path.read_bytes() == b"mine"
    assert not (tmp_path / "ptb/two.txt").exists()


def test_a_download_with_other_bytes_never_takes_its_place(served_files, server, tmp_path):
    address, folder = server
    (folder / "two.txt").write_bytes(b"second fil")
    root = tmp_path / "data"
    with pytest.raises(DataError) as error:
        fetch("ptb", root, progress=False)
    message = str(error.value)
    assert str(root / "ptb/two.txt") in message
    assert f"{address}/gone/two.txt: 404" in message
    assert sha256(b"second file") in message
    assert sha256(b"second fil") in message
    assert everything_below(root) == {"ptb/one.txt"}


def test_a_folder_that_cannot_be_written_is_an_error_of_the_data(served_files, tmp_path):
    (tmp_path / "ptb").write_bytes(b"a file in the place of the folder")
    with pytest.raises(DataError, match="could not be downloaded"):
        fetch("ptb", tmp_path, progress=False)


def test_an_archive_gives_the_wanted_files_and_nothing_else(serve_archive, tmp_path):
    serve_archive(
        tar(
            {
                "folder/a.bin": b"content of a",
                "../../escape.txt": b"outside",
                "../b.bin": b"content of b",
                "folder/readme.html": b"not wanted",
            }
        )
    )
    root = tmp_path / "deep" / "data"
    assert fetch("cifar10", root, progress=False) == [root / "cifar/a.bin", root / "cifar/b.bin"]
    assert everything_below(tmp_path / "deep") == {"data/cifar/a.bin", "data/cifar/b.bin"}
    assert (root / "cifar/b.bin").read_bytes() == b"content of b"


def test_an_archive_the_user_put_there_is_used_and_kept(serve_archive, server, tmp_path):
    archive = tar({"a.bin": b"content of a", "b.bin": b"content of b"})
    serve_archive(archive)
    (server[1] / "all.tar.gz").unlink()
    root = tmp_path / "data"
    root.mkdir()
    (root / "all.tar.gz").write_bytes(archive)
    fetch("cifar10", root)
    assert everything_below(root) == {"all.tar.gz", "cifar/a.bin", "cifar/b.bin"}
    (root / "cifar/a.bin").unlink()
    (root / "all.tar.gz").write_bytes(archive[:-1])
    with pytest.raises(DataError, match=sha256(archive[:-1])):
        fetch("cifar10", root)
    assert (root / "all.tar.gz").read_bytes() == archive[:-1]


@pytest.mark.parametrize(
    ("archive", "message"),
    [
        (tar({"a.bin": b"content of a"}), "does not contain b.bin"),
        (tar({"a.bin": b"content of a", "b.bin": "/etc/hostname"}), "does not contain b.bin"),
        (tar({"a.bin": b"content of a", "b.bin": b"content of c"}), sha256(b"content of c")),
        (tar({"a.bin": b"content of a", "b.bin": b"content of b"})[:60], "could not be unpacked"),
        (b"no archive at all", "could not be unpacked"),
    ],
    ids=["incomplete", "link", "other content", "truncated", "no archive"],
)
def test_a_bad_archive_is_told_and_leaves_no_wrong_file(serve_archive, tmp_path, archive, message):
    serve_archive(archive)
    root = tmp_path / "data"
    with pytest.raises(DataError, match=message):
        fetch("cifar10", root, progress=False)
    assert everything_below(root) <= {"all.tar.gz", "cifar/a.bin"}
