"""What a bulk job may touch: its bounds, what was previewed, and who may start it."""

import time
from contextlib import suppress
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from django.utils import translation

from crmsync.models import Crm, Policy, Source
from gateway.flow import FLOW
from msgplatform.core import flows
from msgplatform.core.archive.copying import NotVerified
from msgplatform.core.errors import Unavailable
from msgplatform.core.flows.actions import Step
from msgplatform.core.flows.contract import Flow
from msgplatform.doors.admin.platform import systems
from msgplatform.jobs import bulk, control
from msgplatform.jobs.bulk import BulkRunner
from msgplatform.jobs.models import BulkJob
from msgplatform.messages import engine
from msgplatform.models import AuditLog, Biz
from notify.actions import actions
from notify.messages.index import MESSAGES
from notify.models import BizReceive, ReceiveMsg
from tests.integration.gateway.sms_messages import archived
from tests.support import crm_rows, sms_rows
from tests.support.archive_support import Status, message
from tests.support.bulk_form import preview, start, start_bulk
from tests.support.notify_rows import subscription
from tests.waiting import pause

shop = sms_rows.shop
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
BEFORE_ALL = "2020-01-01"


@pytest.fixture
def row() -> BizReceive:
    """A subscription with 20 exhausted copies."""
    made = subscription(Biz.objects.create(name="orders"))
    for _ in range(20):
        message(made, Status.EXHAUSTED, days=2)
    return made


def staff(*permissions: str) -> Client:
    user = User.objects.create_user("somebody", password="x", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


# -- bounds --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("action", "given"),
    [
        ("resend", {}),
        ("replay", {"subscription": "orders/warehouse", "since": "2019-01-01"}),
        ("replay_failed", {"biz": "orders", "since": "2019-01-01"}),
        ("backfill", {"biz": "orders", "since": "2019-01-01"}),
    ],
)
def test_until_a_time_before_all_messages_means_none(
    row: BizReceive, action: str, given: dict[str, str]
) -> None:
    assert actions.ACTIONS[action].count(given).count == 20
    given = {**given, "until": BEFORE_ALL}
    assert actions.ACTIONS[action].count(given).count == 0
    job = BulkJob.objects.create(flow="notify", action=action, filter=given, created_by="x")
    while BulkRunner().turn():
        pass
    job.refresh_from_db()
    assert (job.state, job.done) == (BulkJob.State.DONE, 0)


def test_jobs_take_turns(row: BizReceive, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long one does not hold up a later one, however far it is."""
    Biz.objects.create(name="nobody")
    monkeypatch.setattr(bulk, "PAGE", 2)
    long, later = (
        BulkJob.objects.create(flow="notify", action="resend", filter=given, created_by="x")
        for given in ({}, {"biz": "nobody"})
    )
    runner = BulkRunner()
    runner.turn(), runner.turn(), runner.turn()
    newest = BulkJob.objects.create(flow="notify", action="resend", filter={}, created_by="x")
    for _ in range(6):
        assert runner.turn()
    long.refresh_from_db(), later.refresh_from_db(), newest.refresh_from_db()
    assert later.state == BulkJob.State.DONE
    assert newest.cursor
    assert long.state == BulkJob.State.RUNNING
    while runner.turn():
        pass
    long.refresh_from_db(), newest.refresh_from_db()
    assert long.done + newest.done == 20


def test_a_job_leaves_another_system_alone_that_gets_the_old_name(
    row: BizReceive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "PAGE", 2)
    other = subscription(Biz.objects.create(name="later"), "other")
    message(other, Status.EXHAUSTED, days=2)
    request = control.JobRequest("notify", "resend", {"biz": "orders"}, system_id=row.biz_id)
    job = control.start(request, control.count("notify", "resend", request.filter), "x")
    runner = BulkRunner()
    runner.turn(), runner.turn()
    Biz.objects.filter(pk=row.biz_id).update(name="orders-v1")
    Biz.objects.filter(pk=other.biz_id).update(name="orders")
    with pytest.raises(ValueError, match="does not mean the business system"):
        runner.turn()
    job.refresh_from_db()
    assert (job.state, job.done) == (BulkJob.State.FAILED, 2)
    assert ReceiveMsg.objects.get(biz_receive=other).status == Status.EXHAUSTED


def test_a_job_goes_on_when_its_crm_serves_another_system_too() -> None:
    sales = Crm.objects.create(name="sales")
    system, other = (Biz.objects.create(name=name) for name in ("loans", "cards"))
    crm_rows.policy(sales, biz=system)
    request = control.JobRequest("crmsync", "resend", {"crm": "sales"}, system_id=system.pk)
    job = control.start(request, control.count("crmsync", "resend", request.filter), "x")
    crm_rows.policy(sales, Source.objects.create(name="later"), biz=other)
    BulkRunner().turn()
    job.refresh_from_db()
    assert job.state == BulkJob.State.RUNNING
    Policy.objects.filter(biz=system).update(biz=Biz.objects.create(name="savings"))
    with pytest.raises(ValueError, match="does not mean the business system"):
        BulkRunner().turn()


def test_a_search_until_a_time_before_all_messages_finds_none(row: BizReceive) -> None:
    assert engine.find(MESSAGES, {"biz": "orders"}, "", 50).hits
    assert engine.find(MESSAGES, {"biz": "orders", "until": BEFORE_ALL}, "", 50).hits == []


def test_short_messages_until_a_time_before_all_are_none(shop: sms_rows.Caller) -> None:
    original = archived(shop, result=5)
    live = sms_rows.send(shop.biz, idempotency_key="order-7")
    for given in ({"id": original}, {"id": live}, {"key": "order-7"}):
        assert engine.find(FLOW.messages, given, "", 10).hits, given
        assert engine.find(FLOW.messages, {**given, "until": BEFORE_ALL}, "", 10).hits == [], given
    given = {"ids": original, "until": BEFORE_ALL}
    assert FLOW.action("resend").count(given).count == 0


@pytest.mark.parametrize(
    ("flow", "action"), [("notify", "resend"), ("notify", "replay_failed"), ("sms", "resend")]
)
def test_until_must_be_later_than_since(
    row: BizReceive, admin_client: Client, flow: str, action: str
) -> None:
    fields = {"action": action, "since": "2026-11-20 14:30", "until": "2026-11-20 14:30"}
    if action == "replay_failed":
        fields["biz"] = "orders"
    answer = preview(admin_client, flow, **fields)
    assert "later than" in answer.context["form"].errors["until"][0]
    assert answer.context["counted"] is None
    found = admin_client.get(f"/console/search/{flow}?since=2026-11-20&until=2026-11-19")
    assert "later than" in found.context["form"].errors["until"][0]


# -- what was previewed is what runs -------------------------------------------------------------
@pytest.mark.parametrize(
    "changed",
    [
        {"rate": "5"},
        {"until": "2090-01-01"},
        {"event_type": "order.paid"},
        {"status": "exhausted"},
    ],
)
def test_a_change_after_the_preview_brings_a_new_preview(
    row: BizReceive, admin_client: Client, changed: dict[str, str]
) -> None:
    fields = {"action": "resend", "biz": "orders"}
    shown = preview(admin_client, "notify", **fields)
    assert shown.context["counted"].count == 20
    again = start(admin_client, "notify", shown, **fields, **changed)
    assert BulkJob.objects.count() == 0
    assert again.context["changed"]
    answer = start(admin_client, "notify", again, **fields, **changed)
    assert answer.redirect_chain
    job = BulkJob.objects.get()
    rate = int(changed.pop("rate", "0"))
    if "until" in changed:  # kept with its offset: it means the same to whoever runs the job
        changed["until"] += "T00:00:00+00:00"
    assert (job.rate, job.filter) == (rate, {"biz": "orders", **changed})
    assert AuditLog.objects.get(action="bulk_resend").detail["rate"] == rate


def test_a_job_says_why_its_page_has_to_come_again(
    row: BizReceive, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = BulkJob.objects.create(flow="notify", action="resend", filter={}, created_by="x")

    def fail(error: Exception) -> None:
        def step(*_arguments: object) -> None:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(BulkRunner, "_do_page", step)
            with pytest.raises(type(error)):
                BulkRunner().turn()
        job.refresh_from_db()

    fail(Unavailable("the archive does not answer"))
    assert (job.state, job.error) == (BulkJob.State.RUNNING, "the archive does not answer")
    BulkJob.objects.update(lease_until=None)
    runner = BulkRunner()
    while runner.turn():
        pass
    job.refresh_from_db()
    assert (job.state, job.error, job.done) == (BulkJob.State.DONE, "", 20)
    BulkJob.objects.update(state=BulkJob.State.PENDING, cursor="", lease_until=None)
    ReceiveMsg.objects.update(status=Status.EXHAUSTED)
    fail(NotVerified("a row differs"))
    assert (job.state, job.error) == (BulkJob.State.FAILED, "a row differs")


def test_why_messages_were_left_alone_outlasts_why_the_job_had_to_wait(
    row: BizReceive, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = BulkJob.objects.create(flow="notify", action="resend", filter={}, created_by="x")
    outcomes: list[Step | Unavailable] = [
        Step("1", 1, "the account is off"), Unavailable("no answer"),
        Step("2", 1, waits_because="today's limit is reached"), Step("", 1),
    ]  # fmt: skip

    def step(*_arguments: object) -> Step:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Unavailable):
            raise outcome
        return outcome

    monkeypatch.setattr(type(actions.ACTIONS["resend"]), "step", step)
    errors = []
    while outcomes:
        with suppress(Unavailable):
            BulkRunner().turn()
        job.refresh_from_db()
        errors.append(job.error.splitlines())
        BulkJob.objects.update(lease_until=None)
        BulkJob.objects.filter(state=BulkJob.State.PAUSED).update(state=BulkJob.State.PENDING)
    off = "the account is off"
    assert errors == [[off], [off, "no answer"], [off, "today's limit is reached"], [off]]
    assert (job.state, job.done, job.waits) == (BulkJob.State.DONE, 3, False)


def test_the_pace_is_shown_and_kept(row: BizReceive, admin_client: Client) -> None:
    fields = {"action": "resend", "rate": "5"}
    shown = preview(admin_client, "notify", **fields)
    assert "Pace: 5 a second" in shown.content.decode()
    start(admin_client, "notify", shown, **fields)
    job = BulkJob.objects.get()
    assert job.rate == 5
    again = admin_client.get(reverse("console:job", args=[job.pk])).content.decode()
    assert "rate=5" in again, "the same filter at the same pace"
    runner = BulkRunner()
    began = time.monotonic()
    done = 0
    while done <= 5:
        if not runner.turn():
            pause(began, 0.02)
        done = BulkJob.objects.get().done
        # A page is the work of a second, and comes at its beginning.
        assert done <= 5 * (1 + time.monotonic() - began)
        assert time.monotonic() < began + 60


def test_nothing_starts_without_a_preview_of_the_same_action(
    row: BizReceive, admin_client: Client
) -> None:
    fields = {"biz": "orders", "since": "2025-01-01"}
    shown = preview(admin_client, "notify", action="resend", **fields)
    for action, previewed in (
        ("replay_failed", shown.context["previewed"]), ("resend", ""), ("resend", "forged:x:y"),
    ):  # fmt: skip
        posted = {**fields, "action": action, "start": "1", "previewed": previewed}
        answer = admin_client.post("/console/bulk/notify", posted)
        assert answer.status_code == 200
        assert answer.context["changed"]
    assert BulkJob.objects.count() == 0


@pytest.mark.parametrize("rate", ["0", "-1", "soon"])
def test_a_pace_that_is_none_is_refused_at_its_field(
    row: BizReceive, admin_client: Client, rate: str
) -> None:
    answer = preview(admin_client, "notify", action="resend", rate=rate)
    assert answer.context["form"].errors["rate"]
    assert answer.context["counted"] is None


# -- who may start one ---------------------------------------------------------------------------
MAY = {
    "notify": ("view_bizmsg", "change_receivemsg"),
    "sms": ("view_sgipmt", "change_sgipmt"),
    "feed": ("view_feed", "change_eventqueue"),
    "crmsync": ("view_lead", "change_recoveryentry"),
}


@pytest.mark.parametrize("flow", flows.all(), ids=lambda flow: flow.name)
def test_whoever_only_looks_starts_and_stops_nothing(flow: Flow) -> None:
    """With every permission of bulk jobs, and without that to act on a message of the flow."""
    action = next(iter(flow.actions))
    job = BulkJob.objects.create(flow=flow.name, action=action, filter={}, created_by="somebody")
    user = staff("add_bulkjob", "view_bulkjob", "change_bulkjob", MAY[flow.name][0])
    bulk, page = f"/console/bulk/{flow.name}", f"/console/bulk/jobs/{job.pk}"
    assert user.get("/console/bulk").status_code == 403
    for given in ({"action": action, "count": "1"}, {"action": action, "start": "1"}):
        assert user.post(bulk, given).status_code == 403
    assert user.post(f"/console/filters/{flow.name}/{action}", {"name": "x"}).status_code == 403
    looked = user.get(page)
    assert looked.status_code == 200
    assert 'name="to"' not in looked.content.decode()
    assert bulk not in looked.content.decode()
    assert user.post(page, {"to": "cancelled"}).status_code == 403
    rows = reverse("admin:msgplatform_bulkjob_changelist")
    for change in ("pause", "resume", "cancel"):
        assert user.post(rows, {"action": change, "_selected_action": [job.pk]}).status_code == 403
    job.refresh_from_db()
    assert job.state == "pending"
    User.objects.get().user_permissions.add(Permission.objects.get(codename=MAY[flow.name][1]))
    assert user.get(bulk).status_code == 200
    assert user.post(page, {"to": "cancelled"}).status_code == 302


def test_the_scope_for_jobs_is_given_by_who_may_act_in_every_flow() -> None:
    needed = systems.scope_permissions("manage:jobs")
    assert {name.partition(".")[2] for name in needed} == {
        "add_bulkjob", "change_bulkjob", "view_personal",
        *(name for may in MAY.values() for name in may),
    }  # fmt: skip


@pytest.mark.parametrize(("mine", "other"), [("notify", "sms"), ("sms", "notify")])
def test_a_job_is_for_those_who_may_see_the_messages(
    row: BizReceive, shop: sms_rows.Caller, mine: str, other: str
) -> None:
    client = staff("add_bulkjob", *MAY[mine])
    for path in ("", "?count=1"):
        assert client.get(f"/console/bulk/{other}{path}").status_code == 403
    assert client.post(f"/console/bulk/{other}", {"since": "2026-01-01"}).status_code == 403
    answer = client.get("/console/bulk")
    assert (answer.status_code, answer.context["flow"].name) == (200, mine)
    assert reverse("console:bulk-flow", args=[other]) not in answer.content.decode()
    assert client.get(f"/console/bulk/{mine}").status_code == 200


def test_without_any_messages_to_see_nothing_is_offered(row: BizReceive) -> None:
    client = staff("add_bulkjob", "view_bizreceive", "change_bizreceive")
    assert client.get("/console/bulk").status_code == 403
    for page in ("/console/", f"/admin/notify/bizreceive/{row.pk}/change/"):
        answer = client.get(page)
        assert answer.status_code == 200
        assert reverse("console:bulk") not in answer.content.decode()


def test_the_one_who_may_starts_a_job(row: BizReceive) -> None:
    client = staff("add_bulkjob", "view_bizmsg", "change_receivemsg")
    assert reverse("console:bulk") in client.get("/console/").content.decode()
    start_bulk(client, "notify", action="resend")
    assert BulkJob.objects.get().created_by == "somebody"


def test_the_admin_adds_no_job(admin_client: Client) -> None:
    add = reverse("admin:msgplatform_bulkjob_add")
    for answer in (admin_client.get(add), admin_client.post(add, {"flow": "notify"})):
        assert answer.status_code == 403
    assert BulkJob.objects.count() == 0


def test_a_job_has_its_action_s_name_for_people_and_another_for_the_audit_log() -> None:
    job = BulkJob.objects.create(flow="notify", action="resend", created_by="x")
    assert str(job) == f"Notify: Send failed deliveries again #{job.pk}"
    with translation.override("zh-hans"):
        assert "Send failed" not in str(job)
        assert job.audit_target == f"resend notify #{job.pk}"
    gone = BulkJob(pk=7, flow="pigeons", action="release")
    assert str(gone) == "pigeons: release #7"


def test_a_paused_job_is_resumed_only_by_who_could_start_it() -> None:
    job = BulkJob.objects.create(flow="notify", state="paused", created_by="x")
    client = staff("view_bulkjob", "change_bulkjob")
    changelist = reverse("admin:msgplatform_bulkjob_changelist")
    asked = {"action": "resume", "_selected_action": [job.pk]}
    assert client.post(changelist, asked).status_code == 403
    job.refresh_from_db()
    assert job.state == "paused"
    User.objects.get().user_permissions.add(*Permission.objects.filter(codename__in=MAY["notify"]))
    assert client.post(changelist, asked).status_code == 302
    job.refresh_from_db()
    assert job.state == "pending"


# -- a page that is at work when somebody stops the job -------------------------------------------
@pytest.mark.parametrize(
    ("state", "page", "ended"),
    [("cancelled", 500, "cancelled"), ("paused", 500, "done"), ("paused", 8, "paused")],
)
def test_the_page_at_work_counts(
    row: BizReceive, monkeypatch: pytest.MonkeyPatch, state: str, page: int, ended: str
) -> None:
    job = BulkJob.objects.create(flow="notify", action="resend", filter={}, created_by="x")
    runner = BulkRunner()
    runner.turn()  # notes when it began
    action = actions.ACTIONS["resend"]
    step_of = action.step

    def stopped_meanwhile(_action: Any, *given: Any) -> Step:
        step = step_of(*given)
        control.change(job.pk, state, "li")
        return step

    monkeypatch.setattr("msgplatform.jobs.bulk.PAGE", page)
    monkeypatch.setattr(type(action), "step", stopped_meanwhile)
    runner.turn()
    monkeypatch.undo()
    job.refresh_from_db()
    assert (job.state, job.done) == (ended, min(page, 20))
    assert (job.finished_at is None) == (ended == "paused")
    if ended == "paused":
        control.change(job.pk, BulkJob.State.PENDING, "li")
        while runner.turn():
            pass
        job.refresh_from_db()
        assert (job.state, job.done) == ("done", 20)


def test_the_overview_shows_jobs_of_flows_that_one_may_see(row: BizReceive) -> None:
    BulkJob.objects.create(flow="notify", action="resend", created_by="x", total=7, more=True)
    for permissions, sees in (
        (("view_bizmsg",), False), (("view_feed", "view_bulkjob"), False),
        (("view_bizmsg", "view_bulkjob"), True), (("view_bizmsg", "add_bulkjob"), True),
    ):  # fmt: skip
        User.objects.all().delete()
        shown = staff(*permissions).get("/console/").content.decode()
        assert ("Send failed deliveries again" in shown) == sees, permissions
        assert ("more than 7" in shown) == sees, permissions
