"""The statistics page and its file."""

from __future__ import annotations

import csv
import io
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from msgplatform.models import Biz, DayCounter, MinuteCounter
from notify.models import BizReceive
from tests.integration.support.notify_rows import subscription

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]

PAGE, FILE = "/admin/notify/bizreceive/statistics/", "/admin/notify/bizreceive/statistics.csv"


@pytest.fixture
def rows() -> list[BizReceive]:
    """Two systems; the first's subscription failed a lot in the last hour."""
    made = []
    for name, delivered, failed in (("shop", 90, 10), ("stock", 7, 0)):
        biz = Biz.objects.create(name=name)
        row = subscription(biz, f"{name}-consumer")
        made.append(row)
        owner = {"flow": "notify", "biz_id": biz.pk}
        minute = timezone.now().replace(second=0, microsecond=0)
        for counter, subject, value in (
            ("accepted", 0, delivered), ("delivered", row.pk, delivered), ("failed", row.pk, failed)
        ):  # fmt: skip
            MinuteCounter.objects.create(
                minute=minute, subject=subject, name=counter, value=value, **owner
            )
            DayCounter.objects.create(
                day=timezone.localdate() - timedelta(days=2), subject=subject, name=counter,
                value=value * 1000, **owner,
            )  # fmt: skip
    return made


def test_everything_of_the_last_day_by_default(
    admin_client: Client, rows: list[BizReceive]
) -> None:
    answer = admin_client.get(PAGE)
    total = answer.context["total"]
    assert (total.accepted, total.delivered, total.failed) == (97, 97, 10)
    worst = [(row.pk, point.failed) for row, point, _share in answer.context["worst"]]
    assert worst == [(rows[0].pk, 10), (rows[1].pk, 0)]
    text = answer.content.decode()
    assert "90.6 %" in text
    assert "<rect" in text


def test_the_address_says_what_is_shown(admin_client: Client, rows: list[BizReceive]) -> None:
    answer = admin_client.get(f"{PAGE}?subscription={rows[1].pk}")
    assert answer.context["total"].delivered == 7
    assert answer.context["worst"] == []
    answer = admin_client.get(f"{PAGE}?biz={rows[0].biz_id}&step=day&period=7d")
    assert answer.context["total"].delivered == 90_000
    assert len(answer.context["points"]) == 1
    assert f"statistics.csv?biz={rows[0].biz_id}&amp;step=day&amp;period=7d" in (
        answer.content.decode()
    )


@pytest.mark.parametrize(
    "query",
    ["period=never", "step=week", "subscription=x", "subscription=999", "biz=-1",
     "period=365d&step=hour", "biz=" + "9" * 40],
)  # fmt: skip
def test_a_wrong_choice_is_said(admin_client: Client, rows: list[BizReceive], query: str) -> None:
    answer = admin_client.get(f"{PAGE}?{query}")
    assert answer.status_code == 200
    assert answer.context["form"].errors
    assert "total" not in answer.context
    assert admin_client.get(f"{FILE}?{query}").status_code == 400


def test_nothing_yet(admin_client: Client) -> None:
    assert "No attempts in this period." in admin_client.get(PAGE).content.decode()


def test_the_file_holds_the_same(admin_client: Client, rows: list[BizReceive]) -> None:
    answer = admin_client.get(f"{FILE}?biz={rows[0].biz_id}")
    assert answer["Content-Type"].startswith("text/csv")
    assert ".csv" in answer["Content-Disposition"]
    text = b"".join(answer.streaming_content).decode("utf-8-sig")  # type: ignore[attr-defined]
    lines = list(csv.DictReader(io.StringIO(text)))
    assert {line["system"] for line in lines} == {"shop"}
    assert sum(int(line["delivered"]) for line in lines) == 90


def test_a_name_is_no_formula(admin_client: Client, rows: list[BizReceive]) -> None:
    Biz.objects.filter(pk=rows[0].biz_id).update(name="=cmd()")
    answer = admin_client.get(FILE)
    text = b"".join(answer.streaming_content).decode()  # type: ignore[attr-defined]
    assert ",=cmd()" not in text
    assert "'=cmd()" in text


def test_only_for_those_who_may_see_subscriptions(rows: list[BizReceive]) -> None:
    client = Client()
    client.force_login(User.objects.create_user("somebody", password="x", is_staff=True))
    assert client.get(PAGE).status_code == 403
    assert client.get(FILE).status_code == 403
    assert Client().get(PAGE).status_code == 302
