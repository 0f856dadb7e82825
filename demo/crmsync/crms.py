"""The two CRMs of the demo as their owners see them: started, and read without the platform."""

from __future__ import annotations

import json
import sqlite3
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

from demo.account import Records
from demo.crmsync.leads import MAX_COMPANY, record
from demo.processes import start_announced

_COLUMNS = ("name", "phone", "email", "company", "city", "page")


class SalesTable:
    """A table in a database of its own."""

    def __init__(self, file: Path) -> None:
        self._file = file
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")  # it is read while it is written
            connection.execute(
                "CREATE TABLE customer (lead VARCHAR(40) NOT NULL PRIMARY KEY, "
                "name VARCHAR(120) NOT NULL, phone VARCHAR(20) NOT NULL, email VARCHAR(254), "
                f"company VARCHAR({MAX_COMPANY}), city VARCHAR(100), page VARCHAR(64) NOT NULL, "
                "gone INTEGER NOT NULL DEFAULT 0, version BIGINT NOT NULL)"
            )

    @property
    def url(self) -> str:
        return f"sqlite:///{self._file.resolve()}"

    def read(self) -> Records:
        """Its records, without those that are marked as deleted."""
        statement = f"SELECT lead, {', '.join(_COLUMNS)} FROM customer WHERE gone = 0"  # noqa: S608
        with closing(sqlite3.connect(self._file, timeout=30)) as connection:
            rows = connection.execute(statement).fetchall()
        fields = [(lead, dict(zip(_COLUMNS, row, strict=True))) for lead, *row in rows]
        return [record(lead, str(row["phone"] or ""), row) for lead, row in fields]


class CallCentre:
    """A running `demo.crmsync.call_centre`."""

    def __init__(self) -> None:
        self._process, line = start_announced("demo.crmsync.call_centre")
        port, self.token = line.split()
        self.url = f"http://127.0.0.1:{port}"

    def read(self) -> Records:
        """Its records, without those that are marked as deleted."""
        records: list[tuple[str, object]] = []
        after = ""
        while page := self._get(f"/contacts?after={after}")["contacts"]:
            records += [
                record(row["external_id"], row["properties"].get("Phone", ""), row["properties"])
                for row in page
                if not row["deleted"]
            ]
            after = page[-1]["external_id"]
        return records

    def _get(self, path: str) -> Any:
        request = urllib.request.Request(  # noqa: S310 - our own address
            self.url + path, headers={"Authorization": f"Bearer {self.token}"}
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=60) as answer:
            return json.load(answer)

    def __enter__(self) -> CallCentre:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=60)
