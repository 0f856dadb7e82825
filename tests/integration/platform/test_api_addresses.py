"""The addresses outside the REST API: where they lead, and who gets in."""

import html
import re
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


@pytest.mark.parametrize("path", ["queues/99/", "queues/99/details/", "queues/99/some-job/"])
def test_a_queue_that_is_gone_is_not_an_error(
    work_redis: object, admin_client: Client, path: str
) -> None:
    answer = admin_client.get(QUEUES + path, follow=True)
    assert answer.status_code == 404
    assert b"This queue is gone" in answer.content


def test_a_form_that_is_too_old_leads_to_the_login_and_back(client: Client) -> None:
    """It was open when the login ended."""
    User.objects.create_superuser("root", password="a good password")
    strict = Client(enforce_csrf_checks=True)
    page = "http://testserver/console/bulk/notify?action=resend&ids=5"
    answer = strict.post("/console/bulk/notify", {}, headers={"Referer": page})
    assert answer.status_code == 403
    (link,) = re.findall('href="([^"]*)"[^>]*>Open it again', answer.content.decode())
    link = html.unescape(link)
    asked = client.get(link, follow=True)
    login, _status = asked.redirect_chain[-1]
    assert login.startswith("/admin/login/?next=")
    given = {"username": "root", "password": "a good password"}
    entered = client.post(login, given, follow=True)
    assert entered.redirect_chain == [("/console/bulk/notify?action=resend&ids=5", 302)]


@pytest.mark.parametrize("page", ["https://evil.example/console/", "javascript:alert(1)", ""])
def test_a_form_that_is_too_old_leads_nowhere_else(page: str) -> None:
    strict = Client(enforce_csrf_checks=True)
    answer = strict.post("/console/bulk/notify", {}, headers={"Referer": page} if page else {})
    assert answer.status_code == 403
    assert re.findall('href="([^"]*)"', answer.content.decode()) == ["/", "/"]
