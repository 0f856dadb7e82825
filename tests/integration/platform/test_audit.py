"""The audit log: every change of the console, with the values before and after."""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.db import OperationalError, connection
from django.forms import inlineformset_factory
from django.test import Client

from msgplatform.company.signing_in import second_factor
from msgplatform.core import invitations
from msgplatform.core.data import sql
from msgplatform.doors.admin import auditing
from msgplatform.jobs.models import BulkJob
from msgplatform.models import Alert, ApiKey, AuditLog, Biz, FailureGroup
from msgplatform.monitor import failure_groups, failure_store
from notify.flow import FLOW
from notify.models import Receive
from tests.support.notify_rows import subscription
from tests.support.sms_rows import gateway

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]


def entry(action: str) -> AuditLog:
    return AuditLog.objects.get(action=action)


def send(client: Client, address: str, **changed: Any) -> None:
    """The form of a page as it stands, with some fields changed."""
    form = client.get(address).context["adminform"].form
    values = {name: form[name].value() for name in form.fields}
    filled = {
        name: "on" if value is True else value
        for name, value in values.items()
        if value is not None and value is not False
    }
    answer = client.post(address, {**filled, **changed})
    assert answer.status_code == 302, answer.context["adminform"].form.errors


def test_users_and_their_groups(admin_client: Client) -> None:
    user = User.objects.create_user("anna", first_name="Ann")
    group = Group.objects.create(name="support")
    page = f"/admin/auth/user/{user.pk}"
    send(admin_client, f"{page}/change/", first_name="Anna", groups=[str(group.pk)],
         last_login_0="", date_joined_0="")  # fmt: skip
    changed = entry("user_changed")
    assert (changed.actor, changed.target) == ("admin", "anna")
    assert changed.detail["changes"] == {"first_name": ["Ann", "Anna"], "groups": [[], ["support"]]}
    secret = "correct horse battery staple"
    posted = {"password1": secret, "password2": secret, "usable_password": "true"}
    assert admin_client.post(f"{page}/password/", posted).status_code == 302
    assert entry("user_password_set").target == "anna"
    assert admin_client.post(f"{page}/delete/", {"post": "yes"}).status_code == 302
    assert entry("user_deleted").target == "anna"
    posted = {"username": "berta", "role": str(group.pk)}
    assert admin_client.post("/admin/auth/user/add/", posted).status_code == 302
    assert entry("user_created").detail["changes"]["username"] == [None, "berta"]
    send(admin_client, f"/admin/auth/group/{group.pk}/change/", name="helpers")
    assert entry("group_changed").detail["changes"] == {"name": ["support", "helpers"]}
    assert secret not in json.dumps(list(AuditLog.objects.values_list("detail", flat=True)))


def test_secrets_have_only_changed(admin_client: Client) -> None:
    row = gateway(login_password="old-secret")
    page = f"/admin/gateway/smsgateway/{row.pk}/change/"
    send(admin_client, page, login_password="new-secret", host="smg2.example.com")
    changes = entry("sms_gateway_changed").detail["changes"]
    assert changes["login_password"] == ["•••", "•••"]
    assert changes["host"] == [row.host, "smg2.example.com"]
    subscription(Biz.objects.create(name="shop"))
    receive = Receive.objects.get()
    Receive.objects.filter(pk=receive.pk).update(url="https://user:hidden@a.example/x?token=hidden")
    send(
        admin_client, f"/admin/notify/receive/{receive.pk}/change/",
        url="https://b.example/y?token=hidden", headers="X-Key: hidden",
    )  # fmt: skip
    changes = entry("consumer_changed").detail["changes"]
    assert changes["url"] == ["https://a.example/x?•••", "https://b.example/y?•••"]
    assert changes["headers"] == [[], ["X-Key"]]
    log = json.dumps(list(AuditLog.objects.values_list("detail", flat=True)))
    assert not [word for word in ("old-secret", "new-secret", "hidden") if word in log]


def test_the_page_of_an_entry_is_readable(admin_client: Client) -> None:
    biz = Biz.objects.create(name="shop", title="Shop")
    send(admin_client, f"/admin/msgplatform/biz/{biz.pk}/change/", title="<b>Web shop</b>")
    row = entry("system_changed")
    page = admin_client.get(f"/admin/msgplatform/auditlog/{row.pk}/change/").content.decode()
    assert "<td>title</td>" in page
    assert '<td class="long">Shop</td>' in page
    assert "&lt;b&gt;Web shop&lt;/b&gt;" in page
    listed = admin_client.get("/admin/msgplatform/auditlog/?q=adm").content.decode()
    assert "system_changed" in listed
    send(admin_client, f"/admin/msgplatform/biz/{biz.pk}/change/", title="Shop")
    listed = admin_client.get("/admin/msgplatform/auditlog/").content.decode()
    assert ">2 audit entries<" in listed
    assert "title" in listed
    found = admin_client.get("/admin/msgplatform/auditlog/?q=nobody").context["cl"]
    assert found.result_list == []


def test_actions_say_what_was_before(admin_client: Client) -> None:
    biz = Biz.objects.create(name="shop")
    key = ApiKey.objects.create(biz=biz, name="till", prefix="p", hash="h")
    job = BulkJob.objects.create(flow="notify", created_by="x", state=BulkJob.State.RUNNING)
    alert = Alert.objects.create(
        kind="a.b", subject="Something", key="k", open_key="k", first_at="2026-01-01T00:00Z",
        last_at="2026-01-01T00:00Z",
    )  # fmt: skip
    for model, action, row in (("apikey", "revoke", key), ("bulkjob", "pause", job),
                               ("alert", "resolve", alert)):  # fmt: skip
        posted = {"action": action, "_selected_action": str(row.pk), "index": "0"}
        address = f"/admin/msgplatform/{model}/"
        assert admin_client.post(address, posted).status_code == 302
    assert entry("api_key_revoked").detail["changes"]["revoked_at"][0] is None
    assert entry("bulk_paused").detail["changes"] == {"state": ["running", "paused"]}
    assert entry("alert_resolved").target == "Something"


def test_rows_of_a_formset() -> None:
    """No form of today has rows of another model in it; one that gets some is audited."""
    biz = Biz.objects.create(name="shop")
    gone = ApiKey.objects.create(biz=biz, name="gone", prefix="p1", hash="h")
    kept = ApiKey.objects.create(biz=biz, name="kept", prefix="p2", hash="h")
    keys = inlineformset_factory(Biz, ApiKey, fields=["name"], extra=0)
    data = {
        "api_keys-TOTAL_FORMS": "2", "api_keys-INITIAL_FORMS": "2",
        "api_keys-0-id": str(kept.pk), "api_keys-0-name": "other",
        "api_keys-1-id": str(gone.pk), "api_keys-1-name": "gone", "api_keys-1-DELETE": "on",
    }  # fmt: skip
    formset = keys(data, instance=biz)
    assert formset.is_valid(), formset.errors
    formset.save()
    assert auditing.of_formset(formset) == {
        f"apikey {kept.pk}": [None, "name"], "apikey": ["gone (p1…)", None],
    }  # fmt: skip


def revoke_invitation(client: Client, anna: User) -> None:
    client.post(f"/admin/auth/user/{anna.pk}/invite/", {"revoke": "1"})


def choose_password(_client: Client, anna: User) -> None:
    visitor, secret = Client(), "correct horse battery staple"
    page = visitor.get(invitations.link_path(anna))["Location"]
    visitor.post(page, {"new_password1": secret, "new_password2": secret})


def remove_factors(_client: Client, anna: User) -> None:
    second_factor.remove_all(anna, "eve")


def acknowledge(_client: Client, _anna: User) -> None:
    group = FailureGroup.objects.get()
    snapshot = failure_groups.GroupSnapshot(group.pk, group.lost, group.last_at)
    failure_groups.acknowledge_group(FLOW, snapshot, "known", "eve")


def make_key(_client: Client, _anna: User) -> None:
    call_command("management_key", "deploy")


@pytest.mark.parametrize(
    "act", [revoke_invitation, choose_password, remove_factors, acknowledge, make_key]
)
def test_nothing_changes_without_its_entry(
    admin_client: Client, act: Callable[[Client, User], None]
) -> None:
    anna = User.objects.create_superuser("anna")
    Authenticator.objects.create(user=anna, type=Authenticator.Type.TOTP, data={})
    failure_store.add("notify", [failure_store.Loss(1, "HTTP 503", 1)], sql.now())

    def state() -> list[Any]:
        password = User.objects.get(pk=anna.pk).password
        numbers = [Authenticator.objects.count(), ApiKey.objects.count()]
        return [password, *numbers, FailureGroup.objects.get().count]

    def refuse_entries(execute: Any, statement: str, *rest: Any) -> Any:
        if statement.startswith("INSERT") and AuditLog._meta.db_table in statement:
            raise OperationalError(1290, "read only")
        return execute(statement, *rest)

    before = state()
    with connection.execute_wrapper(refuse_entries), suppress(OperationalError):
        act(admin_client, anna)
    assert state() == before
    act(admin_client, anna)
    assert state() != before
