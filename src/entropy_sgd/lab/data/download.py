"""Downloading the published data: each file checked against its SHA-256 before it takes its place.

A file that is already there is never written to, not even a damaged one: that is for its owner to move away.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import zlib
from pathlib import Path, PurePosixPath

from entropy_sgd.lab.data import catalogue, files
from entropy_sgd.lab.data.files import DataError, FileStatus


def fetch(name: str, data_dir: Path | None = None, *, progress: bool = True) -> list[Path]:
    """Download the files of a dataset that are missing.

    Args:
        name: a published dataset.
        data_dir: the folder to put it in; see `data_root`.
        progress: show a bar on standard error.

    Returns:
        The files that were missing and are there now; empty when all were there, and whole.

    """
    found = files.verify(name, data_dir)
    for status in found:
        if status.state == "damaged":
            raise DataError(files.damage(status))
    missing = [status for status in found if status.state == "missing"]
    archive = files.find(name).archive
    if archive is not None and missing:
        path = files.data_root(data_dir) / PurePosixPath(archive.urls[0]).name
        own = not path.exists()
        _retrieve(catalogue.File(path.name, archive.sha256, archive.urls), path, progress)
        _extract(path, missing)
        if own:
            path.unlink()
    else:
        for status in missing:
            _retrieve(status.file, status.path, progress)
    return [status.path for status in missing]


def _retrieve(file: catalogue.File, path: Path, progress: bool) -> None:
    """Bring one file to its path from the first address that serves it whole."""
    import pooch  # pyright: ignore[reportMissingTypeStubs]

    if path.exists():
        if (found := files.sha256(path)) != file.sha256:
            raise DataError(files.damage(FileStatus(file, path, "damaged", found)))
        return
    failures = ""
    for url in file.urls:
        try:
            # pooch writes to a temporary file and renames it once the hash is right
            pooch.retrieve(  # pyright: ignore[reportUnknownMemberType]
                url, f"sha256:{file.sha256}", path.name, path.parent, progressbar=progress
            )
        except (OSError, ValueError) as error:  # requests' errors are OSErrors; a wrong hash is a ValueError
            failures += f"\n  {url}: {error}"
        else:
            return
    raise DataError(
        f"{path} could not be downloaded:{failures}\n"
        f"Put the file there yourself, or try again; its SHA-256 is {file.sha256}."
    )


def _extract(archive: Path, missing: list[FileStatus]) -> None:
    """Take the missing files, and nothing else, out of a tar.gz archive.

    A member is matched by the last part of its name only and written to the path we know for it, so no name
    in the archive can lead out of the data folder; links and devices are not regular files and are passed
    over.
    """
    wanted = {status.path.name: status for status in missing}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                status = wanted.get(PurePosixPath(member.name).name)
                content = tar.extractfile(member) if status and member.isfile() else None
                if status is None or content is None:
                    continue
                del wanted[status.path.name]
                status.path.parent.mkdir(parents=True, exist_ok=True)
                part = status.path.with_name(f".{status.path.name}.part-{os.getpid()}")
                try:
                    with part.open("wb") as stream:
                        shutil.copyfileobj(content, stream)
                    if (found := files.sha256(part)) != status.file.sha256:
                        raise DataError(
                            f"{member.name} in {archive} is not the published file.\n"
                            f"  SHA-256 found:    {found}\n  SHA-256 expected: {status.file.sha256}"
                        )
                    part.replace(status.path)
                finally:
                    part.unlink(missing_ok=True)
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise DataError(f"{archive} could not be unpacked: {error}.") from error
    if wanted:
        raise DataError(f"{archive} does not contain {', '.join(wanted)}.")
