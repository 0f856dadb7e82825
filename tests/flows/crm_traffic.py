"""Leads that are created, changed and deleted over REST, and a list of what was answered."""

import http.client
import json
import random
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from tests.cluster import Cluster

SET_UP = """
import json
from crmsync.models import Crm, LandingPage, Policy, Source
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
biz = Biz.objects.create(name="cars")
LandingPage.objects.create(biz=biz, appkey="test-drive", title="Test drive", form_fields=[
    {{"name": name, "required": False, "label": ""}} for name in ("name", "phone", "city")]
    + [{{"name": "note", "required": True, "label": "Note"}}])
for name, adapter, settings, credentials, fields in {crms!r}:
    crm = Crm.objects.create(name=name, adapter=adapter, settings=settings,
                             credentials=credentials, retry_seconds=[5, 5], **fields)
    # Without the guard: a tenth of all changes are deletions.
    Policy.objects.create(source=Source.hive(), crm=crm, interval_seconds=1, batch_size=200,
                          guard_percent=100,
                          mapping="name = name\\nphone = phone\\ncity = extra.city or null")
print(json.dumps(keys.create(biz, "test", ["leads:write", "leads:read"])[1]))
"""
OPEN = """
from crmsync.models import Record
print(Record.objects.filter(state__in=Record.OPEN).count())
"""
STORY = """
import json
from crmsync.models import Item, Record
found = []
for record in Record.objects.filter(key={key!r}).order_by("id"):
    tries = Item.objects.filter(record_id=record.pk).order_by("id")
    found.append([
        record.get_state_display(), record.version, record.sent_version, record.remote_id,
        [[i.version, i.attempt, i.outcome, i.remote_id, i.message] for i in tries]])
print(json.dumps(found))
"""


@dataclass
class Ledger:
    """What the platform has said yes to: of each lead its values, None when it is deleted."""

    leads: dict[str, tuple[str, str, str] | None] = field(default_factory=dict)
    changes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def expected(self) -> dict[str, tuple[str, str, str]]:
        with self.lock:
            return {key: values for key, values in self.leads.items() if values is not None}


class Writer(threading.Thread):
    """Writes leads of its own; a call without an answer is repeated until it has one."""

    def __init__(self, cluster: Cluster, token: str, ledger: Ledger, number: int) -> None:
        super().__init__(daemon=True)
        self._address = ("127.0.0.1", cluster.port)
        self._token, self._ledger, self._number = token, ledger, number
        self._chance = random.Random(number)
        self._mine: list[str] = []
        self._batches = 0
        self.wanted = 0  # leads
        self.pause = 0.0  # seconds between two changes
        self.over = threading.Event()

    def run(self) -> None:
        while len(self._mine) < self.wanted or not self.over.is_set():
            if len(self._mine) < self.wanted or self._chance.random() < 0.1:
                self._create()
            for _ in range(10):
                self._change()
                time.sleep(self.pause)

    def finish(self) -> None:
        """Write what is missing to `wanted`, and end."""
        self.over.set()
        self.join(300)
        assert not self.is_alive()

    def _create(self) -> None:
        self._batches += 1
        given = [
            (f"lead {self._number}.{self._batches}.{n}",
             f"+86138{self._chance.randrange(10**8):08d}",
             self._chance.choice(["", "上海", "Berlin"]))
            for n in range(25)
        ]  # fmt: skip
        leads = [
            {"appkey": "test-drive", "name": name, "phone": phone,
             "extra": {"city": city, "note": "x"},
             "idempotency_key": f"{self._number}-{self._batches}-{n}"}
            for n, (name, phone, city) in enumerate(given)
        ]  # fmt: skip
        answer = self._call("POST", "/api/v1/leads/batch", {"leads": leads})
        for values, verdict in zip(given, answer["results"], strict=True):
            self._mine.append(verdict["id"])
            self._note(verdict["id"], values)

    def _change(self) -> None:
        key = self._chance.choice(self._mine)
        before = self._ledger.leads[key]
        if before is None:
            return
        if self._chance.random() < 0.1:
            self._call("DELETE", f"/api/v1/leads/{key}")
            self._note(key, None)
            return
        name, phone, _ = before
        city = f"city {self._chance.randrange(1000)}"
        self._call("PATCH", f"/api/v1/leads/{key}", {"extra": {"city": city}})
        self._note(key, (name, phone, city))

    def _note(self, key: str, values: tuple[str, str, str] | None) -> None:
        with self._ledger.lock:
            self._ledger.leads[key] = values
            self._ledger.changes += 1

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        while True:
            try:
                status, data = self._once(method, path, body)
            except (OSError, http.client.HTTPException):
                time.sleep(0.1)  # the web server is not killed, but it may be slow
                continue
            if status in (429, 503):
                time.sleep(0.1)
                continue
            assert 200 <= status < 300, (status, data)
            return json.loads(data) if data else None

    def _once(self, method: str, path: str, body: Any) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(*self._address, timeout=60)
        try:
            headers = {
                "Authorization": f"Bearer {self._token}", "Content-Type": "application/json",
            }  # fmt: skip
            connection.request(method, path, json.dumps(body) if body else None, headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()
