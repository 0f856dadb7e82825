"""The list of messages: filtered, ticked and resent, taken as a CSV file; as strict as one page."""

import csv
import io
import re
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from msgplatform.models import AuditLog, Biz
from notify.models import BizReceive, ReceiveMsg
from tests.support.archive_support import Status, message
from tests.support.notify_rows import subscription

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
LIST = "/console/search/notify"


@pytest.fixture
def row() -> BizReceive:
    return subscription(Biz.objects.create(name="orders"), "warehouse")


def person(*permissions: str) -> Client:
    user = User.objects.create_user(f"person {User.objects.count()}", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


def rows_of(answer: Any) -> list[list[str]]:
    text = b"".join(answer.streaming_content).decode("utf-8-sig")
    return list(csv.reader(io.StringIO(text)))


def test_ticked_messages_are_resent(row: BizReceive, admin_client: Client) -> None:
    failed = [message(row, Status.EXHAUSTED, days=1) for _ in range(3)]
    page = admin_client.get(f"{LIST}?biz=orders").content.decode()
    assert all(f'name="id" value="{pk}"' in page for pk in failed)
    chosen = {"id": [str(failed[0]), str(failed[2]), "7"], "query": "biz=orders"}
    answer = admin_client.post(f"{LIST}/resend", chosen, follow=True)
    assert answer.redirect_chain == [(f"{LIST}?biz=orders", 302)]
    page = answer.content.decode()
    assert "Sent again to 2 recipients." in page
    assert "1 was left alone" in page
    statuses = dict(ReceiveMsg.objects.values_list("msg_id", "status"))
    assert [statuses[pk] for pk in failed] == [Status.PENDING, Status.EXHAUSTED, Status.PENDING]
    assert AuditLog.objects.filter(action="message_resent").count() == 2


def test_nothing_ticked_is_said(row: BizReceive, admin_client: Client) -> None:
    answer = admin_client.post(f"{LIST}/resend", {"query": "//elsewhere"}, follow=True)
    assert answer.redirect_chain == [(f"{LIST}?//elsewhere", 302)]
    assert "Tick the messages" in answer.content.decode()


def test_only_people_who_may_resend_can_tick(row: BizReceive) -> None:
    pk = message(row, Status.EXHAUSTED, days=1)
    viewer, operator = person("view_bizmsg"), person("view_bizmsg", "change_receivemsg")
    assert 'type="checkbox" name="id"' not in viewer.get(f"{LIST}?biz=orders").content.decode()
    assert viewer.post(f"{LIST}/resend", {"id": pk}).status_code == 403
    assert person("change_receivemsg").post(f"{LIST}/resend", {"id": pk}).status_code == 403
    assert 'type="checkbox" name="id"' in operator.get(f"{LIST}?biz=orders").content.decode()
    assert operator.post(f"{LIST}/resend", {"id": pk}).status_code == 302
    assert viewer.get(f"{LIST}/resend").status_code in (404, 405)


def test_the_csv_file_has_what_the_list_has(row: BizReceive, admin_client: Client) -> None:
    pks = [message(row, Status.DELIVERED, days=1, event_type="=cmd") for _ in range(60)]
    message(subscription(Biz.objects.create(name="stock"), "x"), Status.DELIVERED)
    (head, *lines) = rows_of(admin_client.get(f"{LIST}.csv?biz=orders"))
    assert head == ["Id", "Message", "System", "State", "Accepted", "Details", "Reason"]
    ids = [f'="{pk}"' for pk in sorted(pks, reverse=True)]  # a spreadsheet rounds such a number
    assert [line[0] for line in lines] == ids
    assert {line[1] for line in lines} == {"'=cmd"}
    answer = admin_client.get(f"{LIST}.csv?biz=nobody", follow=True)
    assert "no business system has this name" in answer.content.decode()


def test_the_csv_file_is_bounded_and_says_so(
    row: BizReceive, admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("msgplatform.doors.console.views.message_list._CSV_PAGE", 10)
    monkeypatch.setattr("msgplatform.doors.console.views.message_list._MAX_CSV_PAGES", 2)
    for _ in range(25):
        message(row, Status.DELIVERED, days=1)
    lines = rows_of(admin_client.get(f"{LIST}.csv?biz=orders"))
    assert len(lines) == 1 + 20 + 1
    assert lines[-1] == ["There are more messages: narrow the filter by a time."]


def test_the_csv_file_is_masked_and_refused_as_the_list_is(row: BizReceive) -> None:
    message(row, Status.DELIVERED, days=1, event_type="call 13800000000")
    viewer = person("view_bizmsg")
    (_head, line) = rows_of(viewer.get(f"{LIST}.csv?biz=orders"))
    assert "13800000000" not in line[1]
    assert viewer.get(f"{LIST}.csv?biz=orders&text=x").status_code == 302, "personal: refused"
    assert person("view_feed").get(f"{LIST}.csv").status_code == 403
    assert viewer.get("/console/search/nothing.csv").status_code == 404


def test_bulk_jobs_of_the_same_filter(row: BizReceive, admin_client: Client) -> None:
    message(row, Status.EXHAUSTED, days=1)
    page = admin_client.get(f"{LIST}?biz=orders&status=exhausted&since=2026-01-01").content.decode()
    assert "/console/bulk/notify?action=resend&amp;biz=orders&amp;status=exhausted&amp;" in page
    page = admin_client.get(f"{LIST}?biz=orders&channel=eu").content.decode()
    assert "/console/bulk/notify?action=" not in page, "no action knows a channel: it would do more"


def test_the_title_is_that_of_the_side_bar(admin_client: Client) -> None:
    for address, title in (
        ("/console/search", "Search"),
        ("/console/search/notify", "Messages"),
        ("/console/search/sms", "Messages sent"),
    ):
        page = admin_client.get(address).content.decode()
        assert f"{title} | msgplatform</title>" in re.sub(r"\s+", " ", page), address
