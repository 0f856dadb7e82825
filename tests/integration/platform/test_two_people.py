"""Two people have the same form open: the second one to save is told who changed what."""

import threading
from datetime import UTC, datetime
from typing import Any

import pytest
from django import forms
from django.contrib.auth.models import Group, User
from django.db import connections, transaction
from django.test import Client

from crmsync.models import Crm
from gateway.models import SmsGateway
from msgplatform.company.alerting.models import AlertChannel, AlertRule
from msgplatform.doors.admin import versions
from msgplatform.doors.api.access import keys
from msgplatform.models import AuditLog, Biz
from notify.models import BizReceive, Receive
from tests.support import crm_rows
from tests.support.lock_waits import let_others_wait, until_somebody_waits
from tests.support.management import Manager
from tests.support.notify_rows import subscription
from tests.support.sms_rows import account, gateway

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("work_redis", "sms_redis"),
]
HUBSPOT, TOKEN = {"object": "contacts", "id_property": "hive_id"}, {"token": "s3cret"}


def client_of(name: str) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser(name))
    return client


@pytest.fixture
def li() -> Client:
    return client_of("li")


@pytest.fixture
def wang() -> Client:
    return client_of("wang")


def filled(client: Client, address: str) -> dict[str, Any]:
    """The form of a page as a browser would send it."""
    answer = client.get(address)
    form = answer.context["adminform"].form
    assert f'name="{versions.SEEN}"' in answer.content.decode()
    sent = shown_again(form)
    for name, field in form.fields.items():
        widget, is_split = field.widget, isinstance(field.widget, forms.MultiWidget)
        if is_split:  # it is not split yet
            parts = widget.decompress(form.initial.get(name))
            for suffix, each, part in zip(widget.widgets_names, widget.widgets, parts, strict=True):
                sent[f"{name}{suffix}"] = each.format_value(part) or ""
    return sent


def shown_again(form: Any) -> dict[str, Any]:
    """The refused form as the browser shows it, to be sent again."""
    sent = {}
    for name, field in form.fields.items():
        value = form[name].value()
        widget, is_split = field.widget, isinstance(field.widget, forms.MultiWidget)
        if is_split:
            if not form.is_bound:
                continue
            for suffix, part in zip(widget.widgets_names, value or (), strict=True):
                sent[f"{name}{suffix}"] = part
        elif isinstance(value, str):
            sent[name] = value.replace("\n", "\r\n")  # as browsers send lines
        elif value is not None and value is not False:
            sent[name] = "on" if value is True else value
    return {**sent, versions.SEEN: form.seen}


def save(client: Client, address: str, values: dict[str, Any]) -> Any:
    answer = client.post(address, values)
    assert answer.status_code == 302, answer.context["adminform"].form.errors


def refused(client: Client, address: str, values: dict[str, Any]) -> tuple[list[Any], str]:
    """The differences that the page shows, and its text."""
    answer = client.post(address, values)
    assert answer.status_code == 200
    form = answer.context["adminform"].form
    assert form.non_field_errors()
    shown = [(one.label, one.before, one.after, one.actor) for one in form.differences]
    return shown, answer.content.decode()


def test_the_second_is_told_and_nothing_is_saved(li: Client, wang: Client) -> None:
    consumer = Receive.objects.create(name="warehouse", title="A", url="https://a.example/")
    address = f"/admin/notify/receive/{consumer.pk}/change/"
    first, second = filled(li, address), filled(wang, address)
    save(li, address, {**first, "title": "B"})
    shown, page = refused(wang, address, {**second, "url": "https://typed.example/"})
    assert shown == [("Title", "A", "B", "li")]
    assert "https://typed.example/" in page
    assert '<div id="differences" role="alert"' in page
    consumer.refresh_from_db()
    assert (consumer.title, consumer.url) == ("B", "https://a.example/")
    assert AuditLog.objects.filter(action="consumer_changed").count() == 1
    # The form that wang sees now has both, and the next save counts.
    form = wang.post(address, {**second, "url": "https://typed.example/"}).context["adminform"].form
    save(wang, address, shown_again(form))
    consumer.refresh_from_db()
    assert (consumer.title, consumer.url) == ("B", "https://typed.example/")


def test_what_both_have_typed_is_the_seconds(li: Client, wang: Client) -> None:
    consumer = Receive.objects.create(name="warehouse", title="A", url="https://a.example/")
    address = f"/admin/notify/receive/{consumer.pk}/change/"
    first, second = filled(li, address), filled(wang, address)
    save(li, address, {**first, "title": "B", "networks": "10.2.0.0/16"})
    form = wang.post(address, {**second, "title": "C"}).context["adminform"].form
    assert (form["title"].value(), form["networks"].value()) == ("C", "10.2.0.0/16")
    save(wang, address, shown_again(form))
    consumer.refresh_from_db()
    assert (consumer.title, consumer.networks) == ("C", ["10.2.0.0/16"])


def test_fields_of_every_kind_get_the_stored_value(li: Client, wang: Client) -> None:
    """Numbers, choices, checkboxes, relations, JSON, lines, and a date with its time."""
    biz = Biz.objects.create(name="orders")
    until = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    key, _plain = keys.create(biz, "checkout", ["events:read", "events:write"], until)
    row = gateway("north")
    crm = Crm.objects.create(name="sales", adapter="hubspot", settings=HUBSPOT, credentials=TOKEN)
    policy = crm_rows.policy(crm_rows.sql_crm("stock", "sqlite:///stock.db"))
    cases: list[tuple[Any, str, dict[str, Any], dict[str, Any]]] = [
        (key, "msgplatform/apikey", {"expires_at": datetime(2031, 1, 2, 3, 4, 5, tzinfo=UTC),
                                     "scopes": ["events:read"]}, {"name": "till"}),
        (row, "gateway/smsgateway", {"enabled": False, "window": 7, "prefixes": ["86130"]},
         {"priority": 3}),
        (crm, "crmsync/crm", {"settings": {**HUBSPOT, "id_property": "other_id"},
                              "concurrency": 7, "retry_seconds": [5, 9]}, {"enabled": False}),
        (policy, "crmsync/policy", {"mapping": f"{policy.mapping}\nlevel = extra.level"},
         {"interval_seconds": 7}),
    ]  # fmt: skip
    for stored, page, theirs, typed in cases:
        address = f"/admin/{page}/{stored.pk}/change/"
        second = filled(wang, address)
        if "scopes" in second:  # a browser sends them in the order of the page
            second["scopes"] = second["scopes"][::-1]
        for name, value in typed.items():
            second[name] = value
            if value is False:
                del second[name]
        type(stored).objects.filter(pk=stored.pk).update(**theirs)
        form = wang.post(address, second).context["adminform"].form
        assert {one.label for one in form.differences}
        save(wang, address, shown_again(form))
        stored.refresh_from_db()
        assert {name: getattr(stored, name) for name in {**theirs, **typed}} == {**theirs, **typed}


def test_what_an_api_key_has_changed_is_told_too(wang: Client) -> None:
    manager = Manager(name="nightly")
    body = {"host": "203.0.113.7", "login_name": "a", "login_password": "s3cret-1",
            "smg_login_name": "b", "smg_login_password": "s3cret-2",
            "corp_id": "12345"}  # fmt: skip
    manager.send("PUT", "sms/gateways/north", body)
    row = SmsGateway.objects.get()
    address = f"/admin/gateway/smsgateway/{row.pk}/change/"
    second = filled(wang, address)
    changed = {**body, "window": 8, "login_password": "s3cret-3"}
    assert manager.send("PUT", "sms/gateways/north", changed).status_code == 200
    shown, page = refused(wang, address, {**second, "window": "9", "login_password": "s3cret-4"})
    actor = "nightly (API key)"
    assert shown == [("Our password", None, None, actor), ("Window", "32", "8", actor)]
    assert "s3cret" not in page
    assert "Enter secrets once more" in page
    row.refresh_from_db()
    assert (row.window, row.login_password) == (8, "s3cret-3")


def test_without_an_entry_the_present_value_is_told(wang: Client) -> None:
    """Such as a change by a program or by SQL."""
    row = gateway("north")
    address = f"/admin/gateway/smsgateway/{row.pk}/change/"
    second = filled(wang, address)
    SmsGateway.objects.update(window=5, login_password="s3cret-5")
    shown, page = refused(wang, address, {**second, "priority": "3"})
    assert shown == [("Our password", None, None, ""), ("Window", None, "5", "")]
    assert "s3cret" not in page


def test_what_a_form_cannot_change_is_no_difference(li: Client) -> None:
    """Programs write other columns of the same row all the time."""
    row = subscription(Biz.objects.create(name="orders"))
    address = f"/admin/notify/bizreceive/{row.pk}/change/"
    seen = filled(li, address)
    values = {**seen, "schedule": "60 s\n60 s", "rate_limit": "5", "timeout": "5"}
    BizReceive.objects.update(failures=3, status=BizReceive.Status.PAUSED)
    save(li, address, values)
    row.refresh_from_db()
    assert (row.rate_limit, row.failures, row.status) == (5, 3, BizReceive.Status.PAUSED)


def test_relations_and_entries_of_others_of_the_same_name(li: Client, wang: Client) -> None:
    user, group = User.objects.create_user("anna"), Group.objects.create(name="support")
    address = f"/admin/auth/user/{user.pk}/change/"
    stamps = {"last_login_0": "", "date_joined_0": ""}
    first, second = filled(li, address) | stamps, filled(wang, address) | stamps
    AuditLog.objects.create(
        actor="x", action="system_changed", target="anna", detail={"changes": {"groups": [1, 2]}}
    )
    save(li, address, {**first, "groups": [str(group.pk)]})
    shown, _page = refused(wang, address, {**second, "first_name": "Anna"})
    assert shown == [("Groups", "–", '["support"]', "li")]


def test_a_form_that_is_sent_twice_and_a_script(li: Client) -> None:
    system = Biz.objects.create(name="orders", title="A")
    address = f"/admin/msgplatform/biz/{system.pk}/change/"
    values = {**filled(li, address), "title": "B"}
    save(li, address, values)
    save(li, address, values)
    assert AuditLog.objects.filter(action="system_changed").count() == 1
    for seen in ("", "x", "[1]", '{"entry": "x", "digests": {}}'):
        Biz.objects.update(title="A")
        save(li, address, {**values, versions.SEEN: seen})


def test_of_two_at_the_same_moment_one_is_the_second(
    li: Client, wang: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_others_wait(monkeypatch)
    system = Biz.objects.create(name="orders", title="A")
    address = f"/admin/msgplatform/biz/{system.pk}/change/"
    values = {**filled(wang, address), "title": "C"}
    answers: list[int] = []

    def post() -> None:
        try:
            answers.append(wang.post(address, values).status_code)
        finally:
            connections.close_all()

    with transaction.atomic():
        Biz.objects.select_for_update().get(pk=system.pk)
        thread = threading.Thread(target=post)
        thread.start()
        until_somebody_waits()
        Biz.objects.filter(pk=system.pk).update(title="B")
    thread.join(60)
    assert answers == [200]
    system.refresh_from_db()
    assert system.title == "B"


def test_of_two_of_one_name_at_the_same_moment_the_second_is_told(
    wang: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_others_wait(monkeypatch)
    answers: list[Any] = []

    def post() -> None:
        try:
            answers.append(wang.post("/admin/msgplatform/biz/add/", {"name": "orders"}))
        finally:
            connections.close_all()

    with transaction.atomic():
        Biz.objects.create(name="orders")
        thread = threading.Thread(target=post)
        thread.start()
        until_somebody_waits()
    thread.join(60)
    assert list(answers[0].context["adminform"].form.errors) == ["name"]


def test_of_two_default_accounts_at_the_same_moment_one_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    let_others_wait(monkeypatch)
    system = Biz.objects.create(name="orders")
    manager, answers = Manager("manage:accounts"), list[Any]()
    body = {"system": "orders", "sp_number": "10655", "corp_id": "12345", "is_default": True}

    def put() -> None:
        try:
            answers.append(manager.send("PUT", "sms/accounts/b", body))
        finally:
            connections.close_all()

    with transaction.atomic():
        account(system, "a", is_default=True)
        thread = threading.Thread(target=put)
        thread.start()
        until_somebody_waits()
    thread.join(60)
    assert [error["field"] for error in answers[0].json()["errors"]] == ["is_default"]


def test_of_two_channels_of_a_rule_that_are_deleted_at_the_same_moment_one_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    let_others_wait(monkeypatch)
    chat, mail = (AlertChannel.objects.create(name=name) for name in ("chat", "mail"))
    rule = AlertRule.objects.create(name="all")
    rule.channels.set([chat, mail])
    manager, answers = Manager(), list[int]()

    def delete() -> None:
        try:
            answers.append(manager.send("DELETE", "alert-channels/mail").status_code)
        finally:
            connections.close_all()

    with transaction.atomic():
        chat.delete()
        thread = threading.Thread(target=delete)
        thread.start()
        until_somebody_waits()
    thread.join(60)
    assert answers == [409]
    assert rule.channels.get() == mail
