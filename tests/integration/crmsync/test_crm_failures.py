"""Dead records on the page Failures: each counts while its entry of the recovery log is open."""

import pytest
from django.test import Client

from crmsync.adapters.outcomes import Invalid, Ok, Outcome, Retry
from crmsync.flow import FLOW
from crmsync.models import Policy, Record, RecoveryEntry
from crmsync.recovery import entries
from crmsync.recovery.entries import resend
from msgplatform.core.data import sql
from msgplatform.core.flows.bulk_pages import Counted
from msgplatform.doors.templatetags.pages import address
from msgplatform.monitor import failure_groups
from tests.integration.crmsync import sync_support as sync
from tests.integration.crmsync.handler_marks import mark
from tests.support.bulk_form import preview
from tests.support.failure_times import tick

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def policy() -> Policy:
    made = sync.crm("sales", "http", settings={"url": "http://127.0.0.1/"}, retry_seconds=[])
    return sync.policy(made)


def counted() -> dict[str, int]:
    return {str(failure.answer): failure.count for failure in FLOW.health.failures()}


def open_entries() -> list[int]:
    rows = RecoveryEntry.objects.filter(state=RecoveryEntry.State.OPEN).order_by("id")
    return list(rows.values_list("id", flat=True))


def acknowledge() -> int:
    (seen,) = FLOW.health.failures()
    snapshot = failure_groups.GroupSnapshot(seen.id, seen.lost, seen.last_at)
    count = failure_groups.acknowledge_group(FLOW, snapshot, "known", "ann")
    tick()
    return count


def test_they_count_by_error_until_somebody_decides(policy: Policy) -> None:
    queued = sync.on_its_way(policy, sync.requests("abcd"))
    no = Invalid("phone", "+8613812345678 is no number")
    mark(queued, no, no, Retry(0, "busy"), Ok("r-d"))
    assert counted() == {"invalid": 2, "retry": 1}
    mark(queued, no, no, Retry(0, "busy"), Ok("r-d"))
    assert counted() == {"invalid": 2, "retry": 1}, "marked again, nothing is counted twice"
    failure = FLOW.health.failures()[0]
    assert failure.where == "sales"
    assert "no number" in failure.said
    assert "13812345678" not in failure.said, "personal data are masked"
    first, second, third = open_entries()
    entries.resend_entries([first], "ann")
    entries.dismiss([third], "ann")
    assert counted() == {"invalid": 1}
    entries.resend_entries([first], "ann")
    assert counted() == {"invalid": 1}, "it was closed already"
    resend([queued.record("b").pk], sql.now(), "ann")
    assert counted() == {}
    assert open_entries() == []
    assert second


def test_confirmed_after_all(policy: Policy) -> None:
    queued = sync.on_its_way(policy, sync.requests("ab"))
    mark(queued, Invalid("", "no"))
    assert counted() == {"invalid": 2}
    mark(queued, Ok("r-a"), Invalid("", "no"))
    assert counted() == {"invalid": 1}


def test_what_was_acknowledged_is_not_sent_with_the_group(
    policy: Policy, admin_client: Client
) -> None:
    mark(sync.on_its_way(policy, sync.requests("ab")), Invalid("", "no"))
    assert acknowledge() == 2
    mark(sync.on_its_way(policy, sync.requests("c")), Invalid("", "no"))
    (left,) = FLOW.health.failures()
    shown = preview(admin_client, "crmsync", action="resend", **left.filter)
    assert (left.count, shown.context["counted"]) == (1, Counted(1))
    step = FLOW.action("resend").step(left.filter, "", 10)
    while step.cursor:
        step = FLOW.action("resend").step(left.filter, step.cursor, 10)
    assert counted() == {}
    assert len(open_entries()) == 2


def test_a_record_that_dies_again_after_an_acknowledgement_counts_once(policy: Policy) -> None:
    queued, no = sync.on_its_way(policy, sync.requests("a")), Invalid("", "no")

    def mark_anew(outcome: Outcome) -> dict[str, int]:
        Record.objects.update(state=Record.State.QUEUED, claimed_by=queued.order.claim)
        mark(queued, outcome)
        return counted()

    mark(queued, no)
    assert acknowledge() == 1
    assert [mark_anew(no), mark_anew(no)] == [{"invalid": 1}] * 2, "it is one dead record"
    assert (mark_anew(Ok("r-a")), open_entries()) == ({}, [])


def test_its_filter_means_these(policy: Policy, admin_client: Client) -> None:
    queued = sync.on_its_way(policy, sync.requests("abc"))
    mark(queued, Invalid("", "no"), Invalid("", "no"), Retry(0, "busy"))
    failure = FLOW.health.failures()[0]
    shown = preview(admin_client, "crmsync", action=failure.action, **failure.filter)
    assert shown.context["counted"] == Counted(2)
    listed = admin_client.get(address(failure.list_page)).context["cl"]
    assert listed.result_count == 2
