"""What a browser is told, who may read the documentation, and what is deleted in time."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session
from django.core.checks import run_checks
from django.test import Client
from django.urls import clear_url_caches
from django.utils import timezone
from pytest_django.fixtures import Settings

from msgplatform.jobs.bulk import BulkRunner
from msgplatform.jobs.models import BulkJob
from msgplatform.models import Biz
from notify.models import Receive
from tests.integration.crmsync.support import landing_page
from tests.support.notify_rows import subscription

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("work_redis")]
HEADER = "Content-Security-Policy"


def directives(response: Any) -> dict[str, list[str]]:
    parts = (part.split() for part in response[HEADER].split(";"))
    return {name: sources for name, *sources in parts}


class TestContentSecurityPolicy:
    @pytest.mark.parametrize("path", ["/admin/login/", "/console/", "/api/docs/", "/problems/"])
    def test_pages_run_no_script_of_others(self, admin_client: Client, path: str) -> None:
        found = directives(admin_client.get(path))
        assert "'unsafe-inline'" not in found["script-src"]
        assert found["frame-ancestors"] == found["object-src"] == ["'none'"]
        assert found["default-src"] == ["'self'"]

    def test_our_own_inline_scripts_run(self, admin_client: Client) -> None:
        response = admin_client.get("/admin/crmsync/crm/add/")
        (nonce,) = set(re.findall(r'<script nonce="([^"]+)"', response.content.decode()))
        assert f"'nonce-{nonce}'" in directives(response)["script-src"]

    def test_every_inline_script_has_its_nonce(self, admin_client: Client) -> None:
        pages = [
            "/console/", "/console/search?q=1", "/admin/", "/admin/notify/bizreceive/",
            "/admin/gateway/smsgateway/", "/admin/crmsync/crm/add/", "/api/docs/",
        ]  # fmt: skip
        for path in pages:
            page = admin_client.get(path, follow=True).content.decode()
            inline = re.findall(r"<script(?![^>]*\bsrc=)([^>]*)>", page)
            programs = [tag for tag in inline if "application/json" not in tag]
            assert all("nonce=" in tag for tag in programs), f"{path}: {programs}"

    @pytest.mark.parametrize("path", ["/l/ad-1", "/l/ad-1/thanks", "/l/none"])
    def test_landing_pages_have_no_script_at_all(self, client: Client, path: str) -> None:
        landing_page(Biz.objects.create(name="cars"))
        response = client.get(path)
        assert "<script" not in response.content.decode()
        assert directives(response)["script-src"] == ["'none'"]

    @pytest.mark.parametrize("path", ["/healthz", "/api/v1/messages"])
    def test_answers_to_programs_have_none(self, client: Client, path: str) -> None:
        assert HEADER not in client.get(path)


class TestDocumentation:
    @pytest.fixture
    def private(self, settings: Settings) -> Any:
        def load() -> None:
            import importlib

            from msgplatform import urls

            importlib.reload(urls)
            clear_url_caches()

        settings.API_DOCS_PUBLIC = False
        load()
        yield
        settings.API_DOCS_PUBLIC = True
        load()

    @pytest.mark.parametrize("path", ["/api/schema/", "/api/docs/"])
    def test_it_may_be_for_console_users_only(
        self, private: None, admin_client: Client, path: str
    ) -> None:
        answer = Client().get(path)
        assert (answer.status_code, answer["Location"]) == (302, f"/admin/login/?next={path}")
        assert admin_client.get(path).status_code == 200

    @pytest.mark.parametrize("path", ["/api/schema/", "/api/docs/"])
    def test_it_is_public_by_default(self, client: Client, path: str) -> None:
        assert client.get(path).status_code == 200


def test_expired_sessions_are_deleted() -> None:
    for seconds in (-60, 60):
        session = SessionStore()
        session["a"] = 1
        session.set_expiry(timezone.now() + timedelta(seconds=seconds))
        session.save()
    BulkRunner().turn()
    assert Session.objects.count() == 1
    assert Session.objects.get().expire_date > timezone.now()


def test_a_job_that_fails_does_not_hold_up_the_upkeep() -> None:
    session = SessionStore()
    session.set_expiry(timezone.now() - timedelta(seconds=60))
    session.save()
    BulkJob.objects.create(flow="none", action="none", filter={}, created_by="ann")
    with pytest.raises(ValueError, match="no flow named none"):
        BulkRunner().turn()
    assert not Session.objects.exists()


def test_a_proxy_that_is_not_counted_is_named(settings: Settings) -> None:
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    found = {message.id for message in run_checks(include_deployment_checks=True)}
    assert "msgplatform.W102" in found
    settings.REST_FRAMEWORK = {**settings.REST_FRAMEWORK, "NUM_PROXIES": 1}
    found = {message.id for message in run_checks(include_deployment_checks=True)}
    assert "msgplatform.W102" not in found


def test_programs_are_refused_without_tls(settings: Settings) -> None:
    """Most libraries would repeat a POST as a GET after a redirect, and be answered by 200."""
    settings.SECURE_SSL_REDIRECT = True
    client, address = Client(), "/api/v1/messages"
    refused = client.post(address, "{}", content_type="application/json")
    assert (refused.status_code, refused.json()["type"]) == (403, "/problems/forbidden")
    assert client.get(address).status_code == 301
    answer = client.post(address, "{}", content_type="application/json", secure=True)
    assert answer.status_code == 401


class TestUrlsOfConsumers:
    """They may hold a token."""

    @pytest.fixture
    def viewer(self, django_user_model: Any) -> Client:
        from django.contrib.auth.models import Permission

        user = django_user_model.objects.create_user("viewer", password="x", is_staff=True)
        wanted = ["view_receive", "view_bizreceive"]
        user.user_permissions.set(Permission.objects.filter(codename__in=wanted))
        client = Client()
        client.force_login(user)
        return client

    @pytest.fixture
    def consumer(self) -> Receive:
        consumer: Receive = subscription(Biz.objects.create(name="orders")).receive
        Receive.objects.filter(pk=consumer.pk).update(url="https://hooks.example/in?token=s3cret")
        return consumer

    def test_are_masked_for_viewers(self, viewer: Client, consumer: Receive) -> None:
        for path in ("", f"{consumer.pk}/change/"):
            page = viewer.get(f"/admin/notify/receive/{path}").content.decode()
            assert "https://hooks.example/in" in page
            assert "s3cret" not in page

    @pytest.mark.parametrize("path", ["receive", "bizreceive"])
    def test_cannot_be_searched_by_viewers(
        self, viewer: Client, admin_client: Client, consumer: Receive, path: str
    ) -> None:
        def found(client: Client) -> bool:
            page = client.get(f"/admin/notify/{path}/?q=s3cret").content.decode()
            return f"/{path}/{consumer.pk if path == 'receive' else ''}" in page and (
                "0 results" not in page and "No results" not in page
            )

        assert not found(viewer)
        assert found(admin_client)

    def test_cannot_be_asked_for_in_the_address_of_the_page(
        self, viewer: Client, admin_client: Client, consumer: Receive
    ) -> None:
        def rows(client: Client, text: str) -> int | None:
            answer = client.get(f"/admin/notify/receive/?url__contains={text}")
            return answer.context["cl"].result_count if answer.status_code == 200 else None

        assert (rows(admin_client, "s3cret"), rows(admin_client, "nope")) == (1, 0)
        assert (rows(viewer, "s3cret"), rows(viewer, "nope")) == (None, None)

    def test_can_be_changed_by_operators(self, admin_client: Client, consumer: Receive) -> None:
        page = admin_client.get(f"/admin/notify/receive/{consumer.pk}/change/").content.decode()
        assert "token=s3cret" in page


@pytest.mark.parametrize(
    "path", ["/console/", "/console/search?q=1", "/console/none/1", "/django-rq/", "/admin/"]
)
def test_browsers_store_no_page_of_the_console(admin_client: Client, path: str) -> None:
    assert "no-store" in admin_client.get(path)["Cache-Control"]


def test_a_login_without_a_page_to_go_to_leads_to_the_overview(client: Client) -> None:
    User.objects.create_superuser("ann", password="correct horse")
    given = {"username": "ann", "password": "correct horse", "next": "https://evil.example/"}
    answer = client.post("/admin/login/", given)
    assert (answer.status_code, answer["Location"]) == (302, "/console/")


def test_a_foreign_host_is_one_line_in_the_log(
    client: Client, caplog: pytest.LogCaptureFixture, settings: Settings
) -> None:
    settings.ALLOWED_HOSTS = ["testserver"]
    with caplog.at_level("INFO"):
        assert client.get("/console/", headers={"host": "evil.example"}).status_code == 400
    lines: list[Any] = caplog.records
    assert [(line.levelname, line.msg["event"], line.msg["host"]) for line in lines] == [
        ("INFO", "foreign_host", "evil.example")
    ]
