"""The list of Notify: each line says what became of the deliveries; ticked ones are resent."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from msgplatform.core.data import sql
from msgplatform.core.flows.page import Hit
from msgplatform.messages import engine
from msgplatform.models import Biz
from notify.maker.maker import Maker
from notify.messages.index import MESSAGES
from notify.messages.states import local
from notify.models import BizReceive, ReceiveMsg
from tests.support.archive_support import Status, archive, message
from tests.support.notify_plans import ROWS, fill, rows_read
from tests.support.notify_rows import publish, subscription

pytestmark = [
    pytest.mark.both_databases,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("work_redis"),
]
LIST = "/console/search/notify"


@pytest.fixture
def row() -> BizReceive:
    return subscription(Biz.objects.create(name="orders"), "warehouse")


def line(**values: Any) -> Hit:
    """The only line of this filter."""
    (hit,) = engine.find(MESSAGES, {name: str(v) for name, v in values.items()}, "", 10).hits
    return hit


def set_deliveries(message_id: int, **columns: Any) -> None:
    ReceiveMsg.objects.filter(msg_id=message_id).update(**columns)


# -- lines ---------------------------------------------------------------------------------------
def test_a_line_says_what_a_failed_delivery_met(row: BizReceive) -> None:
    pk = message(row, Status.EXHAUSTED, channel="eu")
    at = sql.now() - timedelta(hours=1)
    set_deliveries(pk, http_status=503, send_times=9, updated_at=at)
    hit = line(biz="orders")
    assert (hit.state, hit.tone) == ("exhausted", "bad")
    assert hit.details == "channel eu · warehouse"
    assert hit.reason == "HTTP 503, 9 attempts"
    assert hit.duration == f"last change {local(at)}"


def test_a_line_says_when_the_next_attempt_is(row: BizReceive) -> None:
    pk = message(row, Status.PENDING)
    at = sql.now() + timedelta(hours=1)
    set_deliveries(pk, http_status=0, error="timeout", send_times=1, next_at=at)
    hit = line(biz="orders")
    assert (hit.state, hit.tone) == ("pending", "plain")
    assert hit.reason == f"timeout, 1 attempt · next attempt {local(at)}"
    set_deliveries(pk, send_times=0, error="")
    assert line(biz="orders").reason == "", "the first attempt is still to come"


def test_a_line_of_several_deliveries_names_the_worst_first(row: BizReceive) -> None:
    pk = message(row, *[Status.DELIVERED] * 2, *[Status.POISON] * 2, Status.HELD, Status.EXHAUSTED)
    deliveries = ReceiveMsg.objects.filter(msg_id=pk)
    deliveries.update(send_times=2, http_status=0, error="dns")
    deliveries.filter(status=Status.HELD).update(error="reset")
    deliveries.filter(status=Status.EXHAUSTED).update(error="connect", send_times=4)
    hit = line(biz="orders")
    assert hit.state == "held 1, delivered 2, exhausted 1, poison 2"
    assert hit.tone == "bad"
    exhausted, held = (
        deliveries.get(status=status).biz_receive_id for status in (Status.EXHAUSTED, Status.HELD)
    )
    assert hit.reason == (
        f"2 deliveries: dns, 2 attempts · subscription {exhausted}, which was deleted: connect, "
        f"4 attempts · subscription {held}, which was deleted: reset, 2 attempts"
    )
    assert hit.details == ""
    # With a subscription in the filter the line is about the delivery for this one.
    hit = line(subscription=held)
    assert (hit.details, hit.reason) == (
        f"subscription {held}, which was deleted", "reset, 2 attempts",
    )  # fmt: skip
    assert hit.state.startswith("held 1, delivered 2"), "the state is the message's"


def test_many_answers_are_cut(row: BizReceive) -> None:
    pk = message(row, *[Status.EXHAUSTED] * 5)
    for n, delivery in enumerate(ReceiveMsg.objects.filter(msg_id=pk)):
        ReceiveMsg.objects.filter(pk=delivery.pk).update(http_status=500 + n)
    assert line(biz="orders").reason.count("HTTP 50") == 3
    assert line(biz="orders").reason.endswith("…")


def test_other_colours(row: BizReceive) -> None:
    for status, tone in ((Status.DELIVERED, "good"), (Status.HELD, "warn"),
                         (Status.SKIPPED, "plain")):  # fmt: skip
        message(row, status, event_type=f"a.{tone}")
        assert line(event_type=f"a.{tone}").tone == tone
    message(row, event_type="a.none")
    assert (line(event_type="a.none").state, line(event_type="a.none").tone) == (
        "no subscriber", "plain",
    )  # fmt: skip


def test_an_archived_line_says_the_same(row: BizReceive) -> None:
    pk = message(row, Status.EXHAUSTED, days=40, channel="eu")
    set_deliveries(pk, http_status=503, send_times=9)
    before = line(biz="orders")
    archive()
    after = line(biz="orders")
    assert after.state == "exhausted (archived)"
    assert (after.details, after.reason, after.tone) == (
        before.details, before.reason, before.tone,
    )  # fmt: skip


def test_a_deleted_subscription_has_its_number(row: BizReceive) -> None:
    message(row, Status.EXHAUSTED)
    row.delete()
    assert "which was deleted" in line(biz="orders").details


def test_a_page_asks_as_much_for_50_lines_as_for_5(row: BizReceive, admin_client: Client) -> None:
    def queries() -> int:
        Maker().splitter.split()
        with CaptureQueriesContext(connection) as captured:
            page = admin_client.get(f"{LIST}?subscription=orders/warehouse").content.decode()
        assert "last change" in page
        return len(captured)

    admin_client.get(LIST)  # the first page of a session stores the session
    queries_before = (publish(row.biz, 5), queries())[1]
    for n in range(20):
        subscription(row.biz, f"more-{n}")
    publish(row.biz, 60)
    assert queries() == queries_before


def test_rare_deliveries_cost_little() -> None:
    """A plan may name an index and still walk through all of it."""
    rare = fill()[-1]
    for values in (
        {"status": "poison"},
        {"subscription": str(rare.pk), "status": "exhausted"},
        {"biz": rare.biz.name},
    ):
        engine.find(MESSAGES, values, "", 50)
        before = rows_read()
        result = engine.find(MESSAGES, values, "", 50)
        assert result.hits or result.cursor == ""
        assert rows_read() - before < ROWS / 5, values


# -- links and resending -------------------------------------------------------------------------
def test_the_card_of_a_subscription_leads_to_its_deliveries(
    row: BizReceive, admin_client: Client
) -> None:
    pk = message(row, Status.EXHAUSTED)
    message(subscription(Biz.objects.create(name="stock"), "x"), Status.EXHAUSTED)
    card = admin_client.get(f"/admin/notify/bizreceive/{row.pk}/change/").content.decode()
    address = f"{LIST}?subscription={row.pk}&amp;status=exhausted"
    assert f'href="{address}"' in card
    page = admin_client.get(address.replace("&amp;", "&")).content.decode()
    assert page.count('type="checkbox" name="id"') == 1
    assert f'name="id" value="{pk}"' in page


def test_ticked_messages_can_go_into_a_bulk_job(row: BizReceive, admin_client: Client) -> None:
    """So that deliveries that succeeded can be sent again, too."""
    pks = [message(row, Status.DELIVERED) for _ in range(2)]
    ticks = {"id": [str(pk) for pk in pks], "bulk": "1"}
    answer = admin_client.post(f"{LIST}/resend", ticks)
    address = f"/console/bulk/notify?action=resend&ids={pks[0]}%2C{pks[1]}"
    assert (answer.status_code, answer["Location"]) == (302, address)
    counted = admin_client.post(
        "/console/bulk/notify",
        {"action": "resend", "ids": f"{pks[0]},{pks[1]}", "status": "delivered", "count": "1"},
    )
    assert not counted.context["form"].errors
    assert counted.context["previewed"]


def test_the_changelists_are_gone(admin_client: Client) -> None:
    for model in ("bizmsg", "receivemsg"):
        assert admin_client.get(f"/admin/notify/{model}/").status_code == 404
    page = admin_client.get("/console/").content.decode()
    assert f'href="{LIST}"' in page
