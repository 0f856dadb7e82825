"""Who may see what in the console, and what wrong input does."""

import time

import pytest
import redis
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.http import Http404
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from django.utils.translation import gettext_lazy

from msgplatform.core import flows
from msgplatform.doors.api.problems import error_pages
from msgplatform.jobs.bulk import BulkRunner
from msgplatform.jobs.models import BulkJob
from msgplatform.models import AuditLog, Biz
from notify.maker.maker import Maker
from notify.models import ReceiveMsg
from tests.support.bulk_form import start_bulk
from tests.support.notify_rows import publish, subscription

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
    assert b"4111111111111111" not in client.get(f"/console/notify/{message_id}").content
    User.objects.get().user_permissions.add(Permission.objects.get(codename="view_personal"))
    assert b"4111111111111111" in client.get(f"/console/notify/{message_id}").content


def test_a_list_asks_as_much_for_many_rows_as_for_few(
    message_id: int, admin_client: Client
) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            for path in ("/console/search/notify", "/admin/notify/bizreceive/"):
                assert admin_client.get(path).status_code == 200
        return len(captured)

    Maker().splitter.split()
    queries()  # the first request of a session notes it
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
        "/console/bulk/notify?status=bad&count=1",
        "/console/bulk/notify?action=nothing",
        "/console/bulk/notify?action=replay&count=1",
        "/console/bulk/notify?action=replay&since=tomorrow&subscription=1&count=1",
        "/console/bulk/notify?ids=" + "x" * 12_001,
        "/console/bulk/nothing",
        "/console/search/notify?since=2026-13-45",
        "/console/search/notify?cursor=x&biz=orders",
        "/console/search/notify?text=x",
        "/console/search/notify?key=%00",
        "/console/search/notify?status=bad",
        "/console/search/nothing",
    ],
)
def test_wrong_input_is_no_server_error(admin_client: Client, path: str) -> None:
    assert admin_client.get(path).status_code in (200, 404)


def test_an_error_page_says_what_the_view_says(admin_client: Client) -> None:
    def page(path: str, status: int) -> str:
        answer = admin_client.get(path)
        assert answer.status_code == status
        return answer.content.decode()

    gone = page("/console/notify/1", 404)
    assert "There is no such message; it may have been deleted by retention." in gone
    assert "The address is wrong" not in gone
    nothing = page("/console/no/such/page", 404)  # the resolver says what it tried
    assert "The address is wrong, or the page does not exist any more." in nothing
    assert "tried" not in nothing
    refused = page("/django-rq/queues/0/empty/", 403)
    assert "Only the platform changes queues." in refused


def test_an_error_page_escapes_what_it_says(rf: RequestFactory) -> None:
    for said in (Http404("<b>"), Http404(gettext_lazy("<b>"))):
        page = error_pages.not_found(rf.get("/x"), said).content.decode()
        assert "&lt;b&gt;" in page
        assert "<b>" not in page


def test_a_bulk_resend_from_form_to_end(message_id: int, admin_client: Client) -> None:
    Maker().splitter.split()
    ReceiveMsg.objects.update(status=ReceiveMsg.Status.EXHAUSTED, send_times=9)
    start_bulk(admin_client, "notify", status="exhausted")
    job = BulkJob.objects.get()
    assert (job.total, job.created_by) == (1, "admin")
    assert AuditLog.objects.filter(action="bulk_resend").count() == 1
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
    nobody = {"subscription": "999999"}
    quick = BulkJob.objects.create(flow="notify", filter=nobody, created_by="x")
    began = time.monotonic()
    for runner in (BulkRunner(), BulkRunner(), BulkRunner()):
        while runner.turn():
            pass
    slow.refresh_from_db()
    quick.refresh_from_db()
    # A page is the work of a second, and comes at its beginning.
    assert slow.done <= 10 * (1 + time.monotonic() - began)
    assert quick.state == BulkJob.State.DONE


def test_nothing_is_counted_before_it_is_asked_for(message_id: int, admin_client: Client) -> None:
    """The first look at the form must not read through a million failed ones."""
    with CaptureQueriesContext(connection) as captured:
        answer = admin_client.get("/console/bulk/notify?action=resend&status=exhausted")
    assert answer.context["counted"] is None
    assert not [q for q in captured if "receive_msg" in q["sql"]]
    assert admin_client.get("/console/bulk/notify?count=1").context["counted"].count == 0


def test_each_action_has_its_form(admin_client: Client) -> None:
    for name, action in flows.get("notify").actions.items():
        answer = admin_client.get(f"/console/bulk/notify?action={name}")
        assert set(answer.context["form"].fields) == {*action.fields, "rate"}
        assert str(action.title) in answer.content.decode()


def test_a_wrong_filter_is_told_at_its_field(admin_client: Client) -> None:
    answer = admin_client.get("/console/bulk/notify?action=replay&since=2026-01-01&count=1")
    assert answer.context["form"].errors["subscription"]
    posted = admin_client.post("/console/bulk/notify", {"action": "replay", "since": "soon"})
    assert posted.context["form"].errors
    assert BulkJob.objects.count() == 0


def test_the_job_keeps_action_and_filter(message_id: int, admin_client: Client) -> None:
    Maker().splitter.split()
    ReceiveMsg.objects.update(status=ReceiveMsg.Status.DELIVERED)
    row = ReceiveMsg.objects.get().biz_receive_id
    given = {"action": "replay", "since": "2026-01-01", "subscription": str(row), "rate": "7"}
    start_bulk(admin_client, "notify", **given)
    job = BulkJob.objects.get()
    assert (job.action, job.rate, job.total) == ("replay", 7, 1)
    assert job.filter == {"since": "2026-01-01T00:00:00+00:00", "subscription": str(row)}
    assert AuditLog.objects.get(action="bulk_replay").detail["filter"] == job.filter
    while BulkRunner().turn():
        pass
    assert ReceiveMsg.objects.get().generation == 1


def test_the_search_by_fields_goes_page_by_page(message_id: int, admin_client: Client) -> None:
    biz = Biz.objects.get()
    wanted = [*publish(biz, 60), message_id]
    url, seen = "/console/search/notify?biz=orders&event_type=order.paid", []
    for _ in range(4):
        answer = admin_client.get(url)
        seen += [hit.id for _, hit in answer.context["hits"]]
        if not answer.context["next"]:
            break
        assert 'rel="next"' in answer.content.decode()
        url = "/console/search/notify" + answer.context["next"]
    assert sorted(map(int, seen)) == sorted(wanted)
    assert len(seen) == 61


def test_the_search_by_fields_is_for_those_who_may_see_messages(message_id: int) -> None:
    client = staff()
    assert client.get("/console/search/notify?biz=orders").status_code == 403
    assert b"search by fields" not in client.get("/console/search").content


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
