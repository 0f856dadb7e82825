"""Each person's language and time zone."""

from datetime import UTC, datetime

import pytest
import time_machine
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from msgplatform.doors.api.access import keys
from msgplatform.jobs.models import BulkJob
from msgplatform.models import Alert, Biz, Preferences
from notify.maker.maker import Maker
from notify.models import ReceiveMsg
from tests.support.management import Manager
from tests.support.notify_rows import publish, subscription

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
PAGE = "/console/preferences"
KEY_FORM = "/admin/msgplatform/apikey/add/"
NOW = datetime(2026, 7, 1, 20, 30, tzinfo=UTC)


@pytest.fixture
def in_shanghai(admin_client: Client) -> Client:
    posted = {"language": "", "time_zone": "Asia/Shanghai"}
    assert admin_client.post(PAGE, posted).status_code == 302
    return admin_client


def test_a_choice_is_kept_and_can_be_taken_back(in_shanghai: Client) -> None:
    row = Preferences.objects.get()
    assert (row.user.get_username(), row.language, row.time_zone) == ("admin", "", "Asia/Shanghai")
    html = in_shanghai.get(PAGE).content.decode()
    assert '<option value="Asia/Shanghai" selected>' in html
    assert "Asia/Shanghai, UTC+8" in html
    assert in_shanghai.post(PAGE, {"time_zone": "Mars/Base"}).status_code == 200
    in_shanghai.post(PAGE, {"language": "", "time_zone": ""})
    assert "Asia/Shanghai, UTC+8" not in in_shanghai.get(PAGE).content.decode()


def test_times_are_shown_and_read_in_that_zone(in_shanghai: Client) -> None:
    Alert.objects.create(kind="a.b", subject="S", key="k", first_at=NOW, last_at=NOW)
    listed = in_shanghai.get("/admin/msgplatform/alert/").content.decode()
    assert "2026-07-02 04:30:00" in listed
    with time_machine.travel(NOW, tick=False):
        chosen = in_shanghai.get("/console/search/notify").content.decode()
        assert 'data-since="2026-07-02T03:30' in chosen


def test_every_page_names_the_zone_of_its_times(in_shanghai: Client) -> None:
    biz = Biz.objects.create(name="shop")
    for address in (
        "/console/failures",
        "/console/search/notify",  # a list
        "/admin/msgplatform/apikey/add/",  # a form, which asks for a time
        f"/admin/msgplatform/biz/{biz.pk}/change/",
    ):
        html = in_shanghai.get(address).content.decode()
        assert html.count('class="zone-of-page"') == 1, address
        assert ">Asia/Shanghai, UTC+8</a>" in html, address


def test_a_bulk_job_means_the_time_of_whoever_started_it(
    in_shanghai: Client, settings: Settings
) -> None:
    """The program that runs it has the platform's zone."""
    settings.TIME_ZONE = "UTC"
    row = subscription(Biz.objects.create(name="shop"))
    publish(row.biz)
    Maker().splitter.split()
    ReceiveMsg.objects.update(status=ReceiveMsg.Status.EXHAUSTED)
    data = {"action": "resend", "subscription": str(row.pk), "status": "exhausted",
            "since": "2026-01-02 08:00"}  # fmt: skip
    counted = in_shanghai.post("/console/bulk/notify", {**data, "count": "1"})
    previewed = counted.context["previewed"]
    assert previewed, counted.context["form"].errors
    in_shanghai.post("/console/bulk/notify", {**data, "start": "1", "previewed": previewed})
    assert BulkJob.objects.get().filter["since"] == "2026-01-02T08:00:00+08:00"


def test_a_bulk_job_of_the_api_means_the_time_of_the_platform(
    in_shanghai: Client, settings: Settings
) -> None:
    settings.TIME_ZONE = "UTC"
    body = {"flow": "notify", "action": "resend", "filter": {"since": "2026-01-02 08:00"}}
    manager = Manager()
    ids = {manager.send("POST", "jobs", body, idempotency_key="k").json()["id"] for _ in range(2)}
    (pk,) = ids
    page = in_shanghai.get(f"/console/bulk/jobs/{pk}").context
    assert page["filter"] == [("Since", "2026-01-02 16:00")]
    assert "since=2026-01-02T08%3A00%3A00%2B00%3A00" in page["repeat_url"]
    BulkJob.objects.update(filter=body["filter"])  # as the release before stored it
    assert manager.send("POST", "jobs", body, idempotency_key="k").json()["id"] == pk


def test_the_language(admin_client: Client) -> None:
    assert '<html lang="en"' in admin_client.get(PAGE).content.decode()
    by_browser = admin_client.get(PAGE, headers={"accept-language": "zh-CN"}).content.decode()
    assert '<html lang="zh-hans"' in by_browser
    admin_client.post(PAGE, {"language": "zh-hans", "time_zone": ""})
    html = admin_client.get(PAGE, headers={"accept-language": "en"}).content.decode()
    assert '<html lang="zh-hans"' in html
    assert "返回网站" not in html
    assert "简体中文" in html


def test_what_a_key_may_do_is_said_in_the_language(admin_client: Client) -> None:
    assert "events:write: publish events" in admin_client.get(KEY_FORM).content.decode()
    admin_client.post(PAGE, {"language": "zh-hans", "time_zone": ""})
    html = admin_client.get(KEY_FORM).content.decode()
    for scope, text in {**keys.scopes(), **keys.management_scopes()}.items():
        assert f"{scope}: " in html
        assert f"{scope}: {text}" not in html


def test_nobody_else_gets_it(in_shanghai: Client) -> None:
    """Language and zone belong to a thread, which goes on to serve others."""
    in_shanghai.post(PAGE, {"language": "zh-hans", "time_zone": "Asia/Shanghai"})
    User.objects.create_superuser("other")
    other = Client()
    other.force_login(User.objects.get(username="other"))
    for ask in (lambda: other.get(PAGE), lambda: Client().get("/healthz")):
        assert '<html lang="zh-hans"' in in_shanghai.get(PAGE).content.decode()
        assert ask().status_code == 200
        assert timezone.get_current_timezone_name() == timezone.get_default_timezone_name()
    api = in_shanghai.get("/api/v1/messages/1", headers={"accept-language": "zh"})
    assert api.status_code == 401
    assert "API key" in api.json()["title"] + api.json()["detail"]
    assert "Content-Language" not in api.headers


def test_a_zone_that_is_no_longer_known(in_shanghai: Client) -> None:
    Preferences.objects.update(time_zone="Gone/Away", language="tlh")
    assert in_shanghai.get(PAGE).status_code == 200


@pytest.mark.parametrize("zone", ["Asia/Shanghai", "America/New_York"])
@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_the_ends_of_the_calendar_in_a_person_s_zone(
    admin_client: Client, zone: str, moment: str
) -> None:
    Preferences.objects.create(user=User.objects.get(), time_zone=zone)
    for address in (
        f"/console/search/notify?since={moment}", f"/console/search/sms?until={moment}",
        f"/console/bulk/notify?action=resend&since={moment}",
        f"/admin/crmsync/recoveryentry/?created_at_since={moment[:19]}",
        f"/admin/msgplatform/auditlog/?at_until={moment[:16]}",
    ):  # fmt: skip
        assert admin_client.get(address).status_code == 200, address
    key = {
        "biz": Biz.objects.create(name="orders").pk, "name": "till", "scopes": ["events:write"],
        "expires_at_0": moment[:10], "expires_at_1": moment[11:19],
    }  # fmt: skip
    errors = admin_client.post(KEY_FORM, key).context["adminform"].form.errors
    assert list(errors) == ["expires_at"]
