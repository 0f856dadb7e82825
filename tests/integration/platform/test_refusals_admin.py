"""What the console's forms refuse: each with a sentence at its field, and nothing is written."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from msgplatform.doors.api.access import keys
from msgplatform.jobs.models import BulkJob
from msgplatform.models import ApiKey, Biz
from notify.models import BizReceive, Receive

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("work_redis")]

CONSUMER = {
    "name": "till", "title": "", "url": "https://till.example.com/hook",
    "delivery": "push", "header_prefix": "webhook", "headers": "", "networks": "",
}  # fmt: skip
SUBSCRIPTION = {
    "status": "0", "event_types": "", "channels": "", "timeout": "", "schedule": "5 s\n5 min",
    "attempts_limit": "", "format": "standard", "log_answers": "all", "in_flight_limit": "32",
    "rate_limit": "",
}  # fmt: skip
SYSTEM = {"name": "orders", "title": "", "enabled": "on"}
KEY = {"name": "till", "scopes": ["events:write"], "expires_at_0": "", "expires_at_1": ""}

CASES: list[tuple[str, dict[str, Any], str, str]] = [
    ("receive", {"name": ""}, "name", "required"),
    ("receive", {"name": "two words"}, "name", "valid"),
    ("receive", {"url": ""}, "url", "write the URL"),
    ("receive", {"url": "ftp://x.example.com/"}, "url", "http:// or https://"),
    ("receive", {"url": "https://user:pw@x.example.com/"}, "url", "user name or password"),
    ("receive", {"url": "https://x.example.com:99999/"}, "url", "port"),
    ("receive", {"url": "https://x.exa mple.com/"}, "url", "space"),
    ("receive", {"header_prefix": "Web Hook"}, "header_prefix", "lower-case letters"),
    ("receive", {"headers": "Host: x"}, "headers", "cannot be set"),
    ("receive", {"headers": "Content-Length: 1"}, "headers", "cannot be set"),
    ("receive", {"headers": "webhook-id: 1"}, "headers", "cannot be set"),
    ("receive", {"header_prefix": "acme", "headers": "Acme-Id: 1"}, "headers", "platform sets"),
    ("receive", {"headers": "X-Name"}, "headers", "Name: value"),
    ("receive", {"headers": "X-Name: ü"}, "headers", "visible ASCII"),
    ("receive", {"networks": "10.0.0.0/33"}, "networks", "not a network"),
    ("receive", {"networks": "10.0.0.1/8"}, "networks", "not a network"),
    ("bizreceive", {"event_types": "order paid"}, "event_types", "Line 1"),
    ("bizreceive", {"channels": "eu west"}, "channels", "Line 1"),
    ("bizreceive", {"timeout": "0.1"}, "timeout", "0.5 to"),
    ("bizreceive", {"timeout": "3600"}, "timeout", "before its lease"),
    ("bizreceive", {"schedule": "soon"}, "schedule", "not a valid delay"),
    ("bizreceive", {"schedule": "8 d"}, "schedule", "7 d"),
    ("bizreceive", {"attempts_limit": "0"}, "attempts_limit", "greater than or equal to 1"),
    ("bizreceive", {"attempts_limit": "52"}, "attempts_limit", "less than or equal to 51"),
    ("bizreceive", {"in_flight_limit": "0"}, "in_flight_limit", "greater than or equal to 1"),
    ("bizreceive", {"in_flight_limit": "1001"}, "in_flight_limit", "less than or equal to 1000"),
    ("bizreceive", {"rate_limit": "0"}, "rate_limit", "greater than or equal to 0.01"),
    ("bizreceive", {"rate_limit": "nan"}, "rate_limit", "number"),
    ("biz", {"name": ""}, "name", "required"),
    ("biz", {"name": "a b"}, "name", "valid"),
    ("apikey", {"name": ""}, "name", "required"),
    ("apikey", {"name": "CI/CD"}, "name", "No slash"),
    ("apikey", {"name": "CI\u200b"}, "name", "where the key is used"),
    ("apikey", {"scopes": ["everything"]}, "scopes", "valid choice"),
    ("apikey", {"scopes": []}, "scopes", "required"),
    ("apikey", {"expires_at_0": "2020-01-01", "expires_at_1": "00:00"}, "expires_at", "the past"),
    ("apikey", {"expires_at_0": "tomorrow", "expires_at_1": "x"}, "expires_at", "valid"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("model", "wrong", "field", "says"),
    CASES,
    ids=[f"{c[0]}-{c[2]}-{n}" for n, c in enumerate(CASES)],
)
def test_refused_with_a_sentence(
    admin_client: Client, model: str, wrong: dict[str, Any], field: str, says: str
) -> None:
    biz = Biz.objects.create(name="system")
    receive = Receive.objects.create(name="consumer", url="https://x.example.com/")
    requests: dict[str, tuple[str, dict[str, Any]]] = {
        "receive": ("notify", CONSUMER),
        "bizreceive": ("notify", {**SUBSCRIPTION, "biz": biz.pk, "receive": receive.pk}),
        "biz": ("msgplatform", SYSTEM),
        "apikey": ("msgplatform", {**KEY, "biz": biz.pk}),
    }
    app, form = requests[model]
    before = counts()
    answer = admin_client.post(f"/admin/{app}/{model}/add/", {**form, **wrong})
    assert answer.status_code == 200, "the form is shown again"
    errors = answer.context["adminform"].form.errors
    assert field in errors, dict(errors)
    assert says in " ".join(errors[field])
    assert counts() == before, "nothing is written"


@pytest.mark.parametrize("model", ["receive", "bizreceive", "biz", "apikey"])
def test_the_forms_are_right_without_the_fault(admin_client: Client, model: str) -> None:
    """Else the table would show that a form refuses everything."""
    biz = Biz.objects.create(name="system")
    receive = Receive.objects.create(name="consumer", url="https://x.example.com/")
    requests: dict[str, tuple[str, dict[str, Any]]] = {
        "receive": ("notify", CONSUMER),
        "bizreceive": ("notify", {**SUBSCRIPTION, "biz": biz.pk, "receive": receive.pk}),
        "biz": ("msgplatform", SYSTEM),
        "apikey": ("msgplatform", {**KEY, "biz": biz.pk}),
    }
    app, form = requests[model]
    before = counts()
    answer = admin_client.post(f"/admin/{app}/{model}/add/", form)
    assert answer.status_code == 302, answer.context["adminform"].form.errors
    assert counts() != before


def test_a_key_of_an_earlier_release_keeps_its_name(admin_client: Client) -> None:
    biz = Biz.objects.create(name="system")
    key = ApiKey.objects.create(biz=biz, name="CI/CD", scopes=KEY["scopes"])
    address, form = f"/admin/msgplatform/apikey/{key.pk}/change/", {**KEY, "biz": biz.pk}
    answers = [admin_client.post(address, {**form, "name": name}) for name in ("CI/CD", "C/D")]
    assert [answer.status_code for answer in answers] == [302, 200]


def test_a_key_that_has_expired_is_changed_and_stays_expired(admin_client: Client) -> None:
    end = timezone.now() - timedelta(days=1)
    key = keys.create(Biz.objects.create(name="system"), "till", KEY["scopes"])[0]
    ApiKey.objects.update(expires_at=end)
    address = f"/admin/msgplatform/apikey/{key.pk}/change/"
    form = {**KEY, "name": "shop", "expires_at_0": f"{end:%Y-%m-%d}", "expires_at_1": f"{end:%X}"}
    assert admin_client.post(address, {**form, "expires_at_0": "2020-01-01"}).status_code == 200
    assert admin_client.post(address, form).status_code == 302
    assert ApiKey.objects.values_list("name", "expires_at").get() == ("shop", end)


def test_a_pair_is_subscribed_once(admin_client: Client) -> None:
    biz = Biz.objects.create(name="system")
    receive = Receive.objects.create(name="consumer", url="https://x.example.com/")
    BizReceive.objects.create(biz=biz, receive=receive)
    form = {**SUBSCRIPTION, "biz": biz.pk, "receive": receive.pk}
    answer = admin_client.post("/admin/notify/bizreceive/add/", form)
    assert "already exists" in answer.content.decode()
    assert BizReceive.objects.count() == 1


def counts() -> tuple[int, ...]:
    models = (Receive, BizReceive, Biz, ApiKey, BulkJob)
    return tuple(model._default_manager.count() for model in models)
