"""Platform files over the management API: applied, exported, refused, and one at a time."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections
from django.test import Client
from jsonschema import Draft202012Validator

from crmsync.models import Crm
from gateway.models import SmsGateway
from msgplatform.doors.admin.platform import systems
from msgplatform.doors.api.access import keys, throttling
from msgplatform.models import ApiKey, AuditLog, Biz, KeptObject
from msgplatform.setup.platform_file import kinds
from notify.models import BizReceive, Receive
from tests.support.answers import Answer
from tests.support.api_document import document
from tests.support.api_support import problem
from tests.support.management import Manager

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("work_redis", "sms_redis"),
]
SECRET = "s3cret-value"
FILE = f"""\
msgplatform: 1
systems:
  orders:
    title: Order service
consumers:
  warehouse:
    url: https://warehouse.example/hooks
    headers:
      X-Api-Key: {SECRET}
subscriptions:
  orders/warehouse:
    event_types: [order.*]
"""


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(throttling, "_paused_until", 0.0)
    keys.forget()
    yield
    keys.forget()


@pytest.fixture
def manager() -> Manager:
    return Manager("manage:platform", name="pipeline")


def put(manager: Manager, content: str | bytes, query: str = "") -> Answer:
    answer: Answer = Client().generic(
        "PUT",
        f"/api/v1/platform{query}",
        content,
        "application/yaml",
        headers={"Authorization": f"Bearer {manager.plain}"},
    )
    if answer.status_code == 200:
        answers = document()["paths"]["/api/v1/platform"]["put"]["responses"]["200"]["content"]
        schema = {**answers["application/json"]["schema"], "components": document()["components"]}
        Draft202012Validator(schema).validate(answer.json())
    return answer


def export(manager: Manager, query: str = "") -> str:
    headers = {"Authorization": f"Bearer {manager.plain}", "Accept": "application/yaml"}
    answer: Answer = Client().get(f"/api/v1/platform{query}", headers=headers)
    assert answer["Content-Type"] == "application/yaml; charset=utf-8"
    return answer.content.decode()


def changes(answer: Answer) -> dict[str, dict[str, Any]]:
    """Title → the change, without those that are none."""
    assert answer.status_code == 200, answer.content
    return {
        f"{each['section']} {each['name']}": each
        for each in answer.json()["changes"]
        if each["action"] not in ("unchanged", "unlisted")
    }


def stored() -> tuple[Any, ...]:
    counts = [each.objects.count() for each in (AuditLog, BizReceive, Receive)]
    kept = KeptObject.objects.exclude(section="").count()  # without the row that is only locked
    return (*counts, kept, *Biz.objects.order_by("id").values_list("name", "title"))


def refused(manager: Manager, content: str, query: str = "") -> list[dict[str, Any]]:
    before = stored()
    errors: list[dict[str, Any]] = problem(put(manager, content, query), 400, "invalid-input")[
        "errors"
    ]
    assert SECRET not in json.dumps(errors)
    assert stored() == before
    return errors


# -- apply ---------------------------------------------------------------------------------------
def test_a_file_is_tried_then_applied(manager: Manager) -> None:
    before = stored()
    trial = put(manager, FILE, "?dry_run=true&label=4f2a")
    added = changes(trial)
    assert list(added) == [
        "systems orders",
        "consumers warehouse",
        "subscriptions orders/warehouse",
    ]
    # Its answer tells whether a secret is the stored one: nobody tries many unseen.
    (tried,) = AuditLog.objects.all()
    assert (tried.action, tried.target) == ("platform_file_tried", "4f2a")
    assert tried.detail == {"secrets_of": ["consumers warehouse"]}
    assert stored() == (1, *before[1:])
    assert added["consumers warehouse"]["new_secrets"] == {}
    applied = put(manager, FILE, f"?label=4f2a&plan={trial.json()['plan']}")
    (consumer,) = Receive.objects.all()
    assert consumer.headers == {"X-Api-Key": SECRET}
    made = changes(applied)["consumers warehouse"]
    assert made["new_secrets"] == {"secret": consumer.secret}
    assert (made["action"], made["secrets"]) == ("added", ["headers"])
    assert made["values"] == {"url": "https://warehouse.example/hooks"}
    assert applied.json()["counts"]["added"] == 3
    for text in (*(each.content.decode() for each in (trial, applied)),
                 str(list(AuditLog.objects.values()))):  # fmt: skip
        assert SECRET not in text
    assert {each.actor for each in AuditLog.objects.all()} == {"pipeline (API key)"}
    assert KeptObject.objects.filter(label="4f2a").count() == 3
    logged = AuditLog.objects.count()
    again = put(manager, FILE)
    assert (changes(again), again.json()["counts"]["unchanged"]) == ({}, 3)
    assert AuditLog.objects.count() == logged
    changed = changes(put(manager, FILE.replace("[order.*]", "[a, b]")))
    assert changed["subscriptions orders/warehouse"]["differences"] == {
        "event_types": {"stored": ["order.*"], "sent": ["a", "b"]}
    }
    assert changes(put(manager, FILE.replace(SECRET, "another")))["consumers warehouse"] == {
        "action": "changed", "section": "consumers", "name": "warehouse", "values": {},
        "differences": {}, "secrets": ["headers"], "note": "", "new_secrets": {},
    }  # fmt: skip


def test_json_is_as_good(manager: Manager) -> None:
    made = manager.send("PUT", "platform", {"systems": {"orders": {"title": "Orders"}}})
    assert list(changes(made)) == ["systems orders"]
    shown = manager.send("GET", "platform").json()
    assert shown == {"msgplatform": 1, "systems": {"orders": {"title": "Orders"}}}
    assert changes(manager.send("PUT", "platform", shown)) == {}
    answer = manager.send("PUT", "platform", {"systems": {"orders": {"titel": "x"}}})
    (error,) = problem(answer, 400, "invalid-input")["errors"]
    assert (error["line"], error["path"]) == (0, ["systems", "orders", "titel"])
    assert error["message"].startswith("There is no such field. Did you mean title?")
    twice = b'{"systems": {"a": {}, "b": {}, "a": {"title": "A"}}}'
    refused = problem(manager.send("PUT", "platform", twice), 400, "malformed-body")
    assert "'a' is there twice" in refused["detail"]
    many = b'{"systems": [' + b"0," * 100_000 + b"0]}"
    (error,) = problem(manager.send("PUT", "platform", many), 400, "invalid-input")["errors"]
    assert "divide it" in error["message"]
    for nothing in (b"{", b"null", b""):
        problem(manager.send("PUT", "platform", nothing), 400, "malformed-body")
    for nothing in (b"", b"# a comment\n"):
        problem(put(manager, nothing), 400, "malformed-body")


def test_what_the_file_does_not_have_is_removed_on_request_only(manager: Manager) -> None:
    put(manager, FILE)
    Receive.objects.create(name="spare", url="http://127.0.0.1/")
    assert put(manager, FILE).json()["counts"]["unlisted"] == 1
    trial = put(manager, FILE, "?prune=true&dry_run=true").json()
    assert trial["counts"]["removed"] == 1
    # Somebody else adds one: it is not what was shown.
    Receive.objects.create(name="later", url="http://127.0.0.1/")
    plan = f"?prune=true&plan={trial['plan']}"
    problem(put(manager, FILE, plan), 412, "changed")
    assert Receive.objects.count() == 3
    Receive.objects.filter(name="later").delete()
    assert list(changes(put(manager, FILE, plan))) == ["consumers spare"]
    assert not Receive.objects.filter(name="spare").exists()


@pytest.mark.parametrize(
    ("old", "new", "message", "path"),
    [
        ("title:", "titel:", "Line 4: There is no such field. Did you mean title?",
         ["systems", "orders", "titel"]),
        ("[order.*]", "[1]", "Line 12: ", ["subscriptions", "orders/warehouse", "event_types", 0]),
        ("[order.*]", "&a [x]", "Line 12: Anchors and aliases", []),
        ("[order.*]", "!!python/name:os.system", "Line 12: Tags are not read", []),
        ("msgplatform: 1", "msgplatform: 2", "Line 1: The file is of form 2", ["msgplatform"]),
        (SECRET, '"${HOME}"', "Line 9: The server reads no references",
         ["consumers", "warehouse", "headers", "X-Api-Key"]),
        (SECRET, "file:/etc/passwd", "Line 9: The server reads no references",
         ["consumers", "warehouse", "headers", "X-Api-Key"]),
    ],
)  # fmt: skip
def test_a_fault_changes_nothing(
    manager: Manager, old: str, new: str, message: str, path: list[Any]
) -> None:
    assert old in FILE
    (error,) = refused(manager, FILE.replace(old, new, 1))
    assert error["message"].startswith(message)
    assert error["path"] == path
    assert str(error["line"]) in error["message"]


def test_bounds_of_a_request(manager: Manager) -> None:
    head = FILE.encode() + b"# "
    problem(put(manager, head + b"x" * 10 * 1024 * 1024), 413, "body-too-large")
    assert put(manager, head + b"x" * 2 * 1024 * 1024, "?dry_run=true").status_code == 200
    answer = Client().generic("PUT", "/api/v1/platform", FILE, "text/plain",
                              headers={"Authorization": f"Bearer {manager.plain}"})  # fmt: skip
    problem(answer, 415, "unsupported-media-type")
    for query, field in (("dry_run=1", "dry_run"), ("prun=true", "prun"),
                         (f"label={'x' * 101}", "label")):  # fmt: skip
        assert refused(manager, FILE, f"?{query}")[0]["field"] == field
    assert Biz.objects.count() == 0


def test_all_or_nothing_where_only_the_database_knows(manager: Manager, tmp_path: Path) -> None:
    """A rule of the database that no form knows; the answer has neither its words nor values."""
    with _refusing_trigger():
        (error,) = refused(manager, FILE)
        assert error["message"].startswith("Line 11: The database refuses it")
        assert error["path"] == ["subscriptions", "orders/warehouse"]
        path = tmp_path / "platform.yaml"
        path.write_text(FILE.replace(SECRET, '"${HOME}"'))
        with pytest.raises(CommandError, match=r"platform.yaml:11: .*The database refuses it"):
            call_command("apply", str(path))
    assert Biz.objects.count() == 0


@contextmanager
def _refusing_trigger() -> Iterator[None]:
    action = "SELECT RAISE(ABORT, 'no such thing')"
    if connection.vendor == "mysql":
        action = "SIGNAL SQLSTATE '23000' SET MYSQL_ERRNO = 1062, MESSAGE_TEXT = 'no'"
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TRIGGER no_subscription BEFORE INSERT ON biz_receive "
            f"FOR EACH ROW BEGIN {action}; END"
        )
        try:
            yield
        finally:
            cursor.execute("DROP TRIGGER no_subscription")


def test_one_at_a_time(manager: Manager, tmp_path: Path) -> None:
    """By API and by command; somebody else has begun and not ended."""
    if connection.vendor != "mysql":
        return  # SQLite lets one write after the other
    path = tmp_path / "platform.yaml"
    path.write_text("systems:\n  orders: {}\n")
    call_command("apply", str(path))
    with closing(connections.create_connection("default")) as other:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute("SELECT * FROM kept_object WHERE section = '' FOR UPDATE")
            answer = put(manager, FILE)
            assert "is being applied" in problem(answer, 409, "not-now")["detail"]
            with pytest.raises(CommandError, match="is being applied"):
                call_command("apply", str(path))
        other.rollback()
    assert put(manager, FILE).status_code == 200


def test_who_follows_the_changes_misses_none_of_a_long_file(manager: Manager) -> None:
    """What somebody else changes meanwhile has a smaller id than all changes of the file: these
    get theirs just before they are committed."""
    if connection.vendor != "mysql":
        return  # SQLite lets one write after the other
    with closing(connections.create_connection("default")) as other:

        def with_another_change(execute: Any, sql: str, *arguments: Any) -> Any:
            result = execute(sql, *arguments)
            if sql.startswith(f"INSERT INTO `{Receive._meta.db_table}`"):
                with other.cursor() as cursor:
                    cursor.execute(
                        f"INSERT INTO {AuditLog._meta.db_table} (at, actor, action, target, detail)"
                        " VALUES (NOW(6), 'somebody', 'changed', '', '{}')"
                    )
            return result

        with connection.execute_wrapper(with_another_change):
            assert put(manager, FILE).status_code == 200
    actors = list(AuditLog.objects.order_by("id").values_list("actor", flat=True))
    assert actors == ["somebody", *["pipeline (API key)"] * 3]


# -- export and schema ---------------------------------------------------------------------------
def test_what_is_exported_can_be_sent_back(manager: Manager) -> None:
    put(manager, FILE)
    exported = export(manager)
    assert SECRET not in exported
    assert "# Secrets that are stored" in exported
    assert changes(put(manager, exported)) == {}
    assert "X-Api-Key: ${CONSUMER_WAREHOUSE_HEADERS_X" in export(manager, "?references=true")
    assert "consumers:" not in export(manager, "?section=systems,subscriptions")
    assert "consumers:" not in export(manager, "?system=orders")
    for query in ("section=none", "system=none", "references=true", "section=,", "system=,"):
        problem(manager.send("GET", f"platform?{query}"), 400, "invalid-input")


def test_the_schema_names_the_secrets(manager: Manager) -> None:
    schema = manager.send("GET", "platform/schema").json()
    Draft202012Validator.check_schema(schema)
    secrets = set()
    for section, of_section in kinds.sections().items():
        (body, _null) = schema["properties"][section]["additionalProperties"]["anyOf"]
        fields = schema["$defs"][body["$ref"].rpartition("/")[2]]["properties"]
        written_only = {name for name, field in fields.items() if field.get("writeOnly")}
        assert written_only == of_section[0].secret_fields
        secrets |= written_only
    assert {"headers", "database", "credentials", "login_password"} <= secrets


# -- who may -------------------------------------------------------------------------------------
def test_a_limited_key_applies_and_exports_its_part(manager: Manager) -> None:
    put(manager, FILE)
    Biz.objects.create(name="zebra")
    BizReceive.objects.create(biz=Biz.objects.get(name="zebra"), receive=Receive.objects.get())
    SmsGateway.objects.create(name="north", host="203.0.113.7", corp_id="12345")
    Crm.objects.create(name="sales", adapter="hubspot")
    ApiKey.objects.filter(pk=manager.key.pk).update(systems=["orders"])
    keys.forget()
    own = "subscriptions:\n  orders/warehouse:\n    rate_limit: 5\n"
    assert list(changes(put(manager, own, "?prune=true"))) == ["subscriptions orders/warehouse"]
    for part in (
        "  zebra/warehouse: {}\n",
        "  zebra/nobody: {}\n",
        "consumers:\n  a: {url: 'http://a/'}\n",
    ):
        (error,) = refused(manager, own + part)
        assert "in the business systems orders" in error["message"].replace("to the", "in the")
    assert list(manager.send("GET", "platform").json()) == [
        "msgplatform",
        "systems",
        "subscriptions",
    ]
    assert "zebra" not in export(manager)
    problem(manager.send("GET", "platform?system=zebra"), 400, "invalid-input")
    assert changes(put(manager, export(manager))) == {}


def test_who_gives_the_scope_may_set_up_everything() -> None:
    whole = systems.scope_permissions("manage:platform")
    for kind in kinds.kinds():
        assert systems.scope_permissions(kind.scope) <= whole
    problem(put(Manager("manage:systems"), FILE), 403, "missing-scope")
