"""What is archived is sent again: brought back whole, once, and not archived again at once."""

import signal
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection, connections
from django.test import Client
from django.urls import reverse

from msgplatform.core.archive import copying
from msgplatform.core.data import sql
from msgplatform.core.errors import Unavailable
from msgplatform.jobs.bulk import BulkRunner
from msgplatform.jobs.models import BulkJob
from msgplatform.messages import engine
from msgplatform.models import Biz
from notify.actions import actions
from notify.archive.retention import KEYS
from notify.messages.index import MESSAGES
from notify.models import (
    Attempt,
    BizMsg,
    BizReceive,
    ColdAttempt,
    ColdBizMsg,
    ColdReceiveMsg,
    IdempotencyKey,
    ReceiveMsg,
    RestoredMsg,
)
from tests.servers import Servers
from tests.support.archive_support import (
    Status,
    archive,
    cold_database,
    cold_ids,
    everything,
    hot_ids,
    message,
    place,
)
from tests.support.children import child
from tests.support.notify_rows import subscription

__all__ = ["place"]

pytestmark = [
    pytest.mark.both_databases,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("work_redis"),
]


@pytest.fixture
def row() -> BizReceive:
    return subscription(Biz.objects.create(name="orders"))


def days_ago(days: float) -> str:
    return (sql.now() - timedelta(days=days)).isoformat()


def finish(action: str, limit: int = 3, **given: object) -> int:
    """Step by step to the end, each step twice, as after a kill; how many were done in all."""
    filter = {name: str(value) for name, value in given.items()}
    cursor, done = "", 0
    for _ in range(1000):
        step = actions.ACTIONS[action].step(filter, cursor, limit)
        done += step.done + actions.ACTIONS[action].step(filter, cursor or step.cursor, limit).done
        cursor = step.cursor
        if not cursor:
            return done
    raise AssertionError("it does not end")


def sent_again() -> dict[int, list[tuple[int, int]]]:
    """Message → (status, generation) of each of its hot deliveries."""
    found: dict[int, list[tuple[int, int]]] = {}
    rows = ReceiveMsg.objects.order_by("id").values_list("msg_id", "status", "generation")
    for pk, status, generation in rows:
        found.setdefault(pk, []).append((status, generation))
    return found


def test_archived_ones_come_back_by_their_ids(row: BizReceive, place: str) -> None:
    """By a message's id or a delivery's; with all that belongs to them, and to be sent."""
    by_message = message(row, Status.EXHAUSTED, Status.DELIVERED, days=40, payload=bytes(range(9)))
    by_delivery = message(row, Status.POISON, Status.SKIPPED, days=40)
    left = message(row, Status.EXHAUSTED, days=40)
    hot = message(row, Status.EXHAUSTED, days=2)
    archive()
    before = everything()
    (delivery,) = ColdReceiveMsg.objects.filter(msg_id=by_delivery, status=Status.POISON)
    ids = f"{by_message}, {delivery.pk}, {hot}"
    assert actions.ACTIONS["resend"].count({"ids": ids}).count == 3
    assert finish("resend", 2, ids=ids) == 3
    assert sent_again() == {
        by_message: [(Status.PENDING, 1), (Status.DELIVERED, 0)],
        by_delivery: [(Status.PENDING, 1), (Status.SKIPPED, 0)],
        hot: [(Status.PENDING, 1)],
    }
    after = everything()
    for pk in (by_message, by_delivery):
        assert (after[pk][0], after[pk][2]) == (before[pk][0], before[pk][2])  # payload, attempts
    assert after[left] == before[left]
    assert finish("resend", 2, ids=ids) == 0  # they are pending already


def test_delivered_ones_are_sent_again_by_their_ids(row: BizReceive) -> None:
    pk = message(row, Status.DELIVERED, days=20)
    archive()
    assert finish("resend", ids=pk) == 0
    assert finish("resend", ids=pk, status="delivered") == 1
    assert sent_again() == {pk: [(Status.PENDING, 1)]}


def test_a_replay_brings_archived_ones_back(row: BizReceive, place: str) -> None:
    old = [message(row, Status.DELIVERED, days=20, event_type=f"a.n{n % 2}") for n in range(8)]
    message(row, Status.DELIVERED, days=60)
    archive()
    young = [message(row, Status.DELIVERED, days=1, event_type="a.n1") for _ in range(2)]
    given = {"subscription": str(row.pk), "since": days_ago(30), "event_type": "a.n1"}
    expected = [*old[1::2], *young]
    assert actions.ACTIONS["replay"].count(given).count == len(expected)
    assert finish("replay", 2, **given) == len(expected)
    assert sent_again() == {pk: [(Status.PENDING, 1)] for pk in expected}


def test_a_replay_of_what_never_succeeded_brings_archived_ones_back(row: BizReceive) -> None:
    failed = message(row, Status.EXHAUSTED, days=40)
    message(row, Status.DELIVERED, days=40)
    archive()
    assert finish("replay_failed", biz="orders", since=days_ago(50)) == 1
    assert sent_again() == {failed: [(Status.PENDING, 1)]}


def test_the_archiver_does_not_take_it_away_at_once(row: BizReceive, place: str) -> None:
    """It stays as long as if it had been accepted when it came back, then it goes for good."""
    well = message(row, Status.EXHAUSTED, days=300, key="k-1")
    failed = message(row, Status.EXHAUSTED, days=300)
    archive()
    IdempotencyKey.objects.all().delete()  # it was kept long enough
    finish("resend", ids=f"{well} {failed}")
    archive()
    assert hot_ids() == [well, failed]
    ReceiveMsg.objects.filter(msg_id=well).update(status=Status.DELIVERED, http_status=204)
    ReceiveMsg.objects.filter(msg_id=failed).update(status=Status.EXHAUSTED)
    archiver = archive()
    assert hot_ids() == [well, failed]

    for days, hot in ((8, [failed]), (31, [])):
        past = sql.now() - timedelta(days=days)
        RestoredMsg.objects.update(restored_at=past, look_at=past + timedelta(days=7))
        archiver._next_round.at_once()
        archive(archiver)  # one that has walked past their ids
        assert hot_ids() == hot
    assert not RestoredMsg.objects.exists()
    assert cold_ids() == sorted([well, failed])
    assert ColdReceiveMsg.objects.get(msg_id=well).http_status == 204
    assert (ColdReceiveMsg.objects.count(), ColdAttempt.objects.count()) == (2, 2)
    assert ColdBizMsg.objects.get(id=well).key == "k-1"
    assert KEYS.tables[0].rows().count() == 0
    assert finish("resend", ids=failed) == 1  # and back once more
    assert sent_again() == {failed: [(Status.PENDING, 2)]}


@pytest.mark.parametrize("point", ["after_copy", "before_commit"])
def test_a_kill_leaves_it_archived_or_to_be_sent(row: BizReceive, place: str, point: str) -> None:
    pks = [message(row, Status.EXHAUSTED, days=40) for _ in range(20)]
    archive()
    before = everything()
    given = {"biz": "orders", "since": days_ago(50)}
    job = BulkJob.objects.create(
        flow="notify", action="replay_failed", filter=given, created_by="x"
    )
    program = """
from msgplatform.jobs.bulk import BulkRunner
say('on')
runner = BulkRunner()
while runner.turn():
    pass
"""
    with child(program, MSGPLATFORM_FAILPOINT=f"restore_{point}") as killed:
        assert killed.heard() == "on"
        assert killed.process.wait(timeout=300) == -signal.SIGKILL
    assert everything() == before
    assert (hot_ids(), Attempt.objects.count(), RestoredMsg.objects.count()) == ([], 0, 0)
    BulkJob.objects.update(lease_until=sql.now() - timedelta(seconds=1))
    runner = BulkRunner()
    while runner.turn():
        pass
    job.refresh_from_db()
    assert (job.state, job.done) == (BulkJob.State.DONE, 20)
    assert sent_again() == {pk: [(Status.PENDING, 1)] for pk in pks}


def test_several_at_once_bring_it_back_once(row: BizReceive, place: str) -> None:
    """Two jobs over the same messages, and an archiver."""
    pks = [message(row, Status.EXHAUSTED, days=40) for _ in range(120)]
    archive()
    program = f"""
def work(number):
    from msgplatform.core.data import sql
    from notify.archive.archiver import Archiver
    from notify.actions import actions
    if number == 2:
        archiver = Archiver()
        for _ in range(5):
            archiver._next_round.at_once()
            archiver.turn()
        return archiver.heartbeat.done
    given = {{"ids": "{" ".join(map(str, pks))}"}}
    cursor, done = actions.ACTIONS["resend"].step(given, "", 20).cursor, 0
    while cursor:
        step = actions.ACTIONS["resend"].step(given, cursor, 20)
        cursor, done = step.cursor, done + step.done
    return done
together(work, 3)
"""
    with child(program) as started:
        first, second, archived = started.heard()
    assert (first + second, archived) == (120, 0)
    assert sent_again() == {pk: [(Status.PENDING, 1)] for pk in pks}


def test_what_is_half_gone_from_the_archive_is_not_brought_back_in_part(
    row: BizReceive, monkeypatch: pytest.MonkeyPatch
) -> None:
    pk = message(row, Status.EXHAUSTED, days=40)
    archive()
    copy = copying.Part.copy

    def purged_meanwhile(part: copying.Part) -> None:
        copy(part)
        if part.target is ReceiveMsg:
            ReceiveMsg.objects.filter(msg_id=pk).update(error="other than in the archive")

    monkeypatch.setattr(copying.Part, "copy", purged_meanwhile)
    with pytest.raises(copying.NotVerified):
        finish("resend", ids=pk)
    assert (hot_ids(), sent_again()) == ([], {})


def test_a_row_of_the_archive_that_changes_meanwhile_is_copied_again(
    row: BizReceive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A payload is sealed with a new key, or somebody's data is erased."""
    pk = message(row, Status.EXHAUSTED, days=40)
    archive()
    copy = copying.Part.copy
    changed: list[int] = []

    def change_once(part: copying.Part) -> None:
        copy(part)
        if part.target is ReceiveMsg and not changed:
            changed.append(ReceiveMsg.objects.filter(msg_id=pk).update(error="of before"))

    monkeypatch.setattr(copying.Part, "copy", change_once)
    finish("resend", ids=pk)
    assert changed == [1]
    assert sent_again() == {pk: [(Status.PENDING, 1)]}


def test_a_search_shows_it_as_it_is_now(row: BizReceive, place: str) -> None:
    pk = message(row, Status.EXHAUSTED, days=40, key="k-1")
    archive()
    IdempotencyKey.objects.all().delete()
    finish("resend", ids=pk)
    assert [hit.id for hit in engine.find(MESSAGES, {"key": "k-1"}, "", 5).hits] == [str(pk)]
    assert engine.find(MESSAGES, {"status": "exhausted"}, "", 5).hits == []
    (hit,) = engine.find(MESSAGES, {"status": "pending"}, "", 5).hits
    assert (hit.id, hit.state) == (str(pk), "pending")


def test_its_page_says_that_it_was_brought_back(row: BizReceive, admin_client: Client) -> None:
    pk = message(row, Status.EXHAUSTED, days=40)
    address = reverse("console:message", args=["notify", str(pk)])
    archive()
    page = admin_client.get(address).content.decode()
    assert "Brought back" not in page
    assert "Yes, send it again" in page

    asked = admin_client.get(reverse("console:bulk-flow", args=["notify"]), {
        "action": "resend", "ids": str(pk), "count": "1",
    }).content.decode()  # fmt: skip
    assert "<b>1</b> matches" in asked

    finish("resend", ids=pk)
    page = admin_client.get(address).content.decode()
    assert "Brought back from the archive" in page
    assert "sent again 1 time" in page
    ReceiveMsg.objects.update(status=Status.DELIVERED)
    past = sql.now() - timedelta(days=8)
    RestoredMsg.objects.update(restored_at=past, look_at=past)
    archive()
    assert not BizMsg.objects.exists()
    assert "Brought back from the archive" in admin_client.get(address).content.decode()


def test_an_archive_that_is_away_is_said_and_waited_for(
    row: BizReceive, servers: Servers, tmp_path: Path, admin_client: Client
) -> None:
    pk = message(row, Status.EXHAUSTED, days=40)
    with cold_database(tmp_path, servers.mariadb() if connection.vendor == "mysql" else None):
        archive()
        connections["cold"].close()
        settings = connections["cold"].settings_dict
        name, settings["NAME"] = settings["NAME"], "/no/such/place"
        address = reverse("console:bulk-flow", args=["notify"])
        said = admin_client.post(address, {"action": "resend", "ids": str(pk), "count": "1"})
        assert "The archive cannot be read at present" in said.content.decode()
        cursor = actions.ACTIONS["resend"].step({"ids": str(pk)}, "", 5).cursor
        with pytest.raises(Unavailable):
            actions.ACTIONS["resend"].step({"ids": str(pk)}, cursor, 5)
        connections["cold"].close()
        settings["NAME"] = name
        assert actions.ACTIONS["resend"].step({"ids": str(pk)}, cursor, 5).done == 1
    assert hot_ids() == [pk]
