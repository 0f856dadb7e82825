from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db.models.functions import Now
from django.utils import timezone

from crmsync.flow import FLOW
from crmsync.models import Operation, Policy, Record, RecoveryEntry
from crmsync.recovery import entries
from msgplatform.core.data import sql
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.bulk_pages import Counted
from tests.integration.crmsync import sync_support
from tests.integration.crmsync.recovery_steps import (
    confirmed,
    dead,
    longer_ago,
    record,
    request,
    send_what_is_due,
)
from tests.integration.crmsync.sync_support import Customers
from tests.support import small_pages

pytestmark = pytest.mark.django_db(transaction=True)
_State, _Entry = Record.State, RecoveryEntry.State
flow = FLOW


@pytest.fixture
def customers(tmp_path: Path) -> Customers:
    return Customers(tmp_path)


@pytest.fixture
def policy(customers: Customers) -> Policy:
    return sync_support.policy(customers.crm())


@pytest.fixture
def other() -> Policy:
    return sync_support.policy(sync_support.crm("support"))


def run(action: str, limit: int = 2, **given: Any) -> int:
    """The whole job, each of its steps twice as after a kill: nothing is done twice, so that what
    all of them did is what there was to do."""
    done, cursor = 0, ""
    while True:
        done += flow.action(action).step(given, cursor, limit).done
        step = flow.action(action).step(given, cursor, limit)
        done += step.done
        cursor = step.cursor
        if not cursor:
            return done


def keys(state: int) -> list[str]:
    return sorted(Record.objects.filter(state=state).values_list("key", flat=True))


def settle() -> None:
    """What was made is older than a job that begins now."""
    longer_ago()
    RecoveryEntry.objects.update(created_at=Now() - timedelta(seconds=5))


def test_retry_takes_every_open_entry(policy: Policy, other: Policy) -> None:
    for key in "abcde":
        dead(policy, key)
    dead(other, "f")
    dead(policy, "given-up", state=_Entry.DISMISSED)
    settle()

    assert flow.action("resend").count({}).count == 6
    assert run("resend") == 6

    assert keys(_State.WAITING) == list("abcdef")
    assert keys(_State.DEAD) == ["given-up"]
    assert flow.action("resend").count({}).count == 0


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"crm": "sales"}, "abc"),
        ({"crm": "support"}, "d"),
        ({"policy": "leads/sales"}, "abc"),
        ({"error_class": "invalid"}, "b"),
        ({"crm": "sales", "error_class": "retry"}, "ac"),
        ({"since": 120}, "acd"),
        ({"until": 120}, "b"),
        ({"crm": "support", "until": 120}, ""),
    ],
)
def test_what_the_filters_choose(
    policy: Policy, other: Policy, given: dict[str, Any], found: str
) -> None:
    for key, error in (("a", "retry"), ("b", "invalid"), ("c", "retry")):
        dead(policy, key, error)
    dead(other, "d")
    settle()
    RecoveryEntry.objects.filter(key="b").update(created_at=Now() - timedelta(minutes=10))
    for name in given.keys() & {"since", "until"}:
        moment = timezone.localtime(sql.now() - timedelta(seconds=given[name]))
        given = {**given, name: f"{moment:%Y-%m-%d %H:%M:%S}"}

    assert flow.action("dismiss").count(given).count == len(found)
    assert run("dismiss", limit=1, **given) == len(found)

    assert keys(_State.DISMISSED) == list(found)


def test_a_selection_by_ids(policy: Policy) -> None:
    entries = [dead(policy, key)[1] for key in "abcd"]
    settle()
    given = ", ".join(str(entry.pk) for entry in entries[1:])

    assert flow.action("resend").count({"ids": given}).count == 3
    assert run("resend", ids=given) == 3

    assert keys(_State.WAITING) == ["b", "c", "d"]


def test_what_dies_again_waits_for_another_job(policy: Policy) -> None:
    for key in "abc":
        dead(policy, key)
    settle()
    begun = flow.action("resend").step({}, "", 2)
    first = flow.action("resend").step({}, begun.cursor, 2)
    dead(policy, "later")

    last = flow.action("resend").step({}, first.cursor, 2)

    assert (first.done, last.done, last.cursor) == (2, 1, "")
    assert keys(_State.DEAD) == ["later"]


def test_pages_read_a_bounded_number_of_rows(
    policy: Policy, other: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_pages.set_page_size(monkeypatch, 3)
    for number in range(10):
        dead(policy, f"key-{number}", "retry" if number % 5 else "invalid")
        confirmed(other, f"key-{number}")
    settle()

    assert run("resend", error_class="invalid") == 2
    assert run("replay", crm="support", key="key-7") == 1
    assert run("replay", crm="support") == 10


def test_resend_sends_confirmed_records_again(policy: Policy, customers: Customers) -> None:
    for key in ("a", "b", "c,|d"):
        confirmed(policy, key)
    _dead, entry = dead(policy, "e")
    flying = request("f")
    record(sync_support.new_operation(policy, [flying]), flying, _State.QUEUED)
    confirmed_elsewhere = confirmed(sync_support.policy(policy.crm, "more"), "a")
    Record.objects.filter(key="b").update(state=_State.DISMISSED)
    settle()

    assert flow.action("replay").count({"policy": "leads/sales"}).count == 3
    assert run("replay", limit=1, policy="leads/sales") == 3

    assert keys(_State.WAITING) == ["a", "c,|d", "e"]
    assert keys(_State.DISMISSED) == ["b"]
    confirmed_elsewhere.refresh_from_db()
    assert confirmed_elsewhere.state == _State.CONFIRMED
    a = Record.objects.get(policy_id=policy.pk, key="a")
    assert (a.sent_version, a.sent_digest) == (0, "")
    operation = Operation.objects.get(pk=a.operation_id)
    assert (operation.confirmed, operation.end_at, operation.result) == (0, None, None)
    entry.refresh_from_db()
    assert entry.state == _Entry.RETRIED

    send_what_is_due(policy)

    assert customers.rows().keys() == {"a", "c,|d", "e"}
    operation.refresh_from_db()
    assert (operation.confirmed, operation.result) == (1, 1)


def test_resend_goes_through_the_policies_of_a_crm(policy: Policy) -> None:
    more = sync_support.policy(policy.crm, "more")
    for key in ("y", "z"):
        confirmed(policy, key)
    for key in ("a", "b", "z"):
        confirmed(more, key)
    settle()

    assert run("replay", limit=1, crm="sales") == 5

    assert keys(_State.WAITING) == ["a", "b", "y", "z", "z"]


def test_what_changed_since_the_job_began_is_not_sent_again(policy: Policy) -> None:
    """Also when it changed after its page was read."""
    begun = sql.now()
    a = confirmed(policy, "a")
    Record.objects.update(updated_at=begun + timedelta(seconds=1))

    assert entries.resend([a.pk], begun, "ann") == 0

    assert keys(_State.CONFIRMED) == ["a"]


def test_resend_has_rows_read_again_whose_operation_is_gone(policy: Policy) -> None:
    a = confirmed(policy, "a")
    Operation.objects.all().delete()
    settle()

    assert run("replay", crm="sales") == 1

    a.refresh_from_db()
    assert (a.state, a.version, a.sent_version, a.sent_digest) == (_State.CONFIRMED, -1, 0, "")
    policy.refresh_from_db()
    assert policy.requested == Policy.Kind.SWEEP


@pytest.mark.parametrize(
    ("action", "given", "field"),
    [
        ("replay", {}, "crm"),
        ("replay", {"key": "a"}, "crm"),
        ("replay", {"crm": "nobody"}, "crm"),
        ("resend", {"policy": "leads/nobody"}, "policy"),
        ("resend", {"policy": "leads"}, "policy"),
        ("resend", {"key": "a"}, "key"),
        ("resend", {"since": "yesterday"}, "since"),
        ("resend", {"since": "2026-11-21", "until": "2026-11-20"}, "until"),
        ("resend", {"ids": "1, x"}, "ids"),
        ("dance", {}, "action"),
    ],
)
def test_wrong_filters_are_refused_at_once(
    policy: Policy, action: str, given: dict[str, Any], field: str
) -> None:
    for call in (
        lambda: flow.action(action).count(given),
        lambda: flow.action(action).step(given, "", 10),
    ):
        with pytest.raises(InvalidInput) as caught:
            call()
        assert caught.value.field == field


@pytest.mark.parametrize("action", ["resend", "replay"])
def test_the_preview_and_the_outcome(policy: Policy, action: str) -> None:
    for key in "abcd":
        dead(policy, key)
    settle()
    given = {"crm": "sales"}
    preview = flow.action(action).preview(given)
    assert preview.counted == Counted(4)
    (group,) = preview.groups
    assert group.count == 4
    assert str(policy) in group.title
    assert len(preview.sample) == 4
    dead(policy, "later")
    RecoveryEntry.objects.filter(key="later").update(created_at=Now() + timedelta(seconds=5))
    Record.objects.filter(key="later").update(updated_at=Now() + timedelta(seconds=5))
    noted: list[str] = []
    step = flow.action(action).step(
        given, preview.cursor, 10, lambda ids: noted.extend(map(str, ids))
    )
    assert (step.done, len(noted)) == (4, 4)
    assert flow.action(action).outcome(noted) == dict.fromkeys(noted, "waiting")
    states = {"a": _State.CONFIRMED, "b": _State.DEAD, "c": _State.DISMISSED}
    for key, state in states.items():
        Record.objects.filter(key=key).update(state=state)
    found = flow.action(action).outcome([*noted, str(2**62)])
    assert Counter(found.values()) == {"arrived": 1, "failed": 2, "waiting": 1}
    arrived = [pk for pk, ending in found.items() if ending == "arrived"]
    (hit,) = flow.action(action).lines([*arrived, str(2**62)])
    assert "confirmed" in hit.state


def test_what_is_to_be_read_again_still_waits(policy: Policy) -> None:
    """Its state is that of before, until the poller has read it."""
    dead(policy, "a")
    settle()
    noted: list[str] = []
    begun = flow.action("resend").step({"crm": "sales"}, "", 10)
    flow.action("resend").step(
        {"crm": "sales"}, begun.cursor, 10, lambda ids: noted.extend(map(str, ids))
    )
    Record.objects.update(state=_State.DEAD, version=-1, digest="")
    assert flow.action("resend").outcome(noted) == dict.fromkeys(noted, "waiting")
    Record.objects.update(version=1)
    assert flow.action("resend").outcome(noted) == dict.fromkeys(noted, "failed")
