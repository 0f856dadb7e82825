"""Starts a listening business system and reads what it wrote down."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

from msgplatform.core.servers.private_server import start_announced


class Listener:
    """A running `gateway.demo.sink`; its file is the only thing that is believed."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("wb+")
        self.reports: dict[str, list[str]] = defaultdict(list)  # message id → its states
        self.mos: list[str] = []  # their texts
        self.repeated = 0  # events that came once more under the same webhook-id
        self._events: set[bytes] = set()
        self._process, port = start_announced("gateway.demo.sink", "--file", str(file))
        self.url = f"http://127.0.0.1:{port}/events"

    def listen(self) -> None:
        """Read what came since the last time."""
        while True:
            place = self._file.tell()
            line = self._file.readline()
            if not line.endswith(b"\n"):
                self._file.seek(place)  # a line that is being written, for the next time
                return
            event, body = line.split(b" ", 1)
            if event in self._events:
                self.repeated += 1
                continue
            self._events.add(event)
            received = json.loads(body)
            data = received["data"]
            if received["type"] == "sms.report":
                self.reports[data["id"]].append(data["state"])
            else:
                self.mos.append(data["text"])

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()
        self._file.close()
