"""The status on every page of the console: green only when nothing is known to be wrong."""

import re
from collections.abc import Iterator

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django.fixtures import Settings

from msgplatform.core import alerts
from msgplatform.core.alerts import AlertEvent
from msgplatform.core.daemons import heartbeats
from msgplatform.core.daemons.heartbeats import Heartbeat
from msgplatform.core.data import sql
from msgplatform.core.flows.programs import program_roles
from msgplatform.models import Alert, FailureGroup
from msgplatform.monitor import failure_groups, failure_store
from msgplatform.monitor.failure_groups import GroupSnapshot
from msgplatform.monitor.failure_store import Loss
from msgplatform.monitor.watch import of_flows

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
PAGES = [
    "/console/",
    "/console/search",
    "/admin/",
    "/admin/notify/bizreceive/",
    "/admin/password_change/",
]


@pytest.fixture
def everybody(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Heartbeat]]:
    """A heartbeat for each program there is, which lasts as long as a test may."""
    monkeypatch.setattr(heartbeats._heartbeats, "_seconds", 3600.0)
    beats = [Heartbeat(role) for role in sorted(program_roles())]
    for beat in beats:
        beat.send()
    yield beats
    for beat in beats:
        beat.withdraw()


def status(client: Client, page: str) -> str:
    """What stands beside the overview in the side bar."""
    text = client.get(page).content.decode()
    found = re.search(
        r"monitoring.*?bg-(green|red|orange)-100[^>]*>\s*([^<]*?)\s*<", text, re.DOTALL
    )
    assert found
    assert (found[1] == "green") == (found[2] == "OK")
    return found[2]


@pytest.mark.parametrize("page", PAGES)
def test_all_is_well(everybody: list[Heartbeat], admin_client: Client, page: str) -> None:
    assert status(admin_client, page) == "OK"


@pytest.mark.parametrize("page", PAGES)
def test_every_page_says_what_is_wrong(
    everybody: list[Heartbeat], admin_client: Client, page: str
) -> None:
    alerts.raise_event(AlertEvent("sms.link", "No link", "to the gateway", key="sms.link:1"))
    assert status(admin_client, page) == "1 problem"
    everybody[0].withdraw()
    assert status(admin_client, page) == "2 problems"
    Alert.objects.update(open_key=None)
    assert status(admin_client, page) == "1 problem"


def test_a_failure_counts_once_and_until_it_is_acknowledged(
    everybody: list[Heartbeat], admin_client: Client
) -> None:
    failure_store.add("notify", [Loss(7, "HTTP 503", 1)] * 5, sql.now())
    assert status(admin_client, "/admin/") == "1 problem"
    of_flows.report_failures()
    assert Alert.objects.get().kind == "notify.failures"
    assert status(admin_client, "/admin/") == "1 problem", "the alert says the same"
    group = FailureGroup.objects.get()
    failure_groups.acknowledge(GroupSnapshot(group.pk, 5, group.last_at), "", "", "known", "ann")
    of_flows.report_failures()
    assert status(admin_client, "/admin/") == "OK"


def test_a_program_with_an_alert_counts_once(
    everybody: list[Heartbeat], admin_client: Client
) -> None:
    """The overview shows both; there is one thing to do."""
    role = everybody[0].role
    everybody[0].withdraw()
    alerts.raise_event(AlertEvent("platform.silent", role, "", key=f"platform.silent:{role}"))
    assert status(admin_client, "/admin/") == "1 problem"
    page = admin_client.get("/console/").content.decode()
    assert f"No heartbeat:</b> {role}. Messages wait. If the program's process is there" in page
    Alert.objects.update(acknowledged_at=sql.now())
    assert status(admin_client, "/admin/") == "1 acknowledged"


def test_an_alert_that_somebody_has_seen_is_not_green(
    everybody: list[Heartbeat], admin_client: Client
) -> None:
    alerts.raise_event(AlertEvent("sms.link", "No link", "to the gateway", key="sms.link:1"))
    Alert.objects.update(acknowledged_at=sql.now(), acknowledged_by="ann", note="they know")
    shown = status(admin_client, "/console/")
    assert shown == "1 acknowledged"
    assert "nothing needs you" not in admin_client.get("/console/").content.decode()


def test_a_page_asks_once(everybody: list[Heartbeat], admin_client: Client) -> None:
    """The side bar and the overview say the same, and the overview is drawn with the side bar."""
    admin_client.get("/console/")
    with CaptureQueriesContext(connection) as made:
        admin_client.get("/console/")
    asked = [query["sql"] for query in made if "msgplatform_givenup" in query["sql"]]
    # Once for the condition, and once for the messages on the cards.
    assert len(asked) == 2


def test_without_redis_it_is_not_green(
    everybody: list[Heartbeat], admin_client: Client, settings: Settings
) -> None:
    settings.REDIS_URL = "unix:///no/such/redis.sock"
    assert status(admin_client, "/console/") == "1 problem"
    assert "Redis does not answer" in admin_client.get("/console/").content.decode()
