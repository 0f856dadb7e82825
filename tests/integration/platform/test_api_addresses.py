"""The addresses outside the REST API: where they lead, and who gets in."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

pytestmark = pytest.mark.django_db
QUEUES = "/django-rq/"


def test_the_root_leads_to_the_console(client: Client) -> None:
    response = client.get("/")
    assert (response.status_code, response["Location"]) == (302, "/console/")


@pytest.mark.parametrize("path", ["/console/", "/admin/", QUEUES, f"{QUEUES}queues/0/"])
def test_people_without_account_are_sent_to_the_login(client: Client, path: str) -> None:
    response = client.get(path)
    assert response.status_code == 302
    assert response["Location"].startswith("/admin/login/?next=")


@pytest.mark.parametrize("path", [QUEUES, f"{QUEUES}queues/0/", "/console/"])
def test_people_who_are_not_staff_stay_outside(client: Client, path: str) -> None:
    client.force_login(User.objects.create_user("guest"))
    assert client.get(path).status_code == 302


@pytest.mark.parametrize("path", ["stats.json", "metrics"])
def test_queue_figures_are_for_staff(client: Client, path: str) -> None:
    response = client.get(QUEUES + path)
    assert b"jobs" not in response.content


def test_staff_sees_queues_and_console(work_redis: object, client: Client) -> None:
    client.force_login(User.objects.create_superuser("root"))
    assert b"notify-marker" in client.get(QUEUES).content
    assert client.get("/console/").status_code == 200
    assert client.get("/admin/").status_code == 200


def test_an_api_key_opens_no_page(client: Client, settings: Any) -> None:
    response = client.get("/console/", HTTP_AUTHORIZATION="Bearer mp_x")
    assert response.status_code == 302
