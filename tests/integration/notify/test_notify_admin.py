"""Consumers in the admin: headers that stay secret, a secret that is shown once, its rotation."""

import json
from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils import timezone
from standardwebhooks import Webhook

from msgplatform.core.errors import Conflict
from msgplatform.models import AuditLog, Biz
from notify import operations
from notify.directory import Subscriptions
from notify.models import Receive
from tests.support.notify_rows import signed_headers, subscription

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]

CONSUMERS = "/admin/notify/receive/"


@pytest.fixture
def consumer() -> Receive:
    return Receive.objects.create(
        name="till",
        url="https://till.example.com/hook?token=hidden",
        headers={"X-Api-Key": "s3cret-value", "X-Site": "north-value"},
        networks=["10.0.0.0/8"],
    )


def form_of(consumer: Receive, **changes: str) -> dict[str, str]:
    """What the browser sends for the form as it is shown."""
    shown = {
        "name": consumer.name,
        "title": consumer.title,
        "url": consumer.url,
        "delivery": consumer.delivery,
        "header_prefix": consumer.header_prefix,
        "headers": "\n".join(f"{name}: •••" for name in consumer.headers),
        "networks": "\n".join(consumer.networks),
    }
    return {**shown, **changes}


def change(client: Client, consumer: Receive, **changes: str) -> bytes:
    answer = client.post(
        f"{CONSUMERS}{consumer.pk}/change/", form_of(consumer, **changes), follow=True
    )
    assert answer.status_code == 200
    return bytes(answer.content)


def audits(action: str) -> list[dict[str, object]]:
    return list(AuditLog.objects.filter(action=action).values_list("detail", flat=True))


def test_stored_headers_go_to_no_other_host(admin_client: Client, consumer: Receive) -> None:
    page = change(admin_client, consumer, url="https://thief.example/hook").decode()
    assert "entered for https://till.example.com:443" in page
    consumer.refresh_from_db()
    assert consumer.url.startswith("https://till.example.com/")
    for kept in ("https://till.example.com/v2", "https://TILL.example.com:443/v3"):
        change(admin_client, consumer, url=kept)
        consumer.refresh_from_db()
        assert consumer.url == kept
    change(admin_client, consumer, url="https://new.example/", headers="X-Api-Key: fresh")
    consumer.refresh_from_db()
    assert (consumer.url, consumer.headers) == ("https://new.example/", {"X-Api-Key": "fresh"})


# -- headers and lists -------------------------------------------------------------------------
def test_stored_header_values_are_in_no_page(admin_client: Client, consumer: Receive) -> None:
    for path in (CONSUMERS, f"{CONSUMERS}{consumer.pk}/change/"):
        page = admin_client.get(path).content.decode()
        assert "s3cret-value" not in page
        assert consumer.secret not in page
    assert (
        "X-Api-Key: •••" in admin_client.get(f"{CONSUMERS}{consumer.pk}/change/").content.decode()
    )


def test_who_may_only_look_sees_names_of_headers(consumer: Receive) -> None:
    user = User.objects.create_user("looker", password="x", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename="view_receive"))
    client = Client()
    client.force_login(user)
    for path in (CONSUMERS, f"{CONSUMERS}{consumer.pk}/change/"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert "-value" not in answer.content.decode()
        assert consumer.secret not in answer.content.decode()
    assert "X-Api-Key, X-Site" in answer.content.decode()


def test_a_masked_value_keeps_the_old_one(admin_client: Client, consumer: Receive) -> None:
    change(admin_client, consumer, headers="x-api-key: •••\nX-New: fresh-value\n")
    consumer.refresh_from_db()
    assert consumer.headers == {"x-api-key": "s3cret-value", "X-New": "fresh-value"}
    (detail,) = audits("consumer_changed")
    assert detail["changes"] == {"headers": [["X-Api-Key", "X-Site"], ["X-New", "x-api-key"]]}
    assert "value" not in json.dumps(detail)


def test_an_untouched_form_changes_nothing(admin_client: Client, consumer: Receive) -> None:
    before = Receive.objects.filter(pk=consumer.pk).values().get()
    change(admin_client, consumer)
    assert Receive.objects.filter(pk=consumer.pk).values().get() == before
    assert audits("consumer_changed") == []


def test_every_wrong_line_is_named(admin_client: Client, consumer: Receive) -> None:
    page = change(
        admin_client,
        consumer,
        headers="X-Api-Key: •••\nHost: x\nnonsense\nX-Other: •••\nX-Api-Key: two",
        networks="10.0.0.0/8\n\n300.1.1.1/8",
    ).decode()
    assert "Line 2: &#x27;Host&#x27; cannot be set" in page
    assert "Line 3: write it as Name: value" in page
    assert "Line 4: no value of X-Other is stored" in page
    assert "Line 5: X-Api-Key is listed twice" in page
    assert "Line 3: &#x27;300.1.1.1/8&#x27; is not a network" in page
    consumer.refresh_from_db()
    assert consumer.networks == ["10.0.0.0/8"]
    assert not AuditLog.objects.exists()


def test_the_audit_has_both_urls_without_what_may_be_secret(
    admin_client: Client, consumer: Receive
) -> None:
    change(admin_client, consumer, url="https://till.example.com/in?key=hidden", networks="")
    (detail,) = audits("consumer_changed")
    assert detail["changes"] == {
        "url": ["https://till.example.com/hook?•••", "https://till.example.com/in?•••"],
        "networks": [["10.0.0.0/8"], []],
    }


# -- the secret ----------------------------------------------------------------------------------
def test_a_new_secret_is_shown_once_and_in_no_cookie(admin_client: Client) -> None:
    made = admin_client.post(
        f"{CONSUMERS}add/",
        {
            "name": "till",
            "url": "https://till.example.com/",
            "delivery": "push",
            "header_prefix": "webhook",
        },
    )
    secret = Receive.objects.get().secret
    assert made.status_code == 302
    assert secret not in str(made.cookies) + made["Location"]
    page = admin_client.get(made["Location"])
    assert secret in page.content.decode()
    assert "no-store" in page["Cache-Control"]
    again = admin_client.get(made["Location"], follow=True)
    assert again.status_code == 200
    assert secret not in again.content.decode()
    assert "shown already" in again.content.decode()
    assert secret not in json.dumps([*AuditLog.objects.values_list("detail", flat=True)])


def test_a_secret_that_nobody_fetched_goes_away(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("msgplatform.doors.admin.pages.KEPT_SECONDS", -1)
    made = admin_client.post(
        f"{CONSUMERS}add/",
        {
            "name": "till",
            "url": "https://till.example.com/",
            "delivery": "push",
            "header_prefix": "webhook",
        },
    )
    shown = admin_client.get(made["Location"], follow=True).content.decode()
    assert Receive.objects.get().secret not in shown


def rotate(client: Client, consumer: Receive, hours: float) -> str:
    """Through the form as it is shown; the page with the new secret."""
    address = f"{CONSUMERS}{consumer.pk}/rotate/"
    seen = client.get(address).context["form"]["seen"].value()
    answer = client.post(address, {"hours": hours, "seen": seen}, follow=True)
    return str(answer.content.decode())


def test_both_secrets_sign_for_the_hours_that_were_chosen(
    admin_client: Client, consumer: Receive
) -> None:
    row = subscription(Biz.objects.create(name="shop"), "till")
    old = consumer.secret
    shown = rotate(admin_client, consumer, 48)
    consumer.refresh_from_db()
    assert consumer.secret != old
    assert consumer.secret in shown
    assert consumer.previous_secret == old
    assert consumer.previous_secret_until is not None
    lasts = consumer.previous_secret_until - timezone.now()
    assert timedelta(hours=47) < lasts <= timedelta(hours=48)
    settings = Subscriptions()
    settings.refresh()
    ready = settings.get(row.pk)
    assert ready is not None
    # Each secret's own verifier, an independent one, accepts what both sign.
    headers = signed_headers(ready.keys, "7", int(timezone.now().timestamp()))
    for secret in (old, consumer.secret):
        assert Webhook(secret).verify("{}", headers) == {}
    assert audits("consumer_secret_rotated") == [{"old_signs_hours": 48.0}]
    assert old not in shown


def test_after_a_leak_the_old_secret_ends_at_once(admin_client: Client, consumer: Receive) -> None:
    rotate(admin_client, consumer, 0)
    consumer.refresh_from_db()
    assert (consumer.previous_secret, consumer.previous_secret_until) == ("", None)


@pytest.mark.parametrize("hours", ["-1", "169", "", "nan", "x"])
def test_hours_outside_of_the_bounds_are_refused(
    admin_client: Client, consumer: Receive, hours: str
) -> None:
    seen = operations.secret_mark(consumer)
    answer = admin_client.post(f"{CONSUMERS}{consumer.pk}/rotate/", {"hours": hours, "seen": seen})
    assert answer.status_code == 200
    assert Receive.objects.get().secret == consumer.secret


def test_a_form_sent_twice_rotates_once(admin_client: Client, consumer: Receive) -> None:
    address = f"{CONSUMERS}{consumer.pk}/rotate/"
    form = {"hours": 24, "seen": operations.secret_mark(consumer)}
    admin_client.post(address, form)
    first = Receive.objects.get()
    # A browser shows the second answer alone.
    assert first.secret in admin_client.post(address, form, follow=True).content.decode()
    third = admin_client.post(address, form, follow=True).content.decode()
    assert "rotated meanwhile" in third
    assert first.secret not in third
    assert Receive.objects.get().secret == first.secret
    assert Receive.objects.get().previous_secret == consumer.secret
    mark = operations.secret_mark(consumer)
    with pytest.raises(Conflict):
        operations.rotate_secret(consumer.pk, mark, 1, lambda *_line, **_detail: None)


def test_rotation_needs_the_permission_to_change(consumer: Receive) -> None:
    user = User.objects.create_user("looker", password="x", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename="view_receive"))
    client = Client()
    client.force_login(user)
    address = f"{CONSUMERS}{consumer.pk}/rotate/"
    assert client.get(address).status_code == 403
    assert client.post(address, {"hours": 1}).status_code == 403
    assert "Rotate secret" not in client.get(f"{CONSUMERS}{consumer.pk}/change/").content.decode()
    assert client.get(f"{CONSUMERS}{consumer.pk + 1}/rotate/").status_code == 404
