"""A colleague is invited by a link: with a role and business systems, once, for a day."""

import email
import re
from collections.abc import Iterator
from email import policy
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.urls import reverse
from pytest_django.fixtures import Settings

from msgplatform import env, person_limits, roles
from msgplatform.core.servers.private_server import free_port
from msgplatform.models import AuditLog, Biz, Role

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.usefixtures("work_redis", "sms_redis"),
]
ADD = "/admin/auth/user/add/"
OWN = "violet umbrella 7"


@pytest.fixture(autouse=True)
def groups() -> None:
    """Tests of others leave no groups behind."""
    roles.make()


def role(name: str) -> str:
    return str(Role.objects.get(name=name).group_id)


def invite(client: Client, **values: Any) -> str:
    """The path of the link that the page after the form shows."""
    form = {"username": "berta", "email": "", "role": role("viewer"), "_save": "1", **values}
    answer = client.post(ADD, form, follow=True)
    return shown_link(answer.content.decode())


def shown_link(page: str) -> str:
    link = re.search(r'<code id="secret">http://testserver(\S+)</code>', page)
    assert link, page
    return link[1].replace("&amp;", "&")


def choose(link: str, password: str = OWN) -> Any:
    """The answer to the password, or to a link that no longer works."""
    browser = Client()
    answer = browser.get(link)
    if answer.status_code != 302:
        return answer
    return browser.post(answer["Location"], {"new_password1": password, "new_password2": password})


def is_over(link: str) -> bool:
    return "This link no longer works" in Client().get(link).content.decode()


def test_from_the_form_to_the_console(admin_client: Client) -> None:
    Biz.objects.create(name="shop")
    link = invite(admin_client, systems=["shop"], email="berta@example.com")
    user = User.objects.get(username="berta")
    assert (user.is_staff, user.is_superuser, user.has_usable_password()) == (True, False, False)
    assert [group.role.name for group in user.groups.select_related("role")] == ["viewer"]
    assert list(person_limits.limit_of(user) or ()) == ["shop"]
    entry = AuditLog.objects.get(action="user_created")
    assert (entry.actor, entry.target) == ("admin", "berta")
    assert entry.detail["changes"] == {
        "username": [None, "berta"], "email": [None, "berta@example.com"],
        "role": [None, "Viewer"], "systems": [None, ["shop"]],
    }  # fmt: skip
    assert link not in str(list(AuditLog.objects.values()))
    token = link.partition("token=")[2]
    assert token not in user.password
    answer = choose(link)
    assert (answer.status_code, answer["Location"]) == (302, reverse("mfa_index"))
    client = Client()
    assert client.login(username="berta", password=OWN)
    assert client.get("/console/").status_code == 200
    assert is_over(link), "it serves once"


def test_the_link_is_shown_once(admin_client: Client) -> None:
    invite(admin_client)
    page = admin_client.get("/admin/auth/user/secret/", follow=True).content.decode()
    assert "token=" not in page


def test_a_new_link_and_the_end_of_all(admin_client: Client, settings: Settings) -> None:
    first = invite(admin_client)
    address = f"/admin/auth/user/{User.objects.get(username='berta').pk}"
    assert "New invitation link" in admin_client.get(f"{address}/change/").content.decode()
    answer = admin_client.post(f"{address}/invite/", follow=True)
    second = shown_link(answer.content.decode())
    assert (is_over(first), is_over(second)) == (True, False)
    admin_client.post(f"{address}/invite/", {"revoke": "1"})
    assert is_over(second)
    actions = AuditLog.objects.order_by("id").values_list("action", flat=True)
    assert list(actions) == ["user_created", "user_invited", "user_invitation_revoked"]
    third = shown_link(admin_client.post(f"{address}/invite/", follow=True).content.decode())
    settings.PASSWORD_RESET_TIMEOUT = -1
    assert is_over(third), "after a day"
    settings.PASSWORD_RESET_TIMEOUT = 3600
    User.objects.filter(username="berta").update(is_active=False)
    assert is_over(third), "of somebody who is disabled"
    User.objects.filter(username="berta").update(is_active=True)
    choose(third)
    answer = admin_client.post(f"{address}/invite/", follow=True)
    assert "has a password" in answer.content.decode()
    assert "New invitation link" not in admin_client.get(f"{address}/change/").content.decode()


def test_nobody_gives_more_than_they_have(client: Client) -> None:
    eve = User.objects.create_user("eve", is_staff=True)
    eve.groups.add(Group.objects.get(pk=role("operator")))
    names = ("add_user", "change_user", "view_user")
    eve.user_permissions.set(Permission.objects.filter(codename__in=names))
    client.force_login(eve)
    page = client.get(ADD).content.decode()
    assert "changes no setting" in page
    assert "with people and keys too" not in page
    refused = client.post(ADD, {"username": "x", "role": role("administrator"), "_save": "1"})
    assert refused.context["adminform"].form.errors["role"]
    assert not User.objects.filter(username="x").exists()


@pytest.mark.parametrize("name", ["EVE", "eve ", ""])
def test_names_that_are_taken(admin_client: Client, name: str) -> None:
    User.objects.create_user("eve")
    form = {"username": name, "role": role("viewer"), "_save": "1"}
    assert admin_client.post(ADD, form).context["adminform"].form.errors["username"]
    assert User.objects.count() == 2


class Mail:
    """A mail server that takes everything."""

    def __init__(self) -> None:
        self.mails: list[Any] = []

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802
        self.mails.append(email.message_from_bytes(envelope.content, policy=policy.default))
        return "250 OK"


@pytest.fixture
def mail(settings: Settings) -> Iterator[Controller]:
    controller = Controller(Mail(), hostname="127.0.0.1", port=free_port(), ready_timeout=60)
    controller.start()
    settings.MAIL_URL = f"smtp://127.0.0.1:{controller.port}/?from=a+b@msg.example"
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    for name, value in env.mail_server(settings.MAIL_URL).items():
        setattr(settings, name, value)
    yield controller
    controller.stop()


def test_by_mail(admin_client: Client, mail: Controller) -> None:
    link = invite(admin_client, email="berta@example.com")
    (sent,) = mail.handler.mails
    assert (sent["To"], sent["From"]) == ("berta@example.com", "a+b@msg.example")
    assert f"http://testserver{link}" in sent.get_content()


def test_a_mail_that_does_not_leave(
    admin_client: Client, mail: Controller, settings: Settings
) -> None:
    """The link is shown all the same."""
    settings.OUTBOUND = False
    assert invite(admin_client, email="a@example.com")
    assert mail.handler.mails == []
    settings.OUTBOUND = True
    settings.EMAIL_PORT = free_port()
    form = {"username": "carl", "email": "c@example.com", "role": role("viewer"), "_save": "1"}
    page = admin_client.post(ADD, form, follow=True).content.decode()
    assert "The mail was not sent" in page
    assert shown_link(page)
