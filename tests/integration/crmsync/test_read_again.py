"""A source of which only an assumed horizon is known: what was read early is read again when all is
to be read, and rows without versions are newer when they differ."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from crmsync import models
from crmsync.directory import Crms, Policies
from crmsync.models import Record, RecoveryEntry
from crmsync.poller.policy_poll import PolicyPoll
from crmsync.poller.reading.source import Source
from crmsync.queues import MainQueue
from crmsync.recovery import actions
from msgplatform.core.data import ids, sql
from msgplatform.core.queues import jobs
from msgplatform.core.servers.embedded import MariaDb
from tests.integration.crmsync import sync_support as sync
from tests.integration.support.lead_tables import INSERT
from tests.integration.support.sources import run_as_owner

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
HOLDER = "h" * 32
State = Record.State


class Shop:
    """Somebody's table without versions, of which the user sees no open transactions."""

    def __init__(self, source: Source, lag: int, mapping: str) -> None:
        row = models.Source.objects.create(
            name="shop", database=source.database, table="lead", time_column="UpdateTime",
            value_columns=["uid", "name", "phone"], lag_seconds=lag,
        )  # fmt: skip
        crm = sync.crm(settings={"table": "customer"}, credentials={"url": "sqlite:////nowhere.db"})
        self.row = models.Policy.objects.create(
            source=row, crm=crm, mapping=mapping, sweep_cron="", interval_seconds=1
        )
        self.start()

    def start(self) -> None:
        """A poller with nothing in memory."""
        self._policies, self._crms = Policies(), Crms()
        self._poll = PolicyPoll(self.row.pk, HOLDER, self._policies, self._crms, lambda _: None)

    def change(self, **fields: Any) -> None:
        models.Policy.objects.filter(pk=self.row.pk).update(**fields)

    def turn_until(self, condition: Callable[[], object], seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline
            self.change(claimed_by=HOLDER, lease_until=sql.now() + timedelta(seconds=60))
            self._policies.refresh(at_once=True)
            self._crms.refresh(at_once=True)
            self._poll.turn()

    def turn_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        self.turn_until(lambda: time.monotonic() > end)

    def confirm_all(self) -> None:
        """What a handler would do with everything that is queued."""
        for row in Record.objects.filter(state=State.QUEUED):
            Record.objects.filter(pk=row.pk).update(
                state=State.CONFIRMED, sent_version=row.version, sent_digest=row.digest,
                claimed_by="", next_at=None, sending_operation=0,
            )  # fmt: skip
        jobs.replace(MainQueue("sales").name, [])


def states() -> list[int]:
    return list(Record.objects.order_by("key").values_list("state", flat=True))


class TestAssumedHorizon:
    def test_a_run_of_everything_sends_the_last_minute_too(
        self, foreign: Callable[..., Source], mariadb: MariaDb
    ) -> None:
        shop = Shop(foreign(process=False), 40, "name = name")
        run_as_owner(mariadb, INSERT.format(uid="a"), INSERT.format(uid="b"))
        shop.turn_until(lambda: len(states()) == 2)
        shop.confirm_all()
        shop.turn_for(1)
        shop.change(mapping="full_name = name", requested="full", requested_by="li")
        shop.turn_until(lambda: states() == [State.QUEUED] * 2, 20)

    def test_an_entry_stays_open_until_its_row_was_read(
        self, foreign: Callable[..., Source], mariadb: MariaDb
    ) -> None:
        shop = Shop(foreign(process=False), 40, "name = name")
        shop.change(mapping="name = name.first")
        run_as_owner(mariadb, INSERT.format(uid="a"))
        shop.turn_until(RecoveryEntry.objects.exists)
        assert states() == [State.DEAD]
        shop.change(mapping="name = name")
        assert actions.retry([RecoveryEntry.objects.get().pk], "ann") == 1
        entry = RecoveryEntry.objects.get()
        assert (entry.state, entry.handled_by) == (RecoveryEntry.State.OPEN, "ann")
        shop.turn_until(lambda: states() == [State.QUEUED], 20)


class TestClocks:
    def test_what_changed_after_a_poller_whose_clock_was_ahead(
        self,
        foreign: Callable[..., Source],
        mariadb: MariaDb,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        shop = Shop(foreign(), 60, "name = name")
        run_as_owner(mariadb, INSERT.format(uid="a"))
        made = ids.new
        with monkeypatch.context() as patch:
            patch.setattr(ids, "new", lambda bucket: made(bucket) + 10**12)  # days ahead
            shop.turn_until(lambda: states() == [State.QUEUED])
        shop.confirm_all()
        first = Record.objects.get()
        shop.start()
        run_as_owner(mariadb, "UPDATE lead SET name = 'new'", INSERT.format(uid="b"))
        shop.turn_until(lambda: states() == [State.QUEUED] * 2, 20)
        row = Record.objects.get(pk=first.pk)
        assert row.version == first.version + 1
        (order,) = [claimed.data for claimed in iter(MainQueue("sales").claim, None)]
        assert {entry.request.version for entry in order.entries} >= {row.version}
