"""A bulk job from its preview to what became of what it sent again."""

import re
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db.models import F
from django.test import Client

from msgplatform.core.data import sql
from msgplatform.core.rates.breaker import State
from msgplatform.doors.console.views import job as job_page
from msgplatform.jobs import outcomes
from msgplatform.jobs.bulk import BulkRunner
from msgplatform.jobs.models import BulkBatch, BulkJob
from msgplatform.models import AuditLog, Biz
from notify import presence
from notify.actions import actions
from notify.models import BizReceive, ReceiveMsg
from tests.support.archive_support import Status, archive, message
from tests.support.bulk_form import preview, start
from tests.support.notify_rows import subscription

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]


@pytest.fixture
def row() -> BizReceive:
    """A subscription with a limit of its own, and five exhausted deliveries of two types."""
    made = subscription(Biz.objects.create(name="orders"), rate_limit=2.5)
    for n in range(5):
        message(made, Status.EXHAUSTED, days=2 + n, event_type=("a.b", "c.d")[n == 4])
    return made


def staff(*permissions: str) -> Client:
    user = User.objects.create_user("somebody", password="x", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


def run() -> None:
    """To the end, at any pace."""
    runner = BulkRunner()
    for _ in range(100):
        BulkJob.objects.update(lease_until=None)
        if not runner.turn():
            return
    raise AssertionError("it does not end")


def look() -> None:
    """Ask about every batch that has not ended."""
    BulkBatch.objects.filter(waiting__gt=0).update(look_at=sql.now() - timedelta(seconds=1))
    outcomes.Outcomes().turn_if_due()


def sums() -> tuple[int, int, int, int, int]:
    found = outcomes.sums(BulkJob.objects.get())
    return found.sent, found.arrived, found.failed, found.waiting, found.unknown


# -- preview -------------------------------------------------------------------------------------
def test_the_preview_says_what_would_change(row: BizReceive, admin_client: Client) -> None:
    shown = preview(admin_client, "notify", action="resend").context["preview"]
    assert (shown.counted.count, shown.counted.more) == (5, False)
    assert [(group.title, group.count) for group in shown.groups] == [
        ("orders → warehouse · a.b", 4), ("orders → warehouse · c.d", 1),
    ]  # fmt: skip
    assert timedelta(days=3.9) < shown.newest - shown.oldest < timedelta(days=4.1)
    assert len(shown.sample) == 5
    page = preview(admin_client, "notify", action="resend").content.decode()
    assert all(f"/console/notify/{hit.id}" in page for hit in shown.sample)


def test_archived_ones_are_previewed_too(row: BizReceive, admin_client: Client) -> None:
    old = message(row, Status.DELIVERED, days=60, event_type="e.f")
    archive()
    given = {"action": "replay", "subscription": "orders/warehouse", "since": "2020-01-01"}
    shown = preview(admin_client, "notify", **given).context["preview"]
    assert shown.counted.count == 6
    assert "orders → warehouse · e.f" in [group.title for group in shown.groups]
    assert str(old) in [hit.id for hit in shown.sample]


def test_the_pace_is_the_subscription_s_unless_asked(row: BizReceive, admin_client: Client) -> None:
    shown = preview(admin_client, "notify", action="resend")
    assert "Pace: 2 a second (the subscription's rate limit)" in re.sub(
        r"\s+", " ", shown.content.decode().replace("&#x27;", "'")
    )
    start(admin_client, "notify", shown, action="resend")
    assert BulkJob.objects.get().rate == 2
    other = subscription(Biz.objects.create(name="stock"), "shop")
    message(other, Status.EXHAUSTED, days=1)
    assert preview(admin_client, "notify", action="resend").context["pace"] == 0, "two receivers"
    asked = preview(admin_client, "notify", action="resend", biz="orders", rate="50")
    assert asked.context["pace"] == 50


# -- start ---------------------------------------------------------------------------------------
def test_start_pressed_twice_makes_one_job(row: BizReceive, admin_client: Client) -> None:
    shown = preview(admin_client, "notify", action="resend")
    first = start(admin_client, "notify", shown, action="resend")
    second = start(admin_client, "notify", shown, action="resend")
    job = BulkJob.objects.get()
    assert first.redirect_chain == second.redirect_chain == [(f"/console/bulk/jobs/{job.pk}", 302)]
    assert AuditLog.objects.filter(action="bulk_resend").count() == 1
    run()
    third = start(admin_client, "notify", shown, action="resend")
    assert third.redirect_chain
    assert BulkJob.objects.count() == 1


def test_a_subscription_that_is_gone_since_the_preview_starts_nothing(
    row: BizReceive, admin_client: Client
) -> None:
    choice = {"action": "resend", "subscription": "orders/warehouse"}
    shown = preview(admin_client, "notify", **choice)
    row.receive.name = "depot"
    row.receive.save()
    answer = start(admin_client, "notify", shown, **choice)
    assert (answer.status_code, answer.redirect_chain) == (200, [])
    assert "there is no such subscription" in answer.content.decode()
    assert not BulkJob.objects.exists()


def test_a_time_means_the_same_however_it_is_written(row: BizReceive, admin_client: Client) -> None:
    """As a link has it, and as the browser's own field for times sends it back."""
    shown = preview(admin_client, "notify", action="resend", since="2026-01-01")
    answer = start(admin_client, "notify", shown, action="resend", since="2026-01-01T00:00")
    assert answer.redirect_chain
    assert BulkJob.objects.get().filter == {"since": "2026-01-01T00:00:00+00:00"}


def test_what_was_previewed_is_what_runs(row: BizReceive, admin_client: Client) -> None:
    """What fails between the preview and the start is nobody's decision yet."""
    shown = preview(admin_client, "notify", action="resend")
    later = message(row, Status.EXHAUSTED, days=1)
    ReceiveMsg.objects.filter(msg_id=later).update(updated_at=sql.now())
    start(admin_client, "notify", shown, action="resend")
    run()
    job = BulkJob.objects.get()
    assert (job.total, job.done) == (5, 5)
    assert ReceiveMsg.objects.get(msg_id=later).status == Status.EXHAUSTED


# -- the job's page ------------------------------------------------------------------------------
def test_the_page_follows_what_was_sent_again(row: BizReceive, admin_client: Client) -> None:
    shown = preview(admin_client, "notify", action="resend", rate="3")
    start(admin_client, "notify", shown, action="resend", rate="3")
    assert sums() == (0, 0, 0, 0, 0)
    run()
    look()
    assert sums() == (5, 0, 0, 5, 0)
    pks = list(ReceiveMsg.objects.order_by("id").values_list("id", flat=True))
    ReceiveMsg.objects.filter(id=pks[0]).update(status=Status.DELIVERED)
    ReceiveMsg.objects.filter(id__in=pks[1:3]).update(status=Status.EXHAUSTED)
    ReceiveMsg.objects.filter(id=pks[3]).update(status=Status.SKIPPED)
    look()
    assert sums() == (5, 1, 3, 1, 0)
    page = admin_client.get(f"/console/bulk/jobs/{BulkJob.objects.get().pk}").content.decode()
    for name, number in (("arrived", 1), ("failed", 3), ("waiting", 1)):
        assert re.search(rf'data-{name}[^>]*><a href="[^"]*/{name}">{number}<', page), name
    assert 'data-live-seconds="5"' in page, "one still waits"
    ReceiveMsg.objects.filter(id=pks[4]).update(status=Status.DELIVERED)
    archive()
    look()
    assert sums() == (5, 2, 3, 0, 0)
    assert not BulkBatch.objects.filter(look_at__lt=sql.now() + timedelta(days=29)).exists()
    # Sent again by somebody else: not this job's outcome any more.
    ReceiveMsg.objects.update(status=Status.PENDING)
    look()
    assert sums() == (5, 2, 3, 0, 0)
    address = f"/console/bulk/jobs/{BulkJob.objects.get().pk}"
    page = admin_client.get(address).content.decode()
    assert "data-live-seconds" not in page
    parts = admin_client.get(f"{address}?live=1").content.decode()
    assert 'id="live-job"' in parts, "a page that was opened before learns that it is over"
    assert "data-live-seconds" not in parts
    assert "<html" not in parts


def test_an_open_breaker_is_said_before_the_start_and_while_they_wait(
    row: BizReceive, admin_client: Client
) -> None:
    shown = preview(admin_client, "notify", action="resend")
    assert "breaker is open" not in shown.content.decode()
    presence.report({row.pk: presence.LaneState("s", breaker=State.OPEN, retry_in=90)})
    shown = preview(admin_client, "notify", action="resend")
    sentence = rf"{row}: its breaker is open. The next probe may go at [\d: -]+;"
    assert re.search(sentence, shown.content.decode())
    start(admin_client, "notify", shown, action="resend")
    run()
    address = f"/console/bulk/jobs/{BulkJob.objects.get().pk}?live=1"
    assert re.search(sentence, admin_client.get(address).content.decode())
    presence.report({row.pk: presence.LaneState("s")})
    assert "breaker is open" not in admin_client.get(address).content.decode()


def listed(client: Client, ending: str) -> list[set[str]]:
    """The messages of each page of a list."""
    pages: list[set[str]] = []
    address = ""
    while not pages or address:
        job = BulkJob.objects.get()
        answer = client.get(f"/console/bulk/jobs/{job.pk}/{ending}{address}")
        assert answer.status_code == 200
        pages.append({hit.id for hit in answer.context["found"]})
        address = answer.context["next"]
        assert len(pages) < 20
    return pages


def test_each_number_leads_to_its_messages(
    row: BizReceive, admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = preview(admin_client, "notify", action="resend", rate="3")
    start(admin_client, "notify", shown, action="resend", rate="3")
    run()
    assert BulkBatch.objects.count() == 2
    messages = [str(pk) for pk in ReceiveMsg.objects.order_by("id").values_list("msg", flat=True)]
    assert listed(admin_client, "waiting") == [set(messages)], "nobody has looked yet"
    pks = list(ReceiveMsg.objects.order_by("id").values_list("id", flat=True))
    ReceiveMsg.objects.filter(id=pks[0]).update(status=Status.DELIVERED)
    ReceiveMsg.objects.filter(id__in=pks[1:4]).update(status=Status.EXHAUSTED)
    look()
    monkeypatch.setattr(job_page, "SHOWN", 2)
    assert listed(admin_client, "arrived") == [{messages[0]}]
    pages = listed(admin_client, "failed")
    assert [len(page) for page in pages] == [2, 1]
    assert set.union(*pages) == set(messages[1:4])
    assert listed(admin_client, "waiting") == [{messages[4]}]
    # Archived, and sent again by somebody else: it is what this job's page counts all the same.
    ReceiveMsg.objects.filter(id=pks[4]).update(status=Status.DELIVERED)
    look()
    ReceiveMsg.objects.filter(id=pks[1]).update(status=Status.PENDING)
    archive()
    assert set.union(*listed(admin_client, "failed")) == set(messages[1:4])
    assert set.union(*listed(admin_client, "arrived")) == {messages[0], messages[4]}


def test_a_message_that_waits_is_on_one_page(row: BizReceive) -> None:
    job = BulkJob.objects.create(flow="notify", filter={}, created_by="x")
    BulkBatch.objects.create(job=job, ids="1 2 3 4 5 6", size=6, waiting=6, created_at=sql.now())
    first = outcomes.list_messages(job, "waiting", "", 2)
    BulkBatch.objects.update(endings="aawwww", arrived=2, waiting=4)
    second = outcomes.list_messages(job, "waiting", first.cursor, 2)
    assert (first.ids, second.ids) == (["1", "2"], ["3", "4"])


def test_which_they_were_is_forgotten_after_a_month(row: BizReceive, admin_client: Client) -> None:
    start(admin_client, "notify", preview(admin_client, "notify", action="resend"),
          action="resend")  # fmt: skip
    run()
    ReceiveMsg.objects.update(status=Status.DELIVERED)
    look()
    month = timedelta(days=31)
    BulkBatch.objects.update(created_at=F("created_at") - month, look_at=F("look_at") - month)
    outcomes.Outcomes().turn_if_due()
    assert set(BulkBatch.objects.values_list("ids", "endings", "look_at")) == {("", "", None)}
    assert sums() == (5, 5, 0, 0, 0)
    assert listed(admin_client, "arrived") == [set()]
    job = BulkJob.objects.get()
    page = admin_client.get(f"/console/bulk/jobs/{job.pk}/arrived").content.decode()
    assert "kept for 30 days" in page


def test_the_lists_are_for_who_sees_the_messages(row: BizReceive) -> None:
    job = BulkJob.objects.create(flow="notify", action="resend", filter={}, created_by="x")
    address = f"/console/bulk/jobs/{job.pk}"
    client = staff("view_bulkjob", "view_bizmsg")
    assert client.get(f"{address}/failed").status_code == 200
    for wrong in ("nothing", "failed?cursor=x", "failed?cursor=1.x"):
        assert client.get(f"{address}/{wrong}").status_code == 404, wrong
    for permissions in (("view_bulkjob",), ("view_bizmsg",)):
        User.objects.all().delete()
        assert staff(*permissions).get(f"{address}/failed").status_code == 403


def test_a_runner_that_dies_in_a_step_forgets_no_message(row: BizReceive) -> None:
    """Killed after the step's work and before its cursor was saved: the step is done again, finds
    others, and the outcome counts both."""
    job = BulkJob.objects.create(flow="notify", filter={}, total=5, rate=2, created_by="x")
    runner = BulkRunner()
    runner.turn()  # it begins
    job.refresh_from_db()
    actions.ACTIONS["resend"].step({}, job.cursor, 2, outcomes.Batch(job).note)
    assert ReceiveMsg.objects.filter(status=Status.PENDING).count() == 2
    run()
    look()
    assert sums() == (5, 0, 0, 5, 0)


def test_a_runner_that_dies_before_it_noted_them_has_changed_nothing(row: BizReceive) -> None:
    def dies(_ids: Iterable[int | str]) -> None:
        raise KeyboardInterrupt

    begun = actions.ACTIONS["resend"].step({}, "", 10).cursor
    with pytest.raises(KeyboardInterrupt):
        actions.ACTIONS["resend"].step({}, begun, 10, dies)
    assert set(ReceiveMsg.objects.values_list("status", flat=True)) == {Status.EXHAUSTED}


def test_what_a_step_is_about_is_not_asked_before_it_is_done(row: BizReceive) -> None:
    """They are exhausted still: that is not what became of them."""
    job = BulkJob.objects.create(flow="notify", filter={}, cursor="x", created_by="x")
    batch = outcomes.Batch(job)
    batch.note(ReceiveMsg.objects.values_list("id", flat=True))
    outcomes.Outcomes().turn_if_due()
    assert sums() == (5, 0, 0, 5, 0)
    ReceiveMsg.objects.update(status=Status.DELIVERED)
    batch.finish()
    look()
    assert sums() == (5, 5, 0, 0, 0)


@pytest.mark.parametrize("flow", ["sms", "notify"])
def test_no_job_waits_for_all_batches_of_another(row: BizReceive, settings: Any, flow: str) -> None:
    """Neither while the other one's flow is away, nor when it has thousands of them."""
    settings.SMS_REDIS_URL = "redis://127.0.0.1:1/0"
    now = sql.now()
    jobs = [BulkJob(flow=flow, action="resend", filter={}, created_by="x") for _ in range(2)]
    job = BulkJob(flow="notify", action="resend", filter={}, created_by="x")
    BulkJob.objects.bulk_create([*jobs, job])
    batches = [
        BulkBatch(job=other, cursor=str(n), ids=str(n + 1), size=1, waiting=1,
                  created_at=now - timedelta(hours=1), look_at=now - timedelta(minutes=1))
        for other in jobs for n in range(30)
    ]  # fmt: skip
    BulkBatch.objects.bulk_create(batches)
    batch = outcomes.Batch(job)
    batch.note(ReceiveMsg.objects.values_list("id", flat=True))
    batch.finish()
    outcomes.Outcomes().turn_if_due()
    assert BulkBatch.objects.get(job=job).endings == "f" * 5
    looks = BulkBatch.objects.filter(job__in=jobs, look_at__gt=now).values_list("job", flat=True)
    assert len(looks) == outcomes.MAX_BATCHES - 1
    assert set(looks) == {other.pk for other in jobs}


def test_what_retention_deleted_is_unknown(row: BizReceive) -> None:
    job = BulkJob.objects.create(flow="notify", filter={}, cursor="x", created_by="x")
    batch = outcomes.Batch(job)
    batch.note([*ReceiveMsg.objects.values_list("id", flat=True)[:2], 77])
    batch.finish()
    look()
    assert sums() == (3, 0, 2, 0, 1)


def test_pause_resume_and_cancel(row: BizReceive, admin_client: Client) -> None:
    job = BulkJob.objects.create(flow="notify", filter={}, created_by="x")
    address = f"/console/bulk/jobs/{job.pk}"
    for to, state in (("paused", "paused"), ("pending", "pending"), ("done", "pending"),
                      ("cancelled", "cancelled"), ("pending", "cancelled")):  # fmt: skip
        admin_client.post(address, {"to": to})
        job.refresh_from_db()
        assert job.state == state, to
    logged = AuditLog.objects.order_by("id").values_list("action", flat=True)
    assert list(logged) == ["bulk_paused", "bulk_pending", "bulk_cancelled"]
    assert 'name="to"' not in admin_client.get(address).content.decode()
    listed = admin_client.get(f"/admin/msgplatform/bulkjob/{job.pk}/change/")
    assert listed["Location"] == address


def test_a_job_that_stood_still_has_no_time_left(admin_client: Client) -> None:
    job = BulkJob.objects.create(flow="notify", filter={}, total=100, done=50, created_by="x")
    address = f"/console/bulk/jobs/{job.pk}"
    assert "time left" in admin_client.get(address).content.decode()
    BulkJob.objects.update(waits=True)
    assert "time left" not in admin_client.get(address).content.decode()
    BulkJob.objects.update(waits=False)
    for to in ("paused", "pending"):
        admin_client.post(address, {"to": to})
    assert "time left" not in admin_client.get(address).content.decode()
    BulkJob.objects.update(rate=10)
    assert "time left" in admin_client.get(address).content.decode()


@pytest.mark.parametrize(
    ("permissions", "sees", "changes"),
    [
        ((), 403, 403),
        (("view_bizmsg",), 403, 403),
        (("view_bulkjob",), 403, 403),
        (("view_bulkjob", "view_sgipmt", "change_bulkjob"), 403, 403),
        (("view_bulkjob", "view_bizmsg"), 200, 403),
        (("view_bulkjob", "change_bulkjob", "view_bizmsg"), 200, 403),
        (("add_bulkjob", "view_bizmsg", "change_receivemsg"), 200, 302),
        (("view_bulkjob", "change_bulkjob", "view_bizmsg", "change_receivemsg"), 200, 302),
    ],
)
def test_the_page_is_for_those_who_may(
    permissions: tuple[str, ...], sees: int, changes: int
) -> None:
    by = "somebody" if "add_bulkjob" in permissions else "else"
    job = BulkJob.objects.create(flow="notify", filter={"biz": "orders"}, created_by=by)
    client = staff(*permissions)
    address = f"/console/bulk/jobs/{job.pk}"
    answer: Any = client.get(address)
    assert answer.status_code == sees
    if sees == 200:
        assert ('name="to"' in answer.content.decode()) == (changes == 302)
    assert client.post(address, {"to": "paused"}).status_code == changes
    job.refresh_from_db()
    assert (job.state == "paused") == (changes == 302)
