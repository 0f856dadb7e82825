"""Failures of SMS: which messages count, until they are sent again."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from django.db.models import F
from django.test import Client
from django.utils import translation
from pytest_django import Settings

from gateway.connections import sms_redis
from gateway.flow import FLOW
from gateway.forwarder.forwarder import Forwarder
from gateway.lifecycle import keys
from gateway.models import SgipMt, SmsGateway
from gateway.monitor import conditions
from gateway.pump import late_reports
from gateway.pump.pump import Pump
from msgplatform.core.flows.bulk_pages import Counted
from msgplatform.core.flows.health import Failure
from msgplatform.doors.templatetags.pages import address
from msgplatform.messages import engine
from msgplatform.models import Alert, FailureGroup, MinuteCounter
from msgplatform.monitor import failure_groups
from msgplatform.monitor.watch import of_flows
from tests.integration.gateway.sms_messages import archived
from tests.support import sms_rows
from tests.support.bulk_form import preview
from tests.support.failure_times import tick
from tests.support.sms_rows import Caller, report, respond, send, submit

shop = sms_rows.shop
pytestmark = pytest.mark.django_db(transaction=True)


def counted() -> dict[str, int]:
    return {str(failure.answer): failure.count for failure in FLOW.health.failures()}


def unknown(shop: Caller) -> tuple[str, int]:
    """A message without a Report: its id and its Submit's number."""
    message = send(shop.biz)
    (seqno,) = submit(SmsGateway.objects.get().pk, wait=1e-6)[message]
    respond(seqno)
    settle()
    return message, seqno


def settle() -> None:
    Forwarder().turn()
    Pump().turn()


def resend(**filter: str) -> int:
    done, cursor = 0, ""
    while True:
        step = FLOW.action("resend").step({"since": "2026-01-01", **filter}, cursor, 10)
        done, cursor = done + step.done, step.cursor
        if not cursor:
            return done


def test_refused_expired_and_unknown_count_a_report_does_not(shop: Caller) -> None:
    archived(shop)
    archived(shop, error=25)
    archived(shop, state=2)
    archived(shop, result=5)
    archived(shop, result=5)
    unknown(shop)
    assert counted() == {"result 5": 2, "unknown": 1}
    (refused,) = [failure for failure in FLOW.health.failures() if failure.answer == "result 5"]
    assert refused.where == "unicom"
    assert refused.meaning == "Wrong parameter format"
    assert refused.said == ""


def test_the_group_s_own_filter_sends_it_and_nothing_else(
    shop: Caller, admin_client: Client
) -> None:
    archived(shop, result=5)
    archived(shop, result=5, to="13900000000")
    archived(shop, result=11)
    archived(shop, error=5)
    wanted = FLOW.health.failures()[0]
    assert (wanted.answer, wanted.count) == ("result 5", 2)
    assert datetime.fromisoformat(wanted.filter["since"]).tzinfo, "the job's page has any zone"
    shown = preview(admin_client, "sms", action=wanted.action, **wanted.filter)
    assert shown.context["counted"] == Counted(2)
    assert resend(**wanted.filter) == 2
    assert counted() == {"result 11": 1}
    assert resend(**wanted.filter) == 2, "as every time; they have their keys"
    assert counted() == {"result 11": 1}


def listed(client: Client, group: Failure) -> set[str]:
    """The ids in the list of a group's messages."""
    return {hit.id for hit in client.get(address(group.list_page)).context["found"].hits}


def test_the_group_s_list_has_its_messages_and_no_others(
    shop: Caller, admin_client: Client
) -> None:
    gateway = SmsGateway.objects.get()
    refused = {archived(shop, result=5), archived(shop, result=5)}
    other = archived(shop, result=5)
    SgipMt.objects.filter(pk=other).update(gateway_id=gateway.pk + 1)
    archived(shop, result=11)
    archived(shop, error=5)
    own = archived(shop, result=5)
    SgipMt.objects.filter(pk=own).update(result=0, error_code=0, error="no link")
    # It counts once it is archived.
    message = send(shop.biz)
    (seqno,) = submit(gateway.pk)[message]
    respond(seqno, 5)
    (group,) = [each for each in FLOW.health.failures() if each.answer == "result 5"]
    assert listed(admin_client, group) == refused
    with translation.override("zh-hans"):  # as the page Failures shows it
        title = failure_groups.answer_title("result 5")
    assert FLOW.action("resend").count({**group.filter, "answer": title}).count == len(refused)
    for answer, is_found in (("no link", True), ("result 99999", False), ("failed", False)):
        found = engine.find(FLOW.messages, {"answer": answer}, "", 10)
        assert [hit.id for hit in found.hits] == [own] * is_found, answer
    settle()
    silent, _seqno = unknown(shop)
    (group,) = [each for each in FLOW.health.failures() if each.answer == "unknown"]
    assert listed(admin_client, group) == {silent}


def test_what_was_acknowledged_is_not_listed_with_the_group(
    shop: Caller, admin_client: Client
) -> None:
    archived(shop, result=5)
    (seen,) = FLOW.health.failures()
    snapshot = failure_groups.GroupSnapshot(seen.id, seen.lost, seen.last_at)
    assert failure_groups.acknowledge_group(FLOW, snapshot, "known", "ann") == 1
    tick()
    new = archived(shop, result=5)
    (remaining,) = FLOW.health.failures()
    assert listed(admin_client, remaining) == {new}


def test_what_was_acknowledged_is_not_sent_with_the_group(
    shop: Caller, admin_client: Client
) -> None:
    archived(shop, result=5)
    archived(shop, result=5, to="13900000000")
    (seen,) = FLOW.health.failures()
    snapshot = failure_groups.GroupSnapshot(seen.id, seen.lost, seen.last_at)
    assert failure_groups.acknowledge_group(FLOW, snapshot, "known", "ann") == 2
    tick()
    archived(shop, result=5, to="13700000000")
    (left,) = FLOW.health.failures()
    shown = preview(admin_client, "sms", action="resend", **left.filter)
    assert (left.count, shown.context["counted"]) == (1, Counted(1))
    assert resend(**left.filter) == 1
    assert counted() == {}


def test_named_messages_are_sent_however_they_failed(shop: Caller) -> None:
    refused, (silent, _seqno), delivered = archived(shop, result=5), unknown(shop), archived(shop)
    ids = f"{refused},{silent},{delivered}"
    assert resend(ids=ids, state="unknown") == 1
    assert resend(ids=ids) == 2


def test_what_turns_out_otherwise_leaves_the_count_once(shop: Caller) -> None:
    _first, seqno = unknown(shop)
    second, other = unknown(shop)
    unknown(shop)
    assert counted() == {"unknown": 3}
    assert resend(state="unknown", ids=second) == 1
    assert counted() == {"unknown": 2}
    for number in (seqno, other):
        assert report(number) == "unmatched"
    assert late_reports.settle(10) == 2
    assert SgipMt.objects.filter(final="delivered").count() == 2
    assert counted() == {"unknown": 1}, "the one that was sent again had left it before"


def test_a_late_report_during_a_resend_is_subtracted_once(shop: Caller) -> None:
    message, seqno = unknown(shop)
    unknown(shop)
    reports: list[str] = []

    def settle_first(execute: Any, statement: str, *rest: Any) -> Any:
        """When the message's row is read."""
        if "sms_account" in str(statement) and not reports:  # it may be bytes
            reports.append(report(seqno))
            assert late_reports.settle(10) == 1
        return execute(statement, *rest)

    with connection.execute_wrapper(settle_first):
        assert resend(ids=message) == 1
    assert (reports, counted()) == (["unmatched"], {"unknown": 1})


def test_a_resend_whose_commit_has_no_answer_is_subtracted_once(shop: Caller) -> None:
    message, _other = archived(shop, result=5), archived(shop, result=5)
    errors = [OperationalError(2013, "Lost connection to server during query")]

    def lose_answer() -> None:
        raise errors.pop()

    def subtract(execute: Any, statement: str, *rest: Any) -> Any:
        if "UPDATE" in str(statement) and FailureGroup._meta.db_table in str(statement) and errors:
            transaction.on_commit(lose_answer)
        return execute(statement, *rest)

    with connection.execute_wrapper(subtract):
        assert resend(ids=message) == 1
    assert (errors, counted()) == ([], {"result 5": 1})


def test_a_gateway_at_which_everything_fails(shop: Caller, settings: Settings) -> None:
    pk = SmsGateway.objects.get().pk
    for _ in range(conditions.MIN_FAILED):
        archived(shop, result=5)
    of_flows.report_conditions()
    alert = Alert.objects.get(kind=conditions.FAILING, open_key__isnull=False)
    assert alert.key == f"sms.failing:{pk}"
    archived(shop)
    of_flows.report_conditions()
    assert not Alert.objects.filter(open_key__isnull=False).exists(), "one was delivered"
    MinuteCounter.objects.filter(name="delivered").delete()
    of_flows.report_conditions()
    assert Alert.objects.filter(open_key__isnull=False).exists()
    long_ago = F("minute") - timedelta(minutes=settings.SMS_FAILING_MINUTES + 2)
    MinuteCounter.objects.update(minute=long_ago)
    of_flows.report_conditions()
    assert not Alert.objects.filter(open_key__isnull=False).exists(), "long ago"


def test_a_window_that_is_shorter_than_a_minute(shop: Caller, settings: Settings) -> None:
    """Counters are of whole minutes."""
    settings.SMS_FAILING_MINUTES = 0.3
    for _ in range(conditions.MIN_FAILED):
        archived(shop, result=5)
    of_flows.report_conditions()
    assert Alert.objects.filter(kind=conditions.FAILING, open_key__isnull=False).exists()


def test_redis_keeps_the_key_by_which_it_is_known(shop: Caller) -> None:
    """`take_back_changed` asks for it."""
    message = archived(shop, result=5)
    resend(ids=message)
    assert sms_redis().exists(keys.idempotency(shop.biz.pk, f"resend:{message}:1"))
