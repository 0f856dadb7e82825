"""What was read and confirmed over time: series, sums, the page and its file."""

from __future__ import annotations

import csv
import io
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from crmsync.models import Policy
from crmsync.monitor import counters, statistics
from msgplatform.core.data import sql
from msgplatform.core.errors import InvalidInput
from msgplatform.jobs.counters import roll_up
from tests.integration.crmsync.sync_support import crm, hive, policy

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
PAGE = "/admin/crmsync/lead/statistics/"


@pytest.fixture
def hubspot() -> Policy:
    return hive("hubspot")


@pytest.fixture
def tryton() -> Policy:
    return policy(crm("tryton"), "people")


def count(policy: Policy, at: datetime, **values: int) -> None:
    names = {"throttled": counters.failed("throttled"), "invalid": counters.failed("invalid")}
    found = {(policy.pk, names.get(name, name)): value for name, value in values.items()}
    counters.add(Counter(found), at)


class TestSums:
    def test_a_point_for_every_step(self, hubspot: Policy, tryton: Policy) -> None:
        count(hubspot, NOON, read=10, unchanged=2, confirmed=6, dead=2, calls=4, call_ms=1000)
        count(hubspot, NOON + timedelta(minutes=90), throttled=3, invalid=1)
        count(tryton, NOON, confirmed=1)
        points = statistics.series("hour", NOON, NOON + timedelta(hours=3))
        assert [point.confirmed for point in points] == [7, 0, 0]
        first, second, _third = points
        assert (first.read, first.unchanged, first.dead, first.seconds) == (10, 2, 2, 0.25)
        assert first.success_share == pytest.approx(7 / 9)
        assert (second.failed, second.failures) == ({"throttled": 3, "invalid": 1}, 4)
        assert (second.success_share, second.seconds) == (None, None)
        minutes = statistics.series("minute", NOON, NOON + timedelta(minutes=2))
        assert [point.confirmed for point in minutes] == [7, 0]

    def test_of_some_policies(self, hubspot: Policy, tryton: Policy) -> None:
        count(hubspot, NOON, confirmed=6)
        count(tryton, NOON, confirmed=1)
        until = NOON + timedelta(hours=1)
        found = statistics.by_policy("hour", NOON, until)
        assert {pk: point.confirmed for pk, point in found.items()} == {hubspot.pk: 6, tryton.pk: 1}
        (point,) = statistics.series("hour", NOON, until, policies=[tryton.pk])
        assert point.confirmed == 1
        assert statistics.by_policy("hour", NOON, until, policies=[]) == {}

    def test_days_are_rolled_up(self, hubspot: Policy) -> None:
        yesterday = sql.now() - timedelta(days=1)
        count(hubspot, yesterday, confirmed=5)
        roll_up(everything=True)
        points = statistics.series("day", yesterday, sql.now())
        assert points[0].confirmed == 5

    def test_too_long_a_time(self) -> None:
        with pytest.raises(InvalidInput):
            statistics.series("minute", NOON, NOON + timedelta(days=30))

    def test_the_file(self, hubspot: Policy, tryton: Policy) -> None:
        count(hubspot, NOON, read=10, confirmed=3, dead=1, throttled=2, calls=2, call_ms=500)
        count(tryton, NOON + timedelta(minutes=1), confirmed=1)
        header, first, second = statistics.csv_rows("minute", NOON, NOON + timedelta(hours=1))
        line = dict(zip(header, first, strict=True))
        assert line["time"] == "2026-11-20T12:00:00+00:00"
        assert (line["source"], line["CRM"]) == ("hive", "hubspot")
        assert (line["read"], line["confirmed"], line["dead"]) == ("10", "3", "1")
        assert (line["success share"], line["seconds a call"]) == ("0.7500", "0.2500")
        assert (line["throttled"], line["auth"]) == ("2", "0")
        assert dict(zip(header, second, strict=True))["CRM"] == "tryton"


class TestPage:
    @pytest.fixture
    def counted(self, hubspot: Policy, tryton: Policy) -> None:
        now = sql.now()
        count(hubspot, now, read=9_871, confirmed=9_872, throttled=9_873)
        count(tryton, now, confirmed=4_321)

    def text(self, client: Client, **chosen: Any) -> str:
        response = client.get(PAGE, chosen)
        assert response.status_code == 200
        return response.content.decode().replace(",", "").replace("\xa0", "")

    def test_by_source_crm_and_class_of_error(self, counted: None, admin_client: Client) -> None:
        text = self.text(admin_client)
        for shown in ("hubspot", "tryton", "people", "hive", "9871", "9873", "throttled", "14193"):
            assert shown in text, shown

    def test_of_one_crm(self, counted: None, tryton: Policy, admin_client: Client) -> None:
        text = self.text(admin_client, crm=str(tryton.crm_id), period="1h")
        assert "4321" in text
        assert "9872" not in text

    def test_of_a_source_that_goes_nowhere(
        self, counted: None, hubspot: Policy, tryton: Policy, admin_client: Client
    ) -> None:
        chosen = {"crm": str(tryton.crm_id), "source": str(hubspot.source_id)}
        assert "Nothing was read or sent in this time." in self.text(admin_client, **chosen)

    def test_minutes_are_not_kept_for_a_year(self, admin_client: Client) -> None:
        text = self.text(admin_client, period="365d", step="minute")
        assert "choose days for a longer time" in text

    def test_the_file(self, counted: None, tryton: Policy, admin_client: Client) -> None:
        address = PAGE.rstrip("/") + ".csv"
        response: Any = admin_client.get(address, {"crm": str(tryton.crm_id)})
        assert response["Content-Type"].startswith("text/csv")
        rows = list(csv.reader(io.StringIO(response.getvalue().decode("utf-8-sig"))))
        assert len(rows) == 2
        assert "4321" in rows[1]

    def test_who_may_not_see_leads_sees_no_statistics(
        self, client: Client, django_user_model: Any
    ) -> None:
        client.force_login(django_user_model.objects.create_user("ann", is_staff=True))
        assert client.get(PAGE).status_code == 403

    def test_the_cost_does_not_grow_with_the_number_of_minutes(
        self, hubspot: Policy, admin_client: Client
    ) -> None:
        costs = []
        for minutes in (20, 200):
            for minute in range(minutes):
                count(hubspot, sql.now() - timedelta(minutes=minute), confirmed=1, calls=1)
            with CaptureQueriesContext(connection) as queries:
                self.text(admin_client)
            costs.append(len(queries))
        assert costs[0] == costs[1]
