"""Platform files: the demo's platform written and applied to an empty one, and what is refused."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from jsonschema import Draft202012Validator

from crmsync.demo import scenario as leads
from crmsync.demo.crms import CallCentre, SalesTable
from crmsync.models import Crm, LandingPage, Policy, Source
from gateway.demo import scenario as sms
from gateway.models import SmsAccount, SmsGateway
from msgplatform.api.management.platform_file import kinds, schema, text
from msgplatform.models import ApiKey, AuditLog, Biz, KeptObject
from notify.demo import scenario as events
from notify.models import BizReceive, EventType, Receive

pytestmark = pytest.mark.django_db(transaction=True)

# What the platform alone writes, and the signing secret, which each platform makes itself.
_OWN_COLUMNS = {"id", "created_at", "changed_at", "secret", "previous_secret"}
_MODELS = (Biz, Receive, EventType, BizReceive, SmsGateway, SmsAccount, LandingPage, Crm, Source,
           Policy)  # fmt: skip
SMALL = """\
msgplatform: 1
systems:
  orders:
    title: Order service
consumers:
  warehouse:
    url: https://warehouse.example/hooks
subscriptions:
  orders/warehouse:
    event_types: [order.*]
"""


def run(command: str, *arguments: Any, **options: Any) -> str:
    out = io.StringIO()
    call_command(command, *map(str, arguments), stdout=out, stderr=io.StringIO(), **options)
    return out.getvalue()


def apply(path: Path, *arguments: Any) -> str:
    return run("apply", path, *arguments)


def refused(path: Path, *arguments: Any) -> str:
    """The faults of a file; nothing is changed by it."""
    before, logged = rows(), AuditLog.objects.count()
    with pytest.raises(CommandError) as caught:
        apply(path, *arguments)
    assert (rows(), AuditLog.objects.count()) == (before, logged)
    return str(caught.value)


def written(folder: Path, content: str, name: str = "platform.yaml") -> Path:
    path = folder / name
    path.write_text(content)
    return path


def rows() -> dict[str, list[Any]]:
    """The tables as they are, with names in the place of numbers: neither writes nor reads a
    file."""
    names = {(model, row.pk): str(getattr(row, "name", row.pk)) for model in _MODELS
             for row in model.objects.all()}  # fmt: skip
    content: dict[str, list[Any]] = {}
    for model in _MODELS:
        of_model = content[model._meta.db_table] = []
        for row in model.objects.all():
            values: dict[str, Any] = {}
            for column in model._meta.concrete_fields:
                value = column.value_from_object(row)
                if column.is_relation:
                    value = names.get((column.related_model, value))
                elif column.name == "owner":
                    value = names.get((Biz, value))
                if column.name not in _OWN_COLUMNS:
                    values[column.name] = value
            for relation in model._meta.many_to_many:
                values[relation.name] = sorted(each.name for each in getattr(row, relation.name).all())
            of_model.append(values)
        of_model.sort(key=lambda values: json.dumps(values, sort_keys=True, default=str))
    return content


def empty() -> None:
    for model in reversed(_MODELS):
        model.objects.all().delete()
    Source.hive()


@pytest.fixture
def demo(tmp_path: Path, settings: Any) -> None:
    """The platform of the demo, and what its demo does not set up: a catalogue and a source."""
    settings.OUTBOUND_ALLOW = ["127.0.0.0/8"]
    consumers = events.consumers()
    events.create(consumers, {each.name: f"http://127.0.0.1:1/{each.name}" for each in consumers})
    urls = {name: f"http://127.0.0.1:1/{name}" for name in sms.SYSTEMS}
    sms.create(urls, {each.name: 9000 for each in sms.OPERATORS})
    leads.create_pages()
    with CallCentre() as call_centre:
        leads.create_crms(SalesTable(tmp_path / "sales.sqlite3"), call_centre)
    orders = Biz.objects.get(name="orders")
    EventType.objects.create(name="order.paid", example={"n": 1.5, "no": "no"}, schema={})
    EventType.objects.create(name="order.paid", biz=orders, description="Ours: “ja” – 是\nyes")
    Receive.objects.filter(name="warehouse").update(headers={"X-Api-Key": "k", "X-2": "#: 2"})
    BizReceive.objects.filter(biz=orders, receive__name="billing").update(status=1)
    BizReceive.objects.filter(biz=orders, receive__name="mailings").update(status=2)
    Biz.objects.create(name="no", title="2026-11-20", enabled=False)
    Source.objects.create(
        name="shop table", database="mysql://a:b@db.example/shop", table="customer",
        time_column="updated_at", version_column="version", value_columns=["name", "email"],
    )  # fmt: skip




def test_the_demo_is_written_and_applied_to_an_empty_platform(
    demo: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, stored = rows(), _secrets_by_reference()
    content = run("export", "--references")
    path = written(tmp_path, content)
    for secret in stored.values():
        assert f" {secret}\n" not in content
    empty()
    assert rows() != before
    assert "The environment has no variable" in refused(path)
    for name, value in stored.items():
        monkeypatch.setenv(name, value)
    assert "0 changed, 0 removed, 0 unchanged" in apply(path)
    assert rows() == before
    logged = AuditLog.objects.count()
    assert "0 added, 0 changed, 0 removed" in apply(path)
    assert AuditLog.objects.count() == logged
    # Without references, as it is kept in a repository: stored secrets stay.
    plain = written(tmp_path, run("export"), "plain.yaml")
    assert "0 added, 0 changed, 0 removed" in apply(plain, "--prune")
    assert rows() == before
    Draft202012Validator(schema.json_schema()).validate(text.read(content.encode()).value)


def _secrets_by_reference() -> dict[str, str]:
    """Variable → the secret that is stored, as exported references name them."""
    found: dict[str, str] = {}
    for gateway in SmsGateway.objects.all():
        name = f"GATEWAY_{gateway.name}".upper().replace("-", "_")
        found[f"{name}_LOGIN_PASSWORD"] = gateway.login_password
        found[f"{name}_SMG_LOGIN_PASSWORD"] = gateway.smg_login_password
    for crm in Crm.objects.all():
        for key, value in crm.credentials.items():
            found[f"CRM_{crm.name}_CREDENTIALS_{key}".upper().replace("-", "_")] = value
    found["SOURCE_SHOP_TABLE_DATABASE"] = Source.objects.get(name="shop table").database
    for key, value in Receive.objects.get(name="warehouse").headers.items():
        found[f"CONSUMER_WAREHOUSE_HEADERS_{key}".upper().replace("-", "_")] = value
    return found
