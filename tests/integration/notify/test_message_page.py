"""The page of an event: a card for each recipient that says why, and sending again from it."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import translation
from pytest_django import Settings

from msgplatform.core.data import sql
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.page import Page, PageLink, Recipient
from msgplatform.core.rates.breaker import State
from msgplatform.jobs.models import BulkJob
from msgplatform.models import AuditLog, Biz
from notify import presence
from notify.flow import FLOW
from notify.maker import ending, expiry
from notify.maker.maker import Maker
from notify.messages import recipients
from notify.models import Attempt, BizMsg, BizReceive, ReceiveMsg, RestoredMsg
from tests.support import archive_support, table_rows
from tests.support.archive_support import Status, archive, message
from tests.support.notify_plans import fill, rows_read, wrong_steps
from tests.support.notify_rows import publish, subscription

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
place = archive_support.place
NOWHERE = "unix:///nowhere/redis.sock"


@pytest.fixture
def row() -> BizReceive:
    return subscription(Biz.objects.create(name="orders"), "warehouse")


def page(pk: int, after: str = "") -> Page:
    found = FLOW.messages.page(str(pk), after)
    assert found
    return found


def card(pk: int) -> Recipient:
    (only,) = page(pk).recipients
    return only


def test_its_head_does_not_say_that_it_is_split(row: BizReceive) -> None:
    (pk,) = publish(row.biz)
    assert page(pk).facts["State"] == "accepted"
    Maker().splitter.split()
    facts = page(pk).facts
    assert "State" not in facts
    assert facts["Deliveries"] == "1 pending"


def split(row: BizReceive, **values: Any) -> int:
    """A message whose delivery is in this state; its id."""
    (pk,) = publish(row.biz)
    Maker().splitter.split()
    given = {"status": Status.PENDING, "claimed_by": "", **values}
    ReceiveMsg.objects.filter(msg_id=pk).update(**given)
    return pk


def again(client: Client, pk: int, recipient: object = "") -> str:
    """What the page says after sending again."""
    answer = client.post(f"/console/notify/{pk}/resend", {"recipient": recipient}, follow=True)
    assert answer.status_code == 200
    return answer.content.decode()


# -- why -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("delivery", "subscribed", "said"),
    [
        ({"send_times": 1, "next_at": timedelta(hours=1)}, {}, "waits for the next one"),
        ({"next_at": timedelta(0)}, {}, "waits for its turn: 0 deliveries go first"),
        ({"status": Status.QUEUED, "next_at": timedelta(hours=1)}, {}, "in a sender's hands"),
        ({"status": Status.HELD}, {"status": BizReceive.Status.PAUSED}, "subscription is paused"),
        ({}, {"status": BizReceive.Status.DISCARDED}, "it will be skipped"),
        (
            {"status": Status.HELD},
            {"status": BizReceive.Status.DISABLED, "disabled_reason": "HTTP 410"},
            "disabled its subscription: HTTP 410",
        ),
        (
            {"status": Status.EXHAUSTED, "send_times": 3, "http_status": 503},
            {},
            "No attempt is left after 3 failed; the last: HTTP 503",
        ),
        ({"status": Status.EXHAUSTED, "error": expiry.ERROR}, {}, "its breaker stayed open"),
        ({"status": Status.POISON, "error": "message is gone"}, {}, "fault: message is gone"),
        ({"status": Status.SKIPPED}, {}, "was discarded"),
        ({"status": Status.SKIPPED, "error": ending.ERASED}, {}, "erasure of a person's data"),
        ({"status": Status.DELIVERED, "http_status": 200}, {}, ""),
    ],
)
def test_a_card_says_why(
    row: BizReceive, delivery: dict[str, Any], subscribed: dict[str, Any], said: str
) -> None:
    if isinstance(delivery.get("next_at"), timedelta):
        delivery = {**delivery, "next_at": sql.now() + delivery["next_at"]}
    pk = split(row, **delivery)
    BizReceive.objects.filter(pk=row.pk).update(**subscribed)
    shown = card(pk)
    assert said in shown.why
    assert bool(said) == bool(shown.why)
    assert (shown.next_at is not None) == ("next one" in said)


def test_an_answer_has_its_title_of_the_page_failures(row: BizReceive) -> None:
    pk = split(row, status=Status.EXHAUSTED, send_times=3, error="timeout")
    with translation.override("zh-hans"):
        assert "最后一次：超时" in card(pk).why


def test_an_open_breaker_and_a_redis_that_is_away(row: BizReceive, settings: Settings) -> None:
    pk = split(row, next_at=sql.now())
    opened = presence.LaneState("a", breaker=State.OPEN, retry_in=30, open_for=3600)
    presence.report({row.pk: opened})
    assert "Not tried: its breaker has been open since" in card(pk).why
    settings.REDIS_URL = NOWHERE
    shown = card(pk)
    assert "waits for its turn" in shown.why
    assert any("Redis is unavailable" in note for note in shown.notes)


def test_how_many_are_before_it(row: BizReceive) -> None:
    pks = publish(row.biz, 4)
    Maker().splitter.split()
    for n, pk in enumerate(pks):
        due = sql.now() - timedelta(seconds=100 - n)
        values = {"status": Status.PENDING, "next_at": due, "claimed_by": ""}
        ReceiveMsg.objects.filter(msg_id=pk).update(**values)
    assert "3 deliveries go first" in card(pks[3]).why


def test_a_subscription_that_was_deleted(row: BizReceive, admin_client: Client) -> None:
    pk = split(row, status=Status.EXHAUSTED)
    BizReceive.objects.all().delete()
    shown = card(pk)
    assert "was deleted" in str(shown.name)
    assert (shown.resend_effect, shown.call) == ("", None)
    assert admin_client.get(f"/console/notify/{pk}").status_code == 200


# -- nobody --------------------------------------------------------------------------------------
def test_nobody_subscribes(admin_client: Client) -> None:
    biz = Biz.objects.create(name="orders")
    (pk,) = publish(biz)
    assert "waits for a maker" in str(page(pk).no_recipient_reasons[0])
    assert "No maker runs" in str(page(pk).no_recipient_reasons[1])
    Maker().splitter.split()
    sentences = page(pk).no_recipient_reasons
    assert str(sentences[0]) == "When it was accepted, nobody subscribed to order.paid of orders."
    (link,) = [s for s in sentences if isinstance(s, PageLink) and "Add" in s.text]
    form = admin_client.get(link.url).content.decode()
    assert "order.paid" in form
    assert f'<option value="{biz.pk}" selected' in form
    subscription(biz, "late")
    assert any("newer, or discarded" in str(sentence) for sentence in page(pk).no_recipient_reasons)


# -- sending again -------------------------------------------------------------------------------
def test_one_is_sent_again_and_the_page_says_who(
    row: BizReceive, admin_client: Client, place: str
) -> None:
    """Also from the archive, whence it is brought back."""
    pk = message(row, Status.EXHAUSTED, days=60)
    archive()
    assert not ReceiveMsg.objects.exists()
    before = [entry.title for entry in page(pk).timeline]
    text = again(admin_client, pk, page(pk).recipients[0].id)
    assert "Sent again to 1 recipient." in text
    assert "Sent again by admin" in text
    delivery = ReceiveMsg.objects.get(msg_id=pk)
    assert (delivery.status, delivery.generation, delivery.send_times) == (Status.PENDING, 1, 0)
    assert RestoredMsg.objects.filter(pk=pk).exists()
    # The attempt before it stays.
    assert "warehouse: attempt 1" in before
    assert "warehouse: attempt 1" in [entry.title for entry in page(pk).timeline]
    assert len(page(pk).recipients[0].attempts) == 1
    entry = AuditLog.objects.get(action="message_resent")
    assert (entry.actor, entry.target, entry.detail["count"]) == ("admin", f"notify {pk}", 1)
    # It is on its way already.
    assert "1 was left alone" in again(admin_client, pk, "")
    assert ReceiveMsg.objects.get(msg_id=pk).generation == 1


def test_all_that_it_did_not_reach(row: BizReceive, admin_client: Client) -> None:
    pk = split(row, status=Status.DELIVERED)
    for n, status in enumerate((Status.EXHAUSTED, Status.SKIPPED, Status.PENDING)):
        other = subscription(row.biz, f"other-{n}")
        copy = ReceiveMsg.objects.get(msg_id=pk, biz_receive=row)
        copy.pk, copy.biz_receive, copy.status = copy.pk + n + 1, other, status
        copy.save(force_insert=True)
    assert page(pk).resend_effect.startswith("2 deliveries")
    assert "Sent again to 2 recipients." in again(admin_client, pk)
    generations = ReceiveMsg.objects.order_by("id").values_list("generation", flat=True)
    assert list(generations) == [0, 1, 1, 0]


def test_what_an_erasure_ended_is_left_alone(row: BizReceive, admin_client: Client) -> None:
    pk = split(row, status=Status.SKIPPED, error=ending.ERASED)
    assert card(pk).resend_effect == ""
    copy = ReceiveMsg.objects.get(msg_id=pk)
    copy.pk, copy.biz_receive, copy.error = copy.pk + 1, subscription(row.biz, "other"), ""
    copy.save(force_insert=True)
    assert page(pk).resend_effect.startswith("1 delivery")
    assert "Sent again to 1 recipient." in again(admin_client, pk)
    generations = ReceiveMsg.objects.order_by("id").values_list("generation", flat=True)
    assert list(generations) == [0, 1]
    assert page(pk).resend_effect == ""


def test_sending_again_needs_its_permission(row: BizReceive) -> None:
    pk = split(row, status=Status.EXHAUSTED)
    user = User.objects.create_user("viewer", password="x", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_bizmsg"))
    client = Client()
    client.force_login(user)
    shown = client.get(f"/console/notify/{pk}").content.decode()
    assert "warehouse" in shown
    assert "Send again" not in shown
    assert "/admin/notify/bizreceive/" not in shown  # no link to what would be refused
    url = f"/console/notify/{pk}/resend"
    assert client.post(url).status_code == 403
    user.user_permissions.add(Permission.objects.get(codename="change_receivemsg"))
    assert "Send again" in client.get(f"/console/notify/{pk}").content.decode()
    assert client.get(url).status_code == 405
    assert client.post(url).status_code == 302
    assert ReceiveMsg.objects.get().generation == 1
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(user)
    assert strict.post(url).status_code == 403
    user.user_permissions.remove(Permission.objects.get(codename="view_bizmsg"))
    assert client.post(url).status_code == 403


def test_what_there_is_not_is_not_sent(row: BizReceive, admin_client: Client) -> None:
    mine, other = split(row, status=Status.EXHAUSTED), split(row, status=Status.EXHAUSTED)
    theirs = ReceiveMsg.objects.get(msg_id=other).pk
    for pk, recipient in ((mine, theirs), (mine, "x"), (7, ""), ("x", "")):
        url = f"/console/notify/{pk}/resend"
        assert admin_client.post(url, {"recipient": recipient}).status_code == 404
    assert not ReceiveMsg.objects.filter(generation__gt=0).exists()


def test_a_bulk_job_that_covers_it_is_named(row: BizReceive) -> None:
    pk = split(row, status=Status.EXHAUSTED)
    for filter in ({"biz": "orders"}, {"event_type": "other"}, {"ids": "7"}, {"biz": "gone"}):
        BulkJob.objects.create(flow="notify", action="resend", filter=filter, created_by="eve")

    def named() -> list[str]:
        return [entry.title for entry in page(pk).timeline if "eve" in entry.title]

    assert named() == []  # it was not sent again
    ReceiveMsg.objects.update(generation=1)
    first = BulkJob.objects.order_by("pk")[0]
    assert named() == [f"Bulk job {first.pk} of eve covers it"]


# -- what is shown -------------------------------------------------------------------------------
def test_those_that_failed_come_first_and_the_rest_page_by_page(
    row: BizReceive, monkeypatch: pytest.MonkeyPatch, admin_client: Client
) -> None:
    monkeypatch.setattr(recipients, "SHOWN", 3)
    for n in range(6):
        subscription(row.biz, f"other-{n}")
    pk = split(row, status=Status.DELIVERED)
    ids = list(ReceiveMsg.objects.order_by("id").values_list("id", flat=True))
    ReceiveMsg.objects.filter(id=ids[6]).update(status=Status.EXHAUSTED)
    ReceiveMsg.objects.filter(id=ids[4]).update(status=Status.PENDING)
    seen, cursor = [], ""
    while True:
        found = page(pk, cursor)
        seen += [int(recipient.id) for recipient in found.recipients]
        cursor = found.cursor
        if not cursor:
            break
    assert seen == [ids[6], ids[4], *ids[:4], ids[5]]
    shown = admin_client.get(f"/console/notify/{pk}").content.decode()
    assert 'rel="next" href="?after=2-' in shown
    for wrong in ("x", "3-1", "0-", "0-x"):
        with pytest.raises(InvalidInput):
            page(pk, wrong)
        assert admin_client.get(f"/console/notify/{pk}?after={wrong}").status_code == 404


def test_a_page_asks_as_much_for_many_recipients_as_for_few(row: BizReceive) -> None:
    def queries(pk: int) -> int:
        with CaptureQueriesContext(connection) as captured:
            page(pk)
        return len(captured)

    few = split(row, status=Status.EXHAUSTED)
    for n in range(30):
        subscription(row.biz, f"other-{n}")
    many = split(row, status=Status.EXHAUSTED)
    assert len(page(many).recipients) == 31
    assert queries(many) == queries(few)


def test_a_page_reads_its_own_rows_from_indexes() -> None:
    fill()
    deliveries = list(ReceiveMsg.objects.order_by("id").values_list("id", flat=True))
    table_rows.insert_like(
        Attempt(number=1, at=sql.now(), seconds=0.1),
        ("id", "copy_id", "claim"),
        ((pk, pk, str(pk)) for pk in deliveries),
    )
    for table in ("attempt", "biz_msg", "receive_msg"):
        with connection.cursor() as cursor:
            word = "ANALYZE TABLE" if connection.vendor == "mysql" else "ANALYZE"
            cursor.execute(f"{word} {table}")
            cursor.fetchall()
    pk = ReceiveMsg.objects.filter(status=Status.DELIVERED).latest("id").msg_id
    before = rows_read()
    with CaptureQueriesContext(connection) as captured:
        assert len(card(pk).attempts) == 1
    if connection.vendor == "mysql":  # SQLite does not count
        assert rows_read() - before < 300
    asked = [q["sql"] for q in captured if q["sql"].startswith("SELECT")]
    assert [wrong for statement in asked for wrong in wrong_steps(statement)] == []


def test_what_is_kept_of_an_attempt_and_no_secret(row: BizReceive, admin_client: Client) -> None:
    row.receive.url = "https://user:hunter2@example.com/hook?token=hunter2"
    row.receive.headers = {"Authorization": "hunter2"}
    row.receive.save()
    answer = '{"why":"\\u4f60\\u597d <script>alert(1)</script>"}'
    pk = message(
        row, Status.EXHAUSTED, payload='{"名":"\\u4e2d文","n":1.10}'.encode(), answer=answer
    )
    shown = admin_client.get(f"/console/notify/{pk}").content.decode()
    assert "你好" in shown
    assert "&quot;名&quot;: &quot;中文&quot;" in shown
    assert "1.10" in shown
    assert "a: b" in shown  # a header of the answer
    assert "<script>alert" not in shown
    assert "hunter2" not in shown
    assert row.receive.secret not in shown
    assert "webhook-id: " in shown
    assert "Bearer YOUR_API_KEY" in shown


def test_only_the_newest_attempts_of_each(row: BizReceive) -> None:
    pk = split(row, status=Status.PENDING)
    delivery = ReceiveMsg.objects.get()
    for n in range(recipients._MAX_ATTEMPTS + 5):
        Attempt.objects.create(
            id=n + 1, copy=delivery, claim=str(n), number=n + 1, at=sql.now(), seconds=0.1
        )
    numbers = [attempt.title for attempt in card(pk).attempts]
    assert len(numbers) == recipients._MAX_ATTEMPTS
    assert numbers[0] == f"Attempt {recipients._MAX_ATTEMPTS + 5}"


def test_a_message_that_all_got_is_a_sentence_and_a_row_for_each(
    row: BizReceive, admin_client: Client
) -> None:
    for name in ("billing", "search"):
        subscription(row.biz, name)
    pk = split(row, status=Status.DELIVERED, send_times=1, http_status=200)
    accepted = BizMsg.objects.get(pk=pk).created_at
    for n, delivery in enumerate(ReceiveMsg.objects.filter(msg_id=pk)):
        Attempt.objects.create(
            id=100 + n, copy=delivery, claim="c", number=1, at=accepted, seconds=0.4,
            http_status=200, response_body="ok",
        )  # fmt: skip
    shown = page(pk)
    assert str(shown.headline).startswith("Delivered to 3 of 3 in 0.")
    text = admin_client.get(f"/console/notify/{pk}").content.decode()
    assert text.index("Delivered to 3 of 3") < text.index("<dt>Deliveries</dt>")
    assert text.count("Of a request its time is kept") == 1
    assert text.count('<details class="recipient"') == 3
    assert text.count('class="copy"') >= 2
    first = ReceiveMsg.objects.first()
    assert first
    ReceiveMsg.objects.filter(pk=first.pk).update(status=Status.EXHAUSTED)
    assert str(page(pk).headline) == "Delivered to 2 of 3 · 1 exhausted"
    text = admin_client.get(f"/console/notify/{pk}").content.decode()
    assert text.count('<details class="recipient"') == 2
    assert text.index('<section class="card recipient"') < text.index('<details class="recipient"')
