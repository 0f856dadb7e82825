"""Notify with values that no key decrypts: one subscription waits, its form works, others go on."""

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import translation

from msgplatform.core.errors import Undecryptable
from msgplatform.core.secrets import encryption
from msgplatform.models import Alert, Biz
from notify.directory import Subscriptions
from notify.models import Receive, ReceiveMsg
from notify.sender import trial_send
from tests.support import languages
from tests.support.http_sinks import Sink, answering
from tests.support.notify_rows import publish, subscription
from tests.support.notify_turns import run_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]

CONSUMERS = "/admin/notify/receive/"
KNOWN, LOST = (encryption.new_key() for _ in range(2))
HEADERS = {"Authorization": "Bearer tell-nobody"}
_Status = ReceiveMsg.Status


@pytest.fixture
def lost(settings: Any) -> Receive:
    """A consumer whose values were written with a key that is gone."""
    settings.ENCRYPTION_KEYS = (LOST,)
    row = Receive.objects.create(name="lost", url="http://127.0.0.1:9/", headers=HEADERS)
    settings.ENCRYPTION_KEYS = (KNOWN,)
    return row


def delivered(receive: Receive) -> int:
    rows = ReceiveMsg.objects.filter(biz_receive__receive=receive, status=_Status.DELIVERED)
    return rows.count()


def test_its_deliveries_wait_with_an_alert_until_the_key_is_back(
    lost: Receive, settings: Any
) -> None:
    settings.OUTBOUND_ALLOW = ["127.0.0.0/8"]
    biz = Biz.objects.create(name="shop")
    with Sink(answering()) as sink:
        row = subscription(biz, "lost")
        good = subscription(biz, "good").receive
        Receive.objects.update(url=sink.url())
        publish(biz, 3)
        run_until(lambda: delivered(good) == 3 and Alert.objects.exists())
        alert = Alert.objects.get()
        assert (alert.kind, alert.resolved_at) == ("notify.subscription", None)
        assert "ENCRYPTION_KEY" in alert.text
        assert str(alert.key) == f"notify.subscription:{row.pk}"
        assert ReceiveMsg.objects.filter(biz_receive=row, status=_Status.PENDING).count() == 3
        settings.ENCRYPTION_KEYS = (KNOWN, LOST)
        run_until(lambda: delivered(lost) == 3)
        assert {r.headers["authorization"] for r in sink.requests if "authorization" in r.headers}
        alert.refresh_from_db()
        assert alert.resolved_at, "a process that reads it closes the alert of one before"


def test_a_test_send_says_why_not(lost: Receive, admin_client: Client) -> None:
    row = subscription(Biz.objects.create(name="shop"), "lost")
    answer = admin_client.post(f"/admin/notify/bizreceive/{row.pk}/test/")
    assert answer.status_code == 200
    assert "cannot be decrypted" in answer.content.decode()
    with pytest.raises(Exception, match="cannot be decrypted"):
        trial_send.send(row)


class TestForms:
    def form(self, row: Receive, **changes: str) -> dict[str, str]:
        return {
            "name": row.name,
            "url": row.url,
            "delivery": "push",
            "header_prefix": "webhook",
            **changes,
        }

    def test_headers_must_be_written_again(self, lost: Receive, admin_client: Client) -> None:
        address = f"{CONSUMERS}{lost.pk}/change/"
        assert "write all of them again" in admin_client.get(address).content.decode()
        refused = admin_client.post(address, self.form(lost, title="New"))
        assert refused.status_code == 200
        assert "cannot be decrypted" in refused.content.decode()
        new = self.form(lost, title="New", headers="X-Key: fresh-value")
        assert admin_client.post(address, new).status_code == 302
        row = Receive.objects.get()
        assert (row.title, row.headers) == ("New", {"X-Key": "fresh-value"})
        assert "fresh-value" not in admin_client.get(address).content.decode()

    def test_it_is_said_in_the_readers_language(
        self, lost: Receive, admin_client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        languages.translate_all(monkeypatch)
        looker = User.objects.create_user("looker", is_staff=True)
        looker.user_permissions.set(Permission.objects.filter(codename="view_receive"))
        client = Client()
        client.force_login(looker)
        form, page = self.form(lost, url="ftp://x"), f"{CONSUMERS}{lost.pk}/change/"
        seen = client.get(page, headers=languages.CHINESE).content.decode()
        refused = admin_client.post(page, form, headers=languages.CHINESE).content.decode()
        for text in (seen, refused):
            assert "译 the " in text
            assert "cannot be decrypted: add its key to ENCRYPTION_KEY" in text
        assert "译 The URL does not begin with http:// or https://." in refused
        # Logs and alerts are in the language of the platform, whoever made them be written.
        with translation.override("zh-hans"), pytest.raises(Undecryptable, match=r"^the headers "):
            _ = Receive.objects.get().headers

    def test_a_rotation_replaces_the_secret(self, lost: Receive, admin_client: Client) -> None:
        address = f"{CONSUMERS}{lost.pk}/rotate/"
        seen = admin_client.get(address).context["form"]["seen"].value()
        answer = admin_client.post(address, {"hours": 24, "seen": seen}, follow=True)
        row = Receive.objects.get()
        assert row.secret in answer.content.decode()
        assert (row.previous_secret, row.previous_secret_until) == ("", None)

    def test_a_new_secret_waits_encrypted_in_the_session(self, admin_client: Client) -> None:
        made = admin_client.post(
            f"{CONSUMERS}add/",
            {"name": "till", "url": "http://x/", "delivery": "push", "header_prefix": "webhook"},
        )
        secret = Receive.objects.get().secret
        kept = str([session.get_decoded() for session in Session.objects.all()])
        assert "shown_once" in kept
        assert secret.removeprefix("whsec_") not in kept
        assert secret in admin_client.get(made["Location"]).content.decode()


def test_a_subscription_shows_no_secret_of_itself() -> None:
    """What a log line or a traceback with values would write."""
    row = subscription(Biz.objects.create(name="shop"))
    Receive.objects.update(headers=HEADERS)
    known = Subscriptions()
    known.refresh()
    ready = known.get(row.pk)
    assert ready is not None
    assert ready.headers == tuple(HEADERS.items())
    assert "tell-nobody" not in repr(ready)
    assert repr(ready.keys[0]) not in repr(ready)
