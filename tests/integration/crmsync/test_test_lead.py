"""A test lead from the console: the calls, their answers, and nothing left behind."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from crmsync.models import Crm
from msgplatform.models import AuditLog
from tests.support import crm_rows
from tests.support.http_sinks import refusing_port
from tests.support.json_stub import Answer, Asked, asked, serving
from tests.support.lead_store import LeadStore, rest

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
FORM = {"key": "test-7", "fields_sent": '{"name": "Ann", "phone": "1"}', "remove": "on"}


@pytest.fixture(autouse=True)
def allowed(settings: Any) -> None:
    settings.OUTBOUND_ALLOW = ["127.0.0.0/8"]


def address(crm: Crm) -> str:
    return f"/admin/crmsync/crm/{crm.pk}/lead/"


def over_http(url: str) -> Crm:
    return Crm.objects.create(
        name="api", adapter="http", settings={"url": f"{url}/{{key}}", **rest(url)},
        credentials={"token": "hush-hush"},
    )  # fmt: skip


def test_the_calls_and_their_answers(admin_client: Client) -> None:
    store = LeadStore()

    def answer(request: Asked) -> Answer:
        made = store(request)
        if request.method == "PUT":
            made.body["access_token"] = "given-away"
        return made

    with serving(answer) as server:
        crm = over_http(server.url("/leads"))
        assert "test-" in admin_client.get(address(crm)).content.decode()
        shown = admin_client.post(address(crm), FORM)
        page = shown.content.decode()
        calls = [request.method for request in asked(server)]
    assert calls == ["PUT", "GET", "DELETE"]
    assert store.leads == {}
    assert "The CRM took it; its id there is r-test-7." in page
    assert "It was deleted from the CRM afterwards." in page
    (call,) = shown.context["outcome"].calls
    assert call.request.startswith("PUT http://127.0.0.1")
    assert "Authorization: •••" in call.request
    assert '"name":"Ann"' in call.request
    assert call.status == 201
    assert '"r-test-7"' in call.answer
    assert '"Ann"' in shown.context["outcome"].held
    for secret in ("hush-hush", "given-away"):
        assert secret not in page
    entry = AuditLog.objects.get()
    assert (entry.action, entry.detail) == ("crm_test_lead_sent", {"key": "test-7"})


def test_a_secret_that_the_settings_put_elsewhere_is_not_shown(admin_client: Client) -> None:
    """Whoever may change a CRM may not read its credentials."""
    store = LeadStore()
    with serving(store) as server:
        crm = over_http(server.url("/leads"))
        crm.settings["headers"] = {**crm.settings["headers"], "Accept": "x/{secret.token}"}
        inner = {"deep": ["{secret.token}"]}
        crm.settings["body"] = {**crm.settings["body"], "name": "{secret.token}", "more": inner}
        crm.save()
        shown = admin_client.post(address(crm), FORM)
        (sent, *_others) = asked(server)
    assert (sent.headers["accept"], sent.body["name"]) == ("x/hush-hush", "hush-hush")
    (call,) = shown.context["outcome"].calls
    assert "Accept: x/•••" in call.request
    assert shown.context["outcome"].held.count("•••") == 2
    assert "hush" not in shown.content.decode()


def test_a_refusal_and_no_answer(admin_client: Client) -> None:
    with serving(lambda request: Answer({"message": "phone is <wrong>"}, 422)) as server:
        page = admin_client.post(address(over_http(server.url("/leads"))), FORM).content.decode()
    assert "phone is &lt;wrong&gt;" in page
    Crm.objects.all().delete()
    crm = over_http(f"http://127.0.0.1:{refusing_port()}/leads")
    assert "No answer." in admin_client.post(address(crm), FORM).content.decode()


def test_a_table(admin_client: Client, tmp_path: Path) -> None:
    """Without calls there is what the CRM holds; what is not to be deleted stays."""
    crm = crm_rows.sql_crm("sales", crm_rows.customers(tmp_path / "customers.db"))
    page = admin_client.post(address(crm), {**FORM, "remove": ""}).content.decode()
    assert "It was left in the CRM." in page
    with closing(sqlite3.connect(tmp_path / "customers.db")) as table:
        assert table.execute("SELECT id, name FROM customer").fetchall() == [("test-7", "Ann")]
    wrong = {**FORM, "fields_sent": '{"nmae": "Ann"}'}
    page = admin_client.post(address(crm), wrong).content.decode()
    assert "Did you mean name?" in page


def test_only_keys_that_no_lead_has_and_only_who_may_change(
    admin_client: Client, tmp_path: Path
) -> None:
    crm = crm_rows.sql_crm("sales", crm_rows.customers(tmp_path / "customers.db"))
    answer = admin_client.post(address(crm), {**FORM, "key": "4711"})
    assert list(answer.context["form"].errors) == ["key"]
    user = User.objects.create_user("looker", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename="view_crm"))
    client = Client()
    client.force_login(user)
    assert client.get(address(crm)).status_code == 403
    assert client.post(address(crm), FORM).status_code == 403
    assert not AuditLog.objects.exists()
