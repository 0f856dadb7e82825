"""A test SMS from the console: a real message, followed step by step."""

import html
import secrets
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from gateway.api import trials
from gateway.connections import sms_redis as sms_client
from gateway.intake.accept import accept
from gateway.lifecycle import store
from gateway.models import SmsAccount, SmsGateway
from msgplatform.core.errors import OutcomeUnknown
from msgplatform.models import AuditLog
from tests.support import languages, sms_rows
from tests.support.sms_rows import Caller, gateway, report, respond, submit

shop = sms_rows.shop
pytestmark = pytest.mark.django_db(transaction=True)
PAGE, LIST = "/admin/gateway/smsaccount/test/", "/console/search/sms"


def form(**changed: Any) -> dict[str, Any]:
    """What the browser sends for a form that was opened anew."""
    given = {
        "account": SmsAccount.objects.get().pk, "gateway": "", "to": "13800000000",
        "text": "您好", "key": f"console-{secrets.token_hex(12)}",
    }  # fmt: skip
    return {**given, **changed}


def test_from_the_form_to_the_handset(admin_client: Client, shop: Caller) -> None:
    other = gateway("backup", priority=9)
    assert "A test message" in admin_client.get(PAGE).content.decode()
    answer = admin_client.post(PAGE, form(gateway=other.pk))
    assert answer.status_code == 302
    message = answer["Location"].partition("?message=")[2]
    (found,) = store.read([message])
    assert (found.mt.text, found.mt.user_number) == ("您好", "8613800000000")
    assert (found.mt.reference, list(found.mt.gateways)) == ("test from the console", [other.pk])
    entry = AuditLog.objects.get()
    assert (entry.action, entry.target) == ("sms_tested", message)
    waiting = admin_client.get(answer["Location"]).content.decode()
    assert f"/console/sms/{message}" in waiting
    assert 'id="waits"' in waiting
    (seqno,) = submit(other.pk)[message]
    respond(seqno)
    assert "Response" in admin_client.get(answer["Location"]).content.decode()
    report(seqno)
    ended = admin_client.get(answer["Location"]).content.decode()
    assert 'class="delivered"' in ended
    assert 'id="waits"' not in ended


def test_a_form_sent_twice_is_one_message(admin_client: Client, shop: Caller) -> None:
    key = admin_client.get(PAGE).context["form"]["key"].value()
    first, second = (admin_client.post(PAGE, form(key=key)) for _ in range(2))
    assert second["Location"] == first["Location"]
    assert len(sms_client().keys("*mt:*")) == AuditLog.objects.count() == 1
    for other in ({"text": "x"}, {"gateway": gateway("backup").pk}):
        assert "Open it anew" in admin_client.post(PAGE, form(key=key, **other)).content.decode()
    assert admin_client.get(PAGE).context["form"]["key"].value() != key


def test_one_whose_answer_was_lost_has_its_author_when_it_is_sent_again(
    admin_client: Client, shop: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer_is_lost(requests: Any) -> Any:
        monkeypatch.setattr(trials, "accept", accept)
        accept(requests)
        raise OutcomeUnknown("the connection broke")

    monkeypatch.setattr(trials, "accept", answer_is_lost)
    sent = form()
    assert "may have been sent" in admin_client.post(PAGE, sent).content.decode()
    message = admin_client.post(PAGE, sent)["Location"].partition("?message=")[2]
    entry = AuditLog.objects.get()
    assert (entry.action, entry.target) == ("sms_tested", message)


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"to": "abc"}, "to"),
        ({"text": "a\x00b"}, "text"),
        ({"text": "bell \x07"}, "text"),
        ({"account": "0"}, "account"),
    ],
)
def test_what_is_wrong_is_said_at_its_field(
    admin_client: Client, shop: Caller, changed: dict[str, Any], field: str
) -> None:
    answer = admin_client.post(PAGE, form(**changed))
    assert list(answer.context["form"].errors) == [field]
    assert not AuditLog.objects.exists()


@pytest.mark.parametrize(
    ("changed", "row", "words"),
    [
        ({"to": "1"}, {}, "译 '1' is not a telephone number"),
        ({"text": "bell \x07"}, {}, "译 use no control characters but tabs and line breaks"),
        ({}, {"daily_limit": 1}, "译 the account's limit of 1 messages a day has no room for"),
    ],
)
def test_what_is_wrong_is_said_in_the_readers_language(
    admin_client: Client,
    shop: Caller,
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[str, Any],
    row: dict[str, Any],
    words: str,
) -> None:
    languages.translate_all(monkeypatch)
    SmsAccount.objects.update(**row)
    if row:
        assert admin_client.post(PAGE, form()).status_code == 302
    answer = admin_client.post(PAGE, form(**changed), headers=languages.CHINESE)
    assert words in html.unescape(answer.content.decode())
    # A program's answer is in the language of the platform, whoever asks.
    sent = shop.post("/api/v1/sms", {"to": ["1"], "text": "hi"}, **languages.CHINESE)
    assert "'1' is not a telephone number" in sent.content.decode()
    assert "译" not in sent.content.decode()


def test_a_gateway_that_the_account_may_not_use(admin_client: Client, shop: Caller) -> None:
    unused = gateway("unused")
    SmsAccount.objects.get().gateways.set(SmsGateway.objects.exclude(pk=unused.pk))
    answer = admin_client.post(PAGE, form(gateway=unused.pk))
    assert list(answer.context["form"].errors) == ["gateway"]
    assert not sms_client().keys("*mt:*")


def test_its_number_is_masked_and_no_other_message_is_followed(
    admin_client: Client, shop: Caller
) -> None:
    test = admin_client.post(PAGE, form())["Location"]
    user = User.objects.create_user("clerk", password="x", is_staff=True)
    permissions = ["view_sgipmt", "change_sgipmt"]
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    clerk = Client()
    clerk.force_login(user)
    assert clerk.get(LIST).content.decode().count(f'href="{PAGE}"') == 2, "side bar and list"
    assert "8613800000000" in admin_client.get(test).content.decode()
    page = clerk.get(test).content.decode()
    assert "861****0000" in page
    assert "8613800000000" not in page
    other = sms_rows.send(shop.biz)
    for client in (clerk, admin_client):
        page = client.get(f"{PAGE}?message={other}").content.decode()
        assert "There is no such message" in page


def test_who_may_only_look_sends_nothing(shop: Caller) -> None:
    user = User.objects.create_user("looker", password="x", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename="view_sgipmt"))
    client = Client()
    client.force_login(user)
    assert client.get(PAGE).status_code == 403
    assert client.post(PAGE, form()).status_code == 403
    assert PAGE not in client.get(LIST).content.decode()
