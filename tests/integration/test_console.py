"""Who may see what in the console, and what wrong input does."""

from __future__ import annotations

import pytest
import redis
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from msgplatform.bulk import BulkRunner
from msgplatform.models import AuditLog, Biz, BulkJob
from notify.maker import Maker
from notify.models import ReceiveMsg
from tests.integration.notify_rows import publish, subscription

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]


@pytest.fixture
def message_id() -> int:
    biz = Biz.objects.create(name="orders")
    subscription(biz)
    return publish(biz, payload=b'{"card":"4111111111111111"}')[0]


def staff(*permissions: str) -> Client:
    user = User.objects.create_user("somebody", password="x", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


def test_messages_are_for_those_who_may_see_them(message_id: int) -> None:
    client = staff()
    assert client.get(f"/console/notify/{message_id}").status_code == 403
    assert b"Nothing was found" in client.get(f"/console/search?q={message_id}").content
    client = Client()
    client.force_login(User.objects.get())
    User.objects.get().user_permissions.add(Permission.objects.get(codename="view_bizmsg"))
    assert b"4111111111111111" in client.get(f"/console/notify/{message_id}").content


def test_a_list_asks_as_much_for_many_rows_as_for_few(
    message_id: int, admin_client: Client
) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            for path in ("receivemsg", "bizmsg", "bizreceive"):
                assert admin_client.get(f"/admin/notify/{path}/").status_code == 200
        return len(captured)

    Maker().splitter.split()
    few = queries()
    biz = Biz.objects.get()
    for n in range(20):
        subscription(biz, f"more-{n}")
    publish(biz, 10)
    Maker().splitter.split()
    assert queries() == few


def test_queues_are_for_superusers(message_id: int, admin_client: Client) -> None:
    assert staff().get("/django-rq/").status_code == 302
    assert admin_client.get("/django-rq/").status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/console/notify/" + "1" * 5000,
        "/console/notify/abc",
        "/console/search?q=" + "9" * 5000,
        "/console/search?q=%00",
        "/console/bulk/notify?subscription=" + "9" * 150,
        "/console/bulk/notify?biz=-1",
        "/console/bulk/notify?biz=9223372036854775808",
        "/console/bulk/notify?status=bad",
        "/console/bulk/nothing",
    ],
)
def test_wrong_input_is_no_server_error(admin_client: Client, path: str) -> None:
    assert admin_client.get(path).status_code in (200, 404)


def test_a_bulk_requeue_from_form_to_end(message_id: int, admin_client: Client) -> None:
    Maker().splitter.split()
    ReceiveMsg.objects.update(status=ReceiveMsg.Status.EXHAUSTED, send_times=9)
    answer = admin_client.post("/console/bulk/notify", {"status": "exhausted"}, follow=True)
    assert answer.status_code == 200
    job = BulkJob.objects.get()
    assert (job.total, job.created_by) == (1, "admin")
    assert AuditLog.objects.filter(action="bulk_requeue").count() == 1
    runner = BulkRunner()
    while runner.turn():
        pass
    job.refresh_from_db()
    assert (job.state, job.done) == (BulkJob.State.DONE, 1)
    assert ReceiveMsg.objects.get().send_times == 0


def test_a_paced_job_holds_back_no_other(message_id: int, work_redis: redis.Redis) -> None:
    """The pace is the job's lease, so it holds for all runners together."""
    biz = Biz.objects.get()
    publish(biz, 30)
    Maker().splitter.split()
    ReceiveMsg.objects.update(status=ReceiveMsg.Status.EXHAUSTED)
    slow = BulkJob.objects.create(flow="notify", filter={}, rate=10, created_by="x")
    quick = BulkJob.objects.create(flow="notify", filter={"subscription": "9"}, created_by="x")
    for runner in (BulkRunner(), BulkRunner(), BulkRunner()):
        while runner.turn():
            pass
    slow.refresh_from_db()
    quick.refresh_from_db()
    assert slow.done <= 20
    assert quick.state == BulkJob.State.DONE


@pytest.mark.parametrize("state", [BulkJob.State.PAUSED, BulkJob.State.CANCELLED])
def test_a_stopped_job_is_left_alone(message_id: int, state: str) -> None:
    BulkJob.objects.create(flow="notify", state=state, created_by="x")
    assert BulkRunner().turn() is False


def test_a_job_that_fails_says_why() -> None:
    job = BulkJob.objects.create(flow="no such flow", created_by="x")
    with pytest.raises(ValueError, match="no such flow"):
        BulkRunner().turn()
    job.refresh_from_db()
    assert job.state == BulkJob.State.FAILED
    assert "no such flow" in job.error
