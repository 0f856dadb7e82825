"""A rule that is written once, in a resource, refuses the same in form, API and platform file."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from crmsync.setup.sources import SourceResource
from gateway.setup import Gateway
from msgplatform.models import AuditLog
from msgplatform.setup.declaration import Before, Faults
from msgplatform.setup.resource import Resource
from notify.setup.consumers import Consumer
from tests.support.management import Manager

pytestmark = pytest.mark.django_db(transaction=True)

WORDS = "Nothing of this name is set up on a Sunday."
SOURCE = {
    "table": "customer", "time_column": "updated_at", "value_columns": ["name", "email"],
    "database": "mysql://reader:secret@db.example.com:3306/shop",
}  # fmt: skip
GATEWAY = {
    "host": "203.0.113.7", "login_name": "acme", "login_password": "secret", "corp_id": "12345",
    "smg_login_name": "unicom", "smg_login_password": "secret",
}  # fmt: skip
CASES = [
    (
        SourceResource, "crmsync/source", "table", SOURCE,
        {"key_column": "id", "zone": "UTC", "lag_seconds": 60, "value_columns": "name\nemail"},
    ),
    (
        Gateway, "gateway/smsgateway", "host", GATEWAY,
        {"port": 8801, "area_code": "010", "connections": 1, "window": 16, "speed_limit": 0,
         "priority": 0, "ascii_limit": 160, "users_per_submit": 84, "response_timeout": 30,
         "resends": 3, "idle_timeout": 60, "report_hours": 72},
    ),
    (
        Consumer, "notify/receive", "title", {"url": "https://warehouse.example/hooks"},
        {"delivery": "push", "header_prefix": "webhook"},
    ),
]  # fmt: skip


def refusals(
    kind: type[Resource], page: str, field: str, body: dict[str, Any], more: dict[str, Any],
    console: Client, folder: Path,
) -> list[dict[str, Any]]:  # fmt: skip
    """The errors of the form, of a PUT and of a file, by field; {} for one that is taken."""
    errors = []
    answer = console.post(f"/admin/{page}/add/", {"name": "form", **body, **more})
    form = answer.context["adminform"].form if answer.status_code == 200 else None
    errors.append(dict(form.errors) if form else {})
    answer = Manager(kind.scope).send("PUT", f"{kind.list_path}/put", body)
    found = answer.json().get("errors", []) if answer.status_code != 201 else []
    errors.append({each["field"]: [each["message"]] for each in found})
    path = folder / "platform.json"
    secrets = kind.secret_fields & body.keys()
    references = {name: f"file:{name}" for name in secrets}
    for name in secrets:
        (folder / name).write_text(body[name])
    section = {kind.list_path: {"file": body | references}}
    path.with_suffix(".yaml").write_text(json.dumps({"msgplatform": 1, **section}))
    arguments = ["apply", str(path.with_suffix(".yaml")), "--secrets", str(folder)]
    try:
        call_command(*arguments, stdout=io.StringIO(), stderr=io.StringIO())
    except CommandError as error:
        errors.append({field: [WORDS]} if WORDS in str(error) and field in str(error) else {})
    else:
        errors.append({})
    return errors


@pytest.mark.parametrize(("kind", "page", "field", "body", "more"), CASES)
def test_one_rule_refuses_everywhere(
    kind: type[Resource], page: str, field: str, body: dict[str, Any], more: dict[str, Any],
    admin_client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def faults(resource: Resource, row: Any, before: Before | None) -> Faults:
        yield field, WORDS

    with monkeypatch.context() as patched:
        patched.setattr(kind, "faults", faults)
        found = refusals(kind, page, field, body, more, admin_client, tmp_path)
        assert found == [{field: [WORDS]}] * 3
        assert not kind.model._default_manager.filter(name__in=["form", "put", "file"]).exists()
    assert refusals(kind, page, field, body, more, admin_client, tmp_path) == [{}] * 3
    names = set(kind.model._default_manager.values_list("name", flat=True))
    assert {"form", "put", "file"} <= names
    actions = AuditLog.objects.filter(target__in=["form", "put", "file"]).values_list("action")
    assert {action for (action,) in actions} == {f"{kind.audit_word()}_created"}
