"""Starts a sink as a process of its own and reads what it wrote down."""

from __future__ import annotations

from pathlib import Path

from msgplatform.core.servers.private_server import start_announced


class SinkProcess:
    """A running `notify.demo.sink`; its file is the only thing that is believed."""

    def __init__(self, file: Path, arguments: list[str], port: int = 0) -> None:
        self.file = file
        file.touch()
        self._process, line = start_announced(
            "notify.demo.sink", "--file", str(file), "--port", str(port), *arguments
        )
        self.port = int(line)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def lines(self) -> list[str]:
        """The message id of every delivery that was answered 2xx, in order."""
        return [line.split()[0] for line in self.file.read_text().splitlines() if line]

    def times(self) -> list[float]:
        """When each of them came, in unix seconds by the sink's clock."""
        return [float(line.split()[1]) for line in self.file.read_text().splitlines() if line]

    def ids(self) -> set[str]:
        return set(self.lines())

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
