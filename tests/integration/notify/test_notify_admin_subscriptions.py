"""Subscriptions in the admin: the list's live state, the page of one, pausing and resuming."""

from datetime import timedelta
from typing import Any

import pytest
import redis
from django.conf import LazySettings
from django.contrib.auth.models import Permission, User
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from msgplatform.core.rates.breaker import State
from msgplatform.models import Alert, AuditLog, Biz, MinuteCounter
from notify import operations, presence
from notify.admin import health, subscription_cells, subscriptions
from notify.maker.maker import Maker
from notify.models import Attempt, BizReceive, ReceiveMsg
from notify.monitor import failures
from notify.monitor.counters import CatalogueSubjects
from tests.support.notify_rows import publish, subscription

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]

SUBSCRIPTIONS = "/admin/notify/bizreceive/"
Status = BizReceive.Status
HOUR = timedelta(hours=1)


@pytest.fixture
def biz() -> Biz:
    return Biz.objects.create(name="orders")


def rows_of(client: Client, query: str = "") -> list[BizReceive]:
    answer = client.get(SUBSCRIPTIONS + query)
    assert answer.status_code == 200
    return list(answer.context["cl"].result_list)


def page(client: Client, row: BizReceive) -> str:
    answer = client.get(f"{SUBSCRIPTIONS}{row.pk}/change/")
    assert answer.status_code == 200
    return str(answer.content.decode())


def count(row: BizReceive, name: str, value: int, minutes_ago: int = 5) -> None:
    minute = timezone.now() - timedelta(minutes=minutes_ago)
    MinuteCounter.objects.create(
        minute=minute.replace(second=0, microsecond=0), flow="notify", biz_id=row.biz_id,
        subject=row.pk, name=name, value=value,
    )  # fmt: skip


# -- the list ------------------------------------------------------------------------------------
def test_the_list_asks_as_much_for_200_rows_as_for_20(
    biz: Biz, admin_client: Client, work_redis: redis.Redis
) -> None:
    def queries(rows: int) -> int:
        for n in range(BizReceive.objects.count(), rows):
            row = subscription(biz, f"consumer-{n}")
            count(row, "delivered", 1)
        before = int(work_redis.info("stats")["total_commands_processed"])
        with CaptureQueriesContext(connection) as captured:
            assert len(rows_of(admin_client, "?all=")) == rows
        commands = int(work_redis.info("stats")["total_commands_processed"]) - before
        assert commands < rows * 2 + 30  # the lengths of each queue, in one round trip
        return len(captured)

    queries(1)  # what a process asks once
    assert queries(20) == queries(200)


def test_a_row_says_how_it_is_doing(biz: Biz, admin_client: Client) -> None:
    row = subscription(biz, rate_limit=5)
    publish(biz, 3)
    Maker().splitter.split()
    ReceiveMsg.objects.update(next_at=timezone.now() - timedelta(minutes=14, seconds=30))
    presence.report({row.pk: presence.LaneState("s", in_flight=7, breaker=State.OPEN, retry_in=90)})
    count(row, "delivered", 2999)
    count(row, "failed", 1)
    count(row, "delivered", 10_000, minutes_ago=90)  # longer ago than the hour
    BizReceive.objects.update(failing_since=timezone.now() - timedelta(hours=50), failures=33)
    (shown,) = rows_of(admin_client)
    state: health.Health = shown.health  # type: ignore[attr-defined]
    assert (state.waiting, state.delivered, state.failed) == (3, 2999, 1)
    assert state.due_seconds is not None
    assert 14 * 60 < state.due_seconds < 16 * 60
    text = admin_client.get(SUBSCRIPTIONS).content.decode()
    for part in ("14 min", "7 / 32", "99.9 %", "2 d, 33 in a row", "5/s", "open, probe"):
        assert part in text


def state_of(row: Any) -> str:
    row.refresh_from_db()
    row.health = health.read([row])[row.pk]
    return str(subscription_cells.state(row))


def test_the_state_is_what_its_deliveries_say(biz: Biz) -> None:
    row = subscription(biz, in_flight_limit=4)
    assert "idle" in state_of(row)
    publish(biz, 3)
    Maker().splitter.split()
    assert "delivering" in state_of(row)
    ReceiveMsg.objects.update(next_at=timezone.now() - timedelta(minutes=10))
    live = presence.LaneState("s", in_flight=4, waiting=2, busy_for=3600, busy_per_second=0.05)
    presence.report({row.pk: live})
    said = state_of(row)
    assert "busy" in said
    assert "4 of 4 slots" in said
    assert "3 a minute, about 1 min left" in said
    presence.report({row.pk: presence.LaneState("s", breaker=State.OPEN)})
    assert "failing" in state_of(row)
    presence.report({row.pk: presence.LaneState("s")})
    BizReceive.objects.update(failing_since=timezone.now(), failures=2)
    assert "retrying" in state_of(row)
    BizReceive.objects.update(failures=3)
    assert "failing" in state_of(row)
    minute_ago = timezone.now() - timedelta(seconds=61)
    BizReceive.objects.update(failing_since=minute_ago, failures=1)
    assert "failing" in state_of(row)
    BizReceive.objects.update(status=Status.PAUSED)
    assert "paused" in state_of(row)


def test_what_is_queued_has_an_age_too(biz: Biz, settings: LazySettings) -> None:
    row = subscription(biz)
    publish(biz, 3)
    Maker().turn()
    claimed_for = settings.NOTIFY_LEASE_SECONDS - 100
    ReceiveMsg.objects.update(next_at=timezone.now() + timedelta(seconds=claimed_for))
    assert 99 <= (health.read([row])[row.pk].due_seconds or 0) <= 130
    presence.report({row.pk: presence.LaneState("s", waiting=2, oldest_for=900)})
    assert health.read([row])[row.pk].due_seconds == 900


def test_failures_stay_on_the_row_until_somebody_looks(biz: Biz, admin_client: Client) -> None:
    calm, lossy = subscription(biz, "a-calm"), subscription(biz, "b-lossy")
    with transaction.atomic():
        failures.count_ended(
            ReceiveMsg.Status.EXHAUSTED, lossy.pk, [1, 2, 3], "timeout", timezone.now(),
            CatalogueSubjects(),
        )  # fmt: skip
    assert rows_of(admin_client) == [lossy, calm]
    assert rows_of(admin_client, "?attention=yes") == [lossy]
    (shown,) = rows_of(admin_client, "?attention=yes")
    assert shown.health.failures == 3  # type: ignore[attr-defined]
    address = reverse("console:failures")
    text = admin_client.get(SUBSCRIPTIONS).content.decode()
    assert f'href="{address}">3</a>' in text


def test_what_needs_attention_comes_first_and_can_be_had_alone(
    biz: Biz, admin_client: Client
) -> None:
    calm = subscription(biz, "a-calm")
    retrying = subscription(biz, "a-retrying", failing_since=timezone.now(), failures=1)
    failing = subscription(biz, "b-failing", failing_since=timezone.now(), failures=3)
    disabled = subscription(
        biz, "c-disabled", status=Status.DISABLED, disabled_reason="answered 410 Gone"
    )
    opened = subscription(biz, "d-open")
    presence.report({opened.pk: presence.LaneState("s", breaker=State.OPEN)})
    assert rows_of(admin_client) == [failing, disabled, opened, calm, retrying]
    assert rows_of(admin_client, "?attention=yes") == [failing, disabled, opened]
    assert rows_of(admin_client, "?o=-1")[0].pk in {r.pk for r in (calm, failing)}
    assert "answered 410 Gone" in admin_client.get(SUBSCRIPTIONS).content.decode()


def test_the_only_system_is_chosen_already(biz: Biz, admin_client: Client) -> None:
    address = f"{SUBSCRIPTIONS}add/"
    chosen = f'<option value="{biz.pk}" selected'
    assert chosen in admin_client.get(address).content.decode()
    Biz.objects.create(name="another")
    assert chosen not in admin_client.get(address).content.decode()


def test_show_all_is_offered_only_when_a_filter_leaves_something_out(
    biz: Biz, admin_client: Client
) -> None:
    subscription(biz)
    assert "Show all" not in admin_client.get(SUBSCRIPTIONS).content.decode()
    assert "Show all" in admin_client.get(f"{SUBSCRIPTIONS}?attention=yes").content.decode()


def test_the_list_stands_without_redis(
    biz: Biz, admin_client: Client, settings: LazySettings
) -> None:
    row = subscription(biz)
    publish(biz, 3)
    Maker().splitter.split()
    settings.REDIS_URL = "redis://127.0.0.1:9/0"
    assert rows_of(admin_client)[0].health.waiting == 3  # type: ignore[attr-defined]
    assert "unknown" in admin_client.get(SUBSCRIPTIONS).content.decode()
    assert "unknown" in page(admin_client, row)


# -- the page of one -----------------------------------------------------------------------------
def test_the_page_says_since_when_it_fails_and_until_when_it_may(
    biz: Biz, admin_client: Client, settings: LazySettings
) -> None:
    row = subscription(biz)
    assert "in a row" not in page(admin_client, row)
    BizReceive.objects.update(failing_since=timezone.now(), failures=1)
    assert '<p class="notice warn">1 failure in a row since' in page(admin_client, row)
    since = timezone.now() - timedelta(hours=20)
    BizReceive.objects.update(failing_since=since, failures=12)
    settings.NOTIFY_DISABLE_AFTER_HOURS = 120
    text = page(admin_client, row)
    will = timezone.localtime(since + timedelta(hours=120))
    assert "12 failures in a row since" in text
    assert f"disabled on {will:%Y-%m-%d %H:%M}" in text
    settings.NOTIFY_DISABLE_AFTER_HOURS = 0
    assert "disabled on" not in page(admin_client, row)


def test_the_page_links_to_what_failed(biz: Biz, admin_client: Client) -> None:
    row = subscription(biz)
    message = publish(biz)[0]
    Maker().splitter.split()
    ReceiveMsg.objects.update(status=ReceiveMsg.Status.EXHAUSTED, send_times=2)
    delivery = ReceiveMsg.objects.get()
    for number, (status, detail) in enumerate([(500, "first"), (503, "<b>second</b>")], 1):
        Attempt.objects.create(
            id=number, copy=delivery, claim=str(number), number=number, at=timezone.now(),
            seconds=0.5, http_status=status, detail=detail,
        )  # fmt: skip
    text = page(admin_client, row)
    assert f"/console/notify/{message}" in text
    assert "HTTP 503" in text
    assert "&lt;b&gt;second" in text
    assert "HTTP 500" not in text  # of one delivery the last attempt only
    named = f"{row.biz.name}/{row.receive.name}"
    wizard = f"/console/bulk/notify?action=resend&subscription={named}&status=exhausted&count=1"
    assert wizard.replace("&", "&amp;") in text
    assert admin_client.get(wizard).context["counted"].count == 1
    link = f"/console/search/notify?subscription={row.pk}&amp;status=exhausted"
    assert link in text
    looker = User.objects.create_user("looker", is_staff=True)
    looker.user_permissions.set(Permission.objects.filter(codename="view_bizreceive"))
    client = Client()
    client.force_login(looker)
    text = page(client, row)
    assert "HTTP 503" in text
    assert link not in text  # deliveries and messages have permissions of their own
    assert f"/console/notify/{message}" not in text


def test_the_page_of_a_disabled_one_has_its_last_failure(biz: Biz, admin_client: Client) -> None:
    """Its deliveries are held, most of them without an attempt."""
    row = subscription(biz)
    publish(biz, 200)
    Maker().splitter.split()
    BizReceive.objects.update(status=Status.DISABLED)
    failed = ReceiveMsg.objects.earliest("id")
    ReceiveMsg.objects.filter(pk=failed.pk).update(next_at=timezone.now() + HOUR, send_times=1)
    Attempt.objects.create(
        id=1, copy=failed, claim="c", number=1, at=timezone.now(), seconds=0.5, http_status=410
    )
    maker = Maker()
    while maker.turn():
        pass
    assert set(ReceiveMsg.objects.values_list("status", flat=True)) == {ReceiveMsg.Status.HELD}
    assert "HTTP 410" in page(admin_client, row)


def test_the_last_day_is_drawn(biz: Biz, admin_client: Client) -> None:
    row = subscription(biz)
    assert "No attempts in this time" in page(admin_client, row)
    count(row, "delivered", 100_000)
    count(row, "failed", 1)
    answer = admin_client.get(f"{SUBSCRIPTIONS}{row.pk}/change/")
    assert "100000 delivered, 1 failed attempt<" in answer.content.decode().replace(" ·", "<")
    lines = answer.context["card"]["chart"].lines
    assert [sum(value or 0 for value in line.values) for line in lines] == [100_000, 1]


def test_a_schedule_that_cannot_be_used_is_corrected_on_its_page(
    biz: Biz, admin_client: Client
) -> None:
    row = subscription(biz)
    BizReceive.objects.update(schedule=["soon"])
    assert "soon" in page(admin_client, row)
    form = {
        "event_types": "", "channels": "", "schedule": "5 s", "in_flight_limit": "4",
        "format": "standard", "log_answers": "all",
    }  # fmt: skip
    answer = admin_client.post(f"{SUBSCRIPTIONS}{row.pk}/change/", form)
    assert answer.status_code == 302
    row.refresh_from_db()
    assert row.schedule == [5]


def test_lists_are_written_a_line_each(biz: Biz, admin_client: Client) -> None:
    row = subscription(biz, schedule=[5, 90, 5400])
    form = {
        "event_types": "order.*\r\n  stock.empty \r\n\r\n", "channels": "eu",
        "schedule": "5 s\n5min\n1.5 h\n2 d\n7", "in_flight_limit": "4", "format": "standard",
        "log_answers": "all",
    }  # fmt: skip
    shown = page(admin_client, row)
    assert "5 s\n90 s\n90 min" in shown
    answer = admin_client.post(f"{SUBSCRIPTIONS}{row.pk}/change/", form)
    assert answer.status_code == 302
    row.refresh_from_db()
    assert row.event_types == ["order.*", "stock.empty"]
    assert row.channels == ["eu"]
    assert row.schedule == [5, 300, 5400, 172800, 7]
    changes = AuditLog.objects.get().detail["changes"]
    assert changes["schedule"] == [[5, 90, 5400], [5, 300, 5400, 172800, 7]]
    assert changes["in_flight_limit"][1] == 4
    wrong = admin_client.post(
        f"{SUBSCRIPTIONS}{row.pk}/change/",
        {**form, "schedule": "5 s\nsoon\n30 d", "event_types": "order.*\nno spaces"},
    ).content.decode()
    assert "Line 2: &#x27;soon&#x27; is not a valid delay" in wrong
    assert "Line 3: 2592000 is not a valid delay: use 0 to 604800 seconds" in wrong
    assert "Line 2: &#x27;no spaces&#x27; is not a pattern" in wrong


def test_the_state_is_not_in_the_form_of_an_existing_one(biz: Biz, admin_client: Client) -> None:
    row = subscription(biz)
    admin_client.post(
        f"{SUBSCRIPTIONS}{row.pk}/change/",
        {
            "status": Status.DISCARDED,
            "schedule": "5 s",
            "in_flight_limit": "4",
            "format": "standard",
            "log_answers": "all",
        },
    )
    row.refresh_from_db()
    assert (row.status, row.in_flight_limit) == (Status.NORMAL, 4)


# -- actions -------------------------------------------------------------------------------------
def act(client: Client, name: str, *rows: BizReceive, **more: str) -> str:
    form = {"action": name, "_selected_action": [str(row.pk) for row in rows], **more}
    answer = client.post(SUBSCRIPTIONS, form, follow=True)
    assert answer.status_code == 200
    return str(answer.content.decode())


@pytest.mark.parametrize(
    ("name", "to", "entry"),
    [
        ("pause", Status.PAUSED, "subscription_paused"),
        ("resume_and_release", Status.NORMAL, "subscription_resumed"),
        ("resume_and_skip", Status.SKIPPING, "subscription_resumed_skipping"),
        ("discard", Status.DISCARDED, "subscription_discarded"),
    ],
)
def test_a_change_of_state_is_audited_with_the_one_before(
    biz: Biz, admin_client: Client, name: str, to: int, entry: str
) -> None:
    row = subscription(biz, status=Status.DISABLED)
    act(admin_client, name, row, confirmed="yes")
    row.refresh_from_db()
    assert row.status == to
    written = AuditLog.objects.get()
    changes = {"status": ["DISABLED", Status(to).name]}
    assert (written.action, written.detail) == (entry, {"changes": changes})
    act(admin_client, name, row, confirmed="yes")
    assert AuditLog.objects.count() == 1  # nothing changed the second time


def test_enabling_forgets_what_it_was_disabled_for(biz: Biz, admin_client: Client) -> None:
    row = subscription(
        biz, status=Status.DISABLED, disabled_reason="x", failures=9,
        failing_since=timezone.now() - timedelta(days=9),
    )  # fmt: skip
    text = act(admin_client, "resume_and_release", row, back_to=str(row.pk))
    assert "Last 24 hours" in text  # back on its page
    row.refresh_from_db()
    assert (row.disabled_reason, row.failures, row.failing_since) == ("", 0, None)


@pytest.mark.parametrize("name", ["resume_and_skip", "discard"])
def test_what_loses_something_is_asked_back(biz: Biz, admin_client: Client, name: str) -> None:
    row, other = (subscription(biz, n, status=Status.PAUSED) for n in ("one", "two"))
    text = act(admin_client, name, row)
    assert "orders → one" in text
    assert "orders → two" not in text
    assert f'name="_selected_action" value="{row.pk}"' in text
    row.refresh_from_db()
    assert row.status == Status.PAUSED
    assert not AuditLog.objects.exists()
    act(admin_client, name, row, confirmed="yes")
    row.refresh_from_db()
    other.refresh_from_db()
    assert row.status != Status.PAUSED
    assert other.status == Status.PAUSED


def test_more_than_a_form_can_name_are_not_asked_back(
    biz: Biz, admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "MAX_SELECTION", 0)
    row = subscription(biz)
    assert "Select at most 0 at a time." in act(admin_client, "discard", row)
    row.refresh_from_db()
    assert row.status == Status.NORMAL


def test_who_may_only_look_changes_nothing(biz: Biz) -> None:
    row = subscription(biz)
    user = User.objects.create_user("looker", password="x", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename="view_bizreceive"))
    client = Client()
    client.force_login(user)
    for name in ("pause", "discard"):
        act(client, name, row, confirmed="yes")
    row.refresh_from_db()
    assert row.status == Status.NORMAL
    BizReceive.objects.update(event_types=["order.*", "<i>"], schedule=[30, 5400], channels=[])
    text = page(client, row)
    assert "Test send" not in text
    assert "Discard" not in text
    # Lists as the form writes them.
    assert "order.*<br>&lt;i&gt;" in text
    assert "30 s<br>90 min" in text


# -- deliver now ---------------------------------------------------------------------------------
def behind_a_breaker(biz: Biz) -> BizReceive:
    row = subscription(biz)
    presence.report({row.pk: presence.LaneState("s", breaker=State.OPEN, retry_in=200)})
    publish(biz, 3)
    Maker().splitter.split()
    later = ReceiveMsg.objects.order_by("id").values_list("id", flat=True)[:2]
    ReceiveMsg.objects.filter(id__in=list(later)).update(next_at=timezone.now() + HOUR)
    return row


def test_deliver_now_probes_and_waits_for_no_time(biz: Biz, admin_client: Client) -> None:
    row = behind_a_breaker(biz)
    assert "Deliver now" in page(admin_client, row)
    answer = admin_client.post(f"{SUBSCRIPTIONS}{row.pk}/deliver/", follow=True)
    text = answer.content.decode()
    assert "One delivery is tried now" in text
    assert "2 deliveries no longer wait" in text
    assert not ReceiveMsg.objects.filter(next_at__gt=timezone.now()).exists()
    assert presence.requested_probes() == {row.pk}
    (entry,) = AuditLog.objects.filter(action="subscription_deliver_now")
    assert entry.detail == {"probe": True, "made_due": 2}
    Maker().turn()
    assert ReceiveMsg.objects.filter(status=ReceiveMsg.Status.QUEUED).count() == 1, "the probe"
    assert presence.requested_probes() == frozenset()


def test_deliver_now_says_what_it_does_not_send(biz: Biz, admin_client: Client) -> None:
    row = subscription(biz)
    with transaction.atomic():
        failures.count_ended(
            ReceiveMsg.Status.EXHAUSTED, row.pk, [1, 2, 3], "timeout", timezone.now(),
            CatalogueSubjects(),
        )  # fmt: skip
    answer = admin_client.post(f"{SUBSCRIPTIONS}{row.pk}/deliver/", follow=True).content.decode()
    assert "Nothing waits for a later time. 3 failures are not tried any more" in answer
    assert "send them again on the page Failures" in answer


def test_deliver_now_right_after_a_resume_finds_what_the_maker_has_yet_to_take_up(biz: Biz) -> None:
    row = subscription(biz)
    publish(biz, 2)
    Maker().splitter.split()
    later = timezone.now() + timedelta(hours=2)
    ReceiveMsg.objects.update(status=ReceiveMsg.Status.HELD, next_at=later)
    row.status = BizReceive.Status.NORMAL
    outcome = operations.deliver_now(row, lambda *_line, **_detail: None)
    assert (outcome.made_due, outcome.has_more) == (2, False)
    Maker().turn()
    assert not ReceiveMsg.objects.filter(next_at__gte=later).exists()


def test_deliver_now_stands_on_the_alert_of_a_failing_subscription(
    biz: Biz, admin_client: Client
) -> None:
    row = behind_a_breaker(biz)
    now = timezone.now()
    alert = Alert.objects.create(
        key=f"notify.failing:{row.pk}", open_key=f"notify.failing:{row.pk}", kind="notify.failing",
        subject="x", text="y", first_at=now, last_at=now,
    )  # fmt: skip
    at = f"/admin/msgplatform/alert/{alert.pk}/change/"
    text = admin_client.get(at).content.decode()
    action = f"{SUBSCRIPTIONS}{row.pk}/deliver/"
    assert f'action="{action}"' in text
    assert admin_client.post(action, {"next": at})["Location"] == at
    assert admin_client.post(action, {"next": "//evil.example/"})["Location"] != "//evil.example/"
    Alert.objects.update(open_key=None)
    assert action not in admin_client.get(at).content.decode()


def test_who_only_looks_cannot_deliver_now(biz: Biz, client: Client) -> None:
    row = behind_a_breaker(biz)
    user = User.objects.create_user("viewer", password="x", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_bizreceive"))
    client.force_login(user)
    assert "Deliver now" not in page(client, row)
    assert client.post(f"{SUBSCRIPTIONS}{row.pk}/deliver/").status_code == 403
    assert presence.requested_probes() == frozenset()


def test_a_paused_subscription_is_not_delivered_now(biz: Biz, admin_client: Client) -> None:
    row = behind_a_breaker(biz)
    BizReceive.objects.update(status=Status.PAUSED)
    assert "Deliver now" not in page(admin_client, row)
    answer = admin_client.post(f"{SUBSCRIPTIONS}{row.pk}/deliver/", follow=True)
    assert "Resume it" in answer.content.decode()
    assert presence.requested_probes() == frozenset()
