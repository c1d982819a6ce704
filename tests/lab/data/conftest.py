"""Tiny datasets in the publishers' formats, and a server for them on this machine."""

from __future__ import annotations

import functools
import hashlib
import http.server
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from entropy_sgd.lab.data import catalogue

Publish = Callable[[str, Mapping[str, bytes]], list[Path]]


@pytest.fixture
def publish(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Publish:
    """A function that writes files below tmp_path and makes them what the catalogue knows of a dataset."""

    def function(name: str, contents: Mapping[str, bytes]) -> list[Path]:
        entries, paths = [], []
        for path, content in contents.items():
            entries.append(catalogue.File(path, hashlib.sha256(content).hexdigest()))
            paths.append(tmp_path / path)
            paths[-1].parent.mkdir(parents=True, exist_ok=True)
            paths[-1].write_bytes(content)
        monkeypatch.setitem(catalogue.DATASETS, name, catalogue.Dataset(name, "tiny", tuple(entries)))
        return paths

    return function


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of a server, and the folder it serves."""
    folder = tmp_path / "served"
    folder.mkdir()
    handler = functools.partial(_Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}", folder
        running.shutdown()
        thread.join()
