"""A source of which only an assumed horizon is known: what was read early is read again when all is
to be read, and rows without versions are newer when they differ."""

import itertools
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import DataError

from bench.harness.mariadb import MariaDb
from crmsync import models, presence
from crmsync.directory import Crms, Policies
from crmsync.models import Record, RecoveryEntry
from crmsync.orders import MainQueue
from crmsync.poller import store
from crmsync.poller.decisions import Round, StoredRound
from crmsync.poller.policy_poll import PolicyPoll
from crmsync.poller.reading.increment import Row, _Select
from crmsync.poller.reading.source import Source
from crmsync.recovery import actions
from msgplatform.core.data import ids, sql
from msgplatform.core.queues import jobs
from msgplatform.models import Alert
from msgplatform.monitor.watch import of_flows
from tests.integration.crmsync import sync_support as sync
from tests.support.lead_tables import INSERT
from tests.support.sources import run_as_owner

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
HOLDER = "h" * 32
# Seconds for which rows count as written lately: much longer than a test takes.
LAG = 600
State = Record.State


class Shop:
    """Somebody's table without versions, of which the user sees no open transactions."""

    def __init__(self, source: Source, lag: int, mapping: str, **more: Any) -> None:
        row = models.Source.objects.create(
            name="shop", database=source.database, table="lead", time_column="UpdateTime",
            lag_seconds=lag, **{"value_columns": ["uid", "name", "phone"], **more},
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

    def facts(self) -> presence.PolicyFacts:
        return self._poll.facts()

    def change(self, **fields: Any) -> None:
        models.Policy.objects.filter(pk=self.row.pk).update(**fields)

    def turn_until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + sync.DEADLINE
        while not condition():
            assert time.monotonic() < deadline
            self.change(claimed_by=HOLDER, lease_until=sql.now() + timedelta(seconds=60))
            self._policies.refresh(at_once=True)
            self._crms.refresh(at_once=True)
            if wait := self._poll.turn():
                time.sleep(min(wait, 0.05))

    def turn_for(self, seconds: float) -> None:
        """Turn at least once: a busy machine may stand still for so long."""
        end, turns = time.monotonic() + seconds, itertools.count()
        self.turn_until(lambda: next(turns) > 0 and time.monotonic() > end)

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
    def test_a_run_of_everything_sends_what_was_written_lately_too(
        self, foreign: Callable[..., Source], mariadb: MariaDb
    ) -> None:
        shop = Shop(foreign(process=False), LAG, "name = name")
        run_as_owner(mariadb, INSERT.format(uid="a"), INSERT.format(uid="b"))
        shop.turn_until(lambda: len(states()) == 2)
        shop.confirm_all()
        shop.turn_for(1)
        shop.change(mapping="full_name = name", requested="full", requested_by="li")
        shop.turn_until(lambda: states() == [State.QUEUED] * 2)

    def test_a_row_that_is_written_twice_at_one_time_is_read_twice(
        self, foreign: Callable[..., Source], mariadb: MariaDb
    ) -> None:
        """Most tables note whole seconds."""
        shop = Shop(foreign(process=False), LAG, "name = name")
        run_as_owner(mariadb, INSERT.format(uid="a"))
        shop.turn_until(lambda: len(states()) == 1)
        shop.confirm_all()
        shop.turn_for(1)
        assert states() == [State.CONFIRMED]
        run_as_owner(mariadb, "UPDATE `lead` SET name = 'new', UpdateTime = UpdateTime")
        shop.turn_until(lambda: states() == [State.QUEUED])

    def test_the_watermark_passes_rows_that_were_read_early(
        self, foreign: Callable[..., Source], mariadb: MariaDb
    ) -> None:
        """Though no other row comes. Each look reads again what lies behind the watermark."""
        shop = Shop(foreign(process=False), 6, "name = name")
        run_as_owner(mariadb, INSERT.format(uid="a"), INSERT.format(uid="b"))
        shop.turn_until(lambda: len(states()) == 2)
        last_key = max(int(row.key) for row in Record.objects.all())
        shop.turn_until(lambda: [row.key for row in models.Watermark.objects.all()] == [last_key])
        assert {row.kind for row in models.Run.objects.all()} == {"changes"}
        assert sum(row.read for row in models.Run.objects.all()) == 2

    def test_an_entry_stays_open_until_its_row_was_read(
        self, foreign: Callable[..., Source], mariadb: MariaDb
    ) -> None:
        shop = Shop(foreign(process=False), LAG, "name = name")
        shop.change(mapping="name = name.first")
        run_as_owner(mariadb, INSERT.format(uid="a"))
        shop.turn_until(RecoveryEntry.objects.exists)
        assert states() == [State.DEAD]
        shop.change(mapping="name = name")
        assert actions.retry([RecoveryEntry.objects.get().pk], "ann") == 1
        entry = RecoveryEntry.objects.get()
        assert (entry.state, entry.handled_by) == (RecoveryEntry.State.OPEN, "ann")
        shop.turn_until(lambda: states() == [State.QUEUED])


class TestClocks:
    def test_what_changed_after_a_poller_whose_clock_was_ahead(
        self,
        foreign: Callable[..., Source],
        mariadb: MariaDb,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        shop = Shop(foreign(), LAG, "name = name")
        run_as_owner(mariadb, INSERT.format(uid="a"))
        made = ids.new
        with monkeypatch.context() as patch:
            patch.setattr(ids, "new", lambda bucket: made(bucket) + 10**12)  # days ahead
            shop.turn_until(lambda: states() == [State.QUEUED])
        shop.confirm_all()
        first = Record.objects.get()
        shop.start()
        run_as_owner(mariadb, "UPDATE `lead` SET name = 'new'", INSERT.format(uid="b"))
        shop.turn_until(lambda: states() == [State.QUEUED] * 2)
        row = Record.objects.get(pk=first.pk)
        assert row.version == first.version + 1
        # One order, or two: a second of the source's clock may have ended between the statements.
        orders = [claimed.data for claimed in iter(MainQueue("sales").claim, None)]
        versions = {entry.request.version for order in orders for entry in order.entries}
        assert row.version in versions


def reasons() -> dict[str, str]:
    entries = RecoveryEntry.objects.filter(state=RecoveryEntry.State.OPEN)
    return {entry.key: entry.reason for entry in entries}


class TestOneBadRow:
    """Three rows, of which the second cannot be carried: the others are."""

    def rows(self, mariadb: MariaDb, *statements: str) -> None:
        run_as_owner(mariadb, *(INSERT.format(uid=each) for each in "abc"), *statements)

    def test_a_duration_is_text(self, foreign: Callable[..., Source], mariadb: MariaDb) -> None:
        source = foreign()
        run_as_owner(mariadb, "ALTER TABLE `lead` ADD COLUMN spent TIME")
        times = zip("abc", ("00:00:05", "26:10:00", "-01:02:03"), strict=True)
        self.rows(
            mariadb, *(f"UPDATE `lead` SET spent = '{time}' WHERE uid = '{u}'" for u, time in times)
        )
        shop = Shop(source, LAG, "spent = spent", value_columns=["spent"])
        shop.turn_until(lambda: states() == [State.QUEUED] * 3)
        orders = [claimed.data for claimed in iter(MainQueue("sales").claim, None)]
        sent = [entry.request.fields["spent"] for order in orders for entry in order.entries]
        assert sorted(sent) == ["-01:02:03", "00:00:05", "26:10:00"]

    def test_a_version_beyond_63_bits(
        self, foreign: Callable[..., Source], mariadb: MariaDb
    ) -> None:
        source = foreign()
        run_as_owner(
            mariadb, "ALTER TABLE `lead` MODIFY version BIGINT UNSIGNED NOT NULL DEFAULT 1"
        )
        self.rows(mariadb, f"UPDATE `lead` SET version = {2**63 + 5} WHERE uid = 'b'")
        shop = Shop(source, LAG, "name = name", version_column="version")
        shop.turn_until(lambda: states() == [State.QUEUED, State.DEAD, State.QUEUED])
        (reason,) = reasons().values()
        assert reason.startswith(f"The version {2**63 + 5} is no whole number")
        # Corrected and tried again, it is carried.
        run_as_owner(mariadb, "UPDATE `lead` SET version = 7 WHERE uid = 'b'")
        actions.retry([RecoveryEntry.objects.get().pk], "ann")
        shop.turn_until(lambda: states() == [State.QUEUED] * 3)

    def test_a_long_key(self, foreign: Callable[..., Source], mariadb: MariaDb) -> None:
        source = foreign()
        run_as_owner(mariadb, "ALTER TABLE `lead` ADD COLUMN code VARCHAR(200) NOT NULL DEFAULT ''")
        self.rows(
            mariadb,
            f"UPDATE `lead` SET code = IF(uid = 'b', '{'b' * 150}', uid)",
            "ALTER TABLE `lead` ADD UNIQUE (code)",
        )
        shop = Shop(source, LAG, "name = name", key_column="code")
        shop.turn_until(lambda: states() == [State.QUEUED, State.DEAD, State.QUEUED])
        ((key, reason),) = reasons().items()
        assert (len(key), key[:100]) == (128, "b" * 100)
        assert reason == "The key has 150 characters, and at most 128 can be carried."

    def test_a_value_that_the_driver_cannot_read(
        self, foreign: Callable[..., Source], mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Such as a date of a year that Python does not know."""
        source = foreign()
        self.rows(mariadb, "UPDATE `lead` SET name = 'odd' WHERE uid = 'b'")
        read = _Select._read

        def odd(select: _Select, statement: str, parameters: list[Any]) -> list[Row]:
            rows = read(select, statement, parameters)
            if any(row.values.get("name") == "odd" for row in rows):
                raise ValueError("year 0 is out of range")
            return rows

        monkeypatch.setattr(_Select, "_read", odd)
        shop = Shop(source, LAG, "name = name", version_column="version")
        shop.turn_until(lambda: states() == [State.QUEUED, State.DEAD, State.QUEUED])
        assert list(reasons().values()) == ["A value of the row cannot be read: ValueError."]
        monkeypatch.undo()
        actions.retry([RecoveryEntry.objects.get().pk], "ann")
        shop.turn_until(lambda: states() == [State.QUEUED] * 3)

    def test_one_that_the_platforms_database_refuses(
        self, foreign: Callable[..., Source], mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source = foreign()
        self.rows(mariadb)
        made = store._store_once

        def refusing(this: Round, new_ids: Any) -> StoredRound:
            if any(each.request.fields.get("uid") == "b" for each in this.row_requests):
                raise DataError("odd")
            return made(this, new_ids)

        monkeypatch.setattr(store, "_store_once", refusing)
        shop = Shop(source, LAG, "uid = uid")
        shop.turn_until(lambda: states() == [State.QUEUED, State.DEAD, State.QUEUED])
        assert list(reasons().values()) == ["The row cannot be stored: DataError."]

    def test_rows_without_a_time_are_counted(
        self, foreign: Callable[..., Source], mariadb: MariaDb
    ) -> None:
        source = foreign("DATETIME(6)")
        run_as_owner(
            mariadb, "ALTER TABLE `lead` MODIFY UpdateTime DATETIME(6) NULL DEFAULT NOW(6)"
        )
        self.rows(mariadb, "UPDATE `lead` SET UpdateTime = NULL WHERE uid = 'b'")
        shop = Shop(source, LAG, "name = name", zone="+08:00")
        shop.turn_until(lambda: states() == [State.QUEUED] * 2)
        assert shop.facts().without_time == 1
        presence.policies.report({shop.row.pk: shop.facts()})
        assert of_flows.report_conditions() == {}
        alert = Alert.objects.get(key=f"crm.source:{shop.row.pk}")
        assert "have no time" in str(alert.subject)

    def test_bits_are_numbers(self, foreign: Callable[..., Source], mariadb: MariaDb) -> None:
        source = foreign()
        run_as_owner(
            mariadb, "ALTER TABLE `lead` ADD COLUMN active BIT(1), ADD COLUMN flags BIT(9)"
        )
        self.rows(mariadb, "UPDATE `lead` SET active = uid = 'a', flags = 257")
        shop = Shop(source, LAG, "a = active\nf = flags", value_columns=["active", "flags"])
        shop.turn_until(lambda: states() == [State.QUEUED] * 3)
        orders = [claimed.data for claimed in iter(MainQueue("sales").claim, None)]
        sent = [entry.request.fields for order in orders for entry in order.entries]
        assert sent == [{"a": 1, "f": 257}, {"a": 0, "f": 257}, {"a": 0, "f": 257}]
