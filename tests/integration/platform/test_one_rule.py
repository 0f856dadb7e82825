"""A rule stands once, in a resource: form, API and platform file refuse by the same sentence."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from crmsync.setup.sources import SourceResource
from gateway.setup import Gateway
from msgplatform.setup.resource import Resource
from notify.setup.consumers import Consumer
from tests.support.management import Manager

pytestmark = pytest.mark.django_db(transaction=True)

SOURCE = {
    "table": "customer", "time_column": "updated_at", "value_columns": ["name"],
    "database": "mysql://reader:secret@db.example.com:3306/shop",
}  # fmt: skip
SOURCE_FORM = {
    "table": "customer", "key_column": "id", "time_column": "updated_at", "value_columns": "name",
    "zone": "UTC", "lag_seconds": 60,
}  # fmt: skip
GATEWAY = {
    "host": "203.0.113.7", "login_name": "acme", "login_password": "secret", "corp_id": "12345",
    "smg_login_name": "unicom", "smg_login_password": "secret",
}  # fmt: skip
GATEWAY_FORM = {
    "host": "203.0.113.8", "login_name": "acme", "corp_id": "12345", "smg_login_name": "unicom",
    "port": 8801, "area_code": "010", "connections": 1, "window": 16, "speed_limit": 0,
    "priority": 0, "ascii_limit": 160, "users_per_submit": 84, "response_timeout": 30,
    "resends": 3, "idle_timeout": 60, "report_hours": 72,
}  # fmt: skip
GATEWAY_CHANGE = {
    name: value for name, value in GATEWAY.items() if not name.endswith("password")
} | {"host": "203.0.113.8"}
CONSUMER = {"url": "https://warehouse.example/hooks", "headers": {"X-Api-Key": "secret"}}
CONSUMER_FORM = {
    "url": "https://elsewhere.example/", "headers": "X-Api-Key: •••", "delivery": "push",
    "header_prefix": "webhook",
}  # fmt: skip
# The stored object, a change of it that is refused, the same in the form; the field and the words.
CASES = [
    (
        SourceResource, "crmsync/source", SOURCE,
        {**SOURCE, "database": "mysql://reader@db.example.com"},
        {**SOURCE_FORM, "database": "mysql://reader@db.example.com"},
        "database", "The database's URL names no database",
    ),
    (
        Gateway, "gateway/smsgateway", GATEWAY, GATEWAY_CHANGE, GATEWAY_FORM,
        "login_password", "The stored password was entered for 203.0.113.7:8801: enter it again.",
    ),
    (
        Consumer, "notify/receive", CONSUMER, {"url": "https://elsewhere.example/"}, CONSUMER_FORM,
        "headers", "The stored headers were entered for https://warehouse.example:443",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "page", "stored", "body", "form", "field", "words"), CASES)
def test_one_rule_refuses_everywhere(
    kind: type[Resource], page: str, stored: dict[str, Any], body: dict[str, Any],
    form: dict[str, Any], field: str, words: str, admin_client: Client, tmp_path: Path,
) -> None:  # fmt: skip
    manager = Manager(kind.scope)
    assert manager.send("PUT", f"{kind.list_path}/main", stored).status_code == 201
    row = kind.model._default_manager.get(name="main")
    version = kind("tester", name="main").version(row)

    answer = manager.send("PUT", f"{kind.list_path}/main", body)
    assert answer.status_code == 400
    (error,) = answer.json()["errors"]
    assert error["field"] == field
    assert error["message"].startswith(words)

    answer = admin_client.post(f"/admin/{page}/{row.pk}/change/", {"name": "main", **form})
    assert answer.context["adminform"].form.errors == {field: [error["message"]]}

    folder = tmp_path / "secrets"
    folder.mkdir()
    for name in kind.secret_fields & body.keys():
        (folder / name).write_text(body[name])
        body = {**body, name: f"file:{name}"}
    path = tmp_path / "platform.yaml"
    path.write_text(json.dumps({"msgplatform": 1, kind.list_path: {"main": body}}))
    with pytest.raises(CommandError) as refusal:
        call_command("apply", path, "--secrets", folder, stdout=io.StringIO())
    assert f"{kind.list_path}.main.{field}: {error['message']}" in str(refusal.value)

    row.refresh_from_db()
    assert kind("tester", name="main").version(row) == version


@pytest.mark.parametrize(("case", "other_field"), [(CASES[1], "window"), (CASES[2], "title")])
def test_the_fault_of_a_stored_secret_comes_with_the_errors_of_other_fields(
    case: tuple[Any, ...], other_field: str, admin_client: Client
) -> None:
    kind, page, stored, _body, form, field, _words = case
    assert Manager(kind.scope).send("PUT", f"{kind.list_path}/main", stored).status_code == 201
    row = kind.model._default_manager.get(name="main")
    values = {"name": "main", **form, other_field: "x" * 2000}
    answer = admin_client.post(f"/admin/{page}/{row.pk}/change/", values)
    assert answer.context["adminform"].form.errors.keys() == {field, other_field}
