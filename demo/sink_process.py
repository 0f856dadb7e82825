"""Starts a sink as a process of its own and reads what it wrote down."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from demo.processes import start_announced


class SinkProcess:
    """A running `demo.sink`; its file is the only thing that is believed."""

    def __init__(self, file: Path, arguments: Sequence[str] = (), port: int = 0) -> None:
        self.file = file
        file.touch()
        self._lock, self._offset = threading.Lock(), 0
        self._lines: list[list[str]] = []  # webhook-id, unix time, body
        self._ids: set[str] = set()
        self._process, line = start_announced(
            "demo.sink", "--file", str(file), "--port", str(port), *arguments
        )
        self.port = int(line)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def lines(self) -> list[str]:
        """The message id of every delivery that was answered 2xx, in order."""
        return [line[0] for line in self._read()]

    def times(self) -> list[float]:
        """When each of them came, in unix seconds by the sink's clock."""
        return [float(line[1]) for line in self._read()]

    def bodies(self) -> list[str]:
        """The body of each of them, if the sink has `--bodies`."""
        return [line[2] for line in self._read()]

    def ids(self) -> set[str]:
        self._read()
        with self._lock:
            return set(self._ids)

    def close(self) -> None:
        if self._process.stdin:
            self._process.stdin.close()
        self._process.wait(timeout=60)
        if self._process.stdout:
            self._process.stdout.close()

    def __enter__(self) -> SinkProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> list[list[str]]:
        """All lines; only those that are new are read, but for one that is being written."""
        with self._lock, self.file.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                words = line.decode().rstrip("\n").split(" ", 2)
                self._lines.append(words)
                self._ids.add(words[0])
            return list(self._lines)
