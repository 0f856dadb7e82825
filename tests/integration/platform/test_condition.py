"""The status on every page of the console: green only when nothing is known to be wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from msgplatform.core import alerts, flows
from msgplatform.core.alerts import AlertEvent
from msgplatform.core.daemons.heartbeats import Heartbeat
from msgplatform.models import Alert

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
PAGES = [
    "/console/",
    "/console/search",
    "/admin/",
    "/admin/notify/bizreceive/",
    "/admin/password_change/",
]


@pytest.fixture
def everybody() -> Iterator[list[Heartbeat]]:
    """A heartbeat for each program there is."""
    beats = [Heartbeat(role) for role in sorted(flows.roles())]
    for beat in beats:
        beat.send()
    yield beats
    for beat in beats:
        beat.withdraw()


def status(client: Client, page: str) -> str:
    """What stands beside the overview in the side bar."""
    text = client.get(page).content.decode()
    found = re.search(r"monitoring.*?bg-(green|red)-100[^>]*>\s*([^<]*?)\s*<", text, re.DOTALL)
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


def test_without_redis_it_is_not_green(
    everybody: list[Heartbeat], admin_client: Client, settings: Settings
) -> None:
    settings.REDIS_URL = "unix:///no/such/redis.sock"
    assert status(admin_client, "/console/") == "1 problem"
    assert "Redis does not answer" in admin_client.get("/console/").content.decode()
