"""What was read and confirmed over time: series, sums by CRM and source, the page and its file."""

import csv
import io
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from crmsync.models import Policy
from crmsync.monitor import counters
from crmsync.monitor.activity import ACTIVITY
from msgplatform.core.data import sql
from msgplatform.monitor.counters import roll_up
from msgplatform.monitor.statistics import groups
from msgplatform.monitor.statistics.points import CounterQuery, Step, total
from tests.integration.crmsync.sync_support import crm, hive, policy

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
PAGE, FILE = "/console/statistics?flow=crmsync", "/console/statistics.csv?flow=crmsync"


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


def counted(step: Step, since: datetime, until: datetime, **chosen: object) -> CounterQuery:
    return CounterQuery(
        ACTIVITY, step, since, until, {name: str(key) for name, key in chosen.items()}
    )


class TestSums:
    def test_a_point_for_every_step(self, hubspot: Policy, tryton: Policy) -> None:
        count(hubspot, NOON, read=10, unchanged=2, confirmed=6, dead=2, calls=4, call_ms=1000)
        count(hubspot, NOON + timedelta(minutes=90), throttled=3, invalid=1)
        count(tryton, NOON, confirmed=1)
        points = counted("hour", NOON, NOON + timedelta(hours=3)).series()
        first, second, _third = (point.counts for point in points)
        shown = {measure.name: measure.of(first) for measure in ACTIVITY.measures}
        assert shown == {
            "read": 10, "unchanged": 2, "confirmed": 7, "dead": 2, "failed_tries": 0, "calls": 4,
        }  # fmt: skip
        (seconds,) = ACTIVITY.figures
        assert (seconds.of(first), seconds.of(second)) == (0.25, None)
        assert ACTIVITY.success(first) == pytest.approx(7 / 9)
        assert ACTIVITY.success(second) is None
        assert groups.answers(ACTIVITY, second) == [("throttled", 3), ("invalid", 1)]

    def test_by_crm_and_of_one(self, hubspot: Policy, tryton: Policy) -> None:
        count(hubspot, NOON, confirmed=6)
        count(tryton, NOON, confirmed=1, dead=1)
        until = NOON + timedelta(hours=1)
        sums = groups.sums(counted("hour", NOON, until))
        lines = groups.rank_groups(ACTIVITY, ACTIVITY.dimensions[0], sums)
        assert [(line.group.title, line.counts["confirmed"]) for line in lines] == [
            ("tryton", 1), ("hubspot", 6),
        ]  # fmt: skip
        of_one = counted("hour", NOON, until, crm=tryton.crm_id)
        assert total(of_one.series())["confirmed"] == 1
        nowhere = counted("hour", NOON, until, crm=tryton.crm_id, source=hubspot.source_id)
        assert total(nowhere.series()) == {}

    def test_days_are_rolled_up(self, hubspot: Policy) -> None:
        yesterday = sql.now() - timedelta(days=1)
        count(hubspot, yesterday, confirmed=5)
        roll_up()
        points = counted("day", yesterday, sql.now()).series()
        assert points[0].counts["confirmed"] == 5


class TestPage:
    @pytest.fixture
    def counts(self, hubspot: Policy, tryton: Policy) -> None:
        now = sql.now()
        count(hubspot, now, read=9_871, confirmed=9_872, throttled=9_873)
        count(tryton, now, confirmed=4_321)

    def text(self, client: Client, **chosen: Any) -> str:
        response = client.get(PAGE, {"flow": "crmsync", **chosen})
        assert response.status_code == 200
        return response.content.decode().replace(",", "").replace("\xa0", "")

    def test_by_source_crm_and_class_of_error(self, counts: None, admin_client: Client) -> None:
        text = self.text(admin_client)
        for shown in ("hubspot", "tryton", "people", "hive", "9871", "9873", "throttled", "14193"):
            assert shown in text, shown

    def test_of_one_crm(self, counts: None, tryton: Policy, admin_client: Client) -> None:
        text = self.text(admin_client, crm=str(tryton.crm_id), period="1h")
        assert "4321" in text
        assert "9872" not in text

    def test_the_file(self, counts: None, tryton: Policy, admin_client: Client) -> None:
        response: Any = admin_client.get(f"{FILE}&by=crm&crm={tryton.crm_id}")
        assert response["Content-Type"].startswith("text/csv")
        header, *rows = csv.reader(io.StringIO(response.getvalue().decode("utf-8-sig")))
        (line,) = (dict(zip(header, row, strict=True)) for row in rows)
        assert (line["crm_title"], line["confirmed"], line["success"]) == (
            "tryton", "4321", "1.0000",
        )  # fmt: skip
