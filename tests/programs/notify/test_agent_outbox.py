"""The outbox as a Django app in somebody else's project, without the platform at hand."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import dj_database_url
import pytest
import sqlparse
from django.db import NotSupportedError, connections

from bench.harness.mariadb import MariaDb
from msgplatform.core.errors import InvalidInput
from notify.agent import outbox
from notify.agent.models import Outbox
from notify.agent.schema import ddl
from notify.agent.store import add_database
from notify.intake import intake
from tests.support.agent_support import KINDS, Shop

pytestmark = pytest.mark.both_databases("notify/agent/schema.py")

ROOT = Path(__file__).parents[3]
SETTINGS = """
SECRET_KEY = "a key of the shop, as long as Django wants it to be, and some more"
INSTALLED_APPS = ["notify.agent"]
DATABASES = {{"default": {database!r}}}
TIME_ZONE = "Asia/Shanghai"
USE_TZ = False
"""


class Project:
    """A business system's Django project: the copied app, settings, nothing of this platform."""

    def __init__(self, folder: Path, shop: Shop) -> None:
        self.folder, self.shop = folder / "project", shop
        (self.folder / "notify").mkdir(parents=True)
        shutil.copy(ROOT / "notify/__init__.py", self.folder / "notify")
        shutil.copytree(ROOT / "notify/agent", self.folder / "notify/agent")
        database = dict(dj_database_url.parse(shop.url))
        (self.folder / "shop_settings.py").write_text(SETTINGS.format(database=database))

    def python(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "DJANGO_SETTINGS_MODULE": "shop_settings"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    def manage(self, *arguments: str) -> str:
        return self.python("-m", "django", *arguments)

    def script(self, code: str) -> Any:
        return json.loads(self.python("-c", f"import django; django.setup()\n{code}"))


@pytest.fixture(params=KINDS)
def project(request: pytest.FixtureRequest, tmp_path: Path, mariadb: MariaDb) -> Project:
    return Project(tmp_path, Shop(request.param, tmp_path, mariadb))


PUBLISH = """
import datetime, decimal, json, sys
from django.db import transaction
from notify.agent.outbox import publish

class Stop(Exception): ...

keys = []
with transaction.atomic():
    payload = {"名": decimal.Decimal("1.00"), "at": datetime.date(2026, 1, 2)}
    keys.append(publish("order.paid", payload))
    keys.append(publish("order.paid", b'{ "n" : 1.00}', channel="eu", idempotency_key="mine"))
try:
    with transaction.atomic():
        publish("order.lost", {})
        raise Stop
except Stop:
    pass
foreign = sorted(m for m in sys.modules if m.split(".")[0] in {"msgplatform", "notify"})
print(json.dumps({"keys": keys, "modules": foreign}))
"""
OURS = {"notify", "notify.agent", "notify.agent.apps", "notify.agent.models", "notify.agent.outbox"}


def test_publish_in_a_foreign_project(project: Project) -> None:
    project.manage("migrate", "--verbosity", "0")
    said = project.script(PUBLISH)
    assert set(said["modules"]) == OURS
    rows = project.shop.execute(
        "SELECT msg_key, event_type, channel, payload FROM outbox ORDER BY id"
    )
    assert [tuple(row) for row in rows] == [
        (said["keys"][0], "order.paid", "", '{"名":"1.00","at":"2026-01-02"}'),
        ("mine", "order.paid", "eu", '{ "n" : 1.00}'),
    ]
    assert len(said["keys"][0]) == 32
    now = "UTC_TIMESTAMP(6)" if project.shop.kind == "mariadb" else "DATETIME('now', '+1 seconds')"
    due = project.shop.execute(f"SELECT COUNT(*) FROM outbox WHERE next_at <= {now}")
    assert due[0][0] == 2, "due now, by the database's own clock in UTC"


def test_a_repeat_neither_fails_nor_waits(project: Project) -> None:
    """The same key again, while the first one's transaction is still open (SQLite: committed)."""
    project.manage("migrate", "--verbosity", "0")
    insert = "INSERT INTO outbox (msg_key, event_type, payload) VALUES ('k', 'a', '1')"
    with closing(project.shop.connect()) as first:
        if project.shop.kind == "mariadb":
            first.cursor().execute(insert)
        else:
            project.shop.execute(insert)
        project.shop.execute(f"/*M! SET STATEMENT innodb_lock_wait_timeout=1 FOR */ {insert}"
                             if project.shop.kind == "mariadb" else insert)  # fmt: skip
        first.commit()
    assert project.shop.column("msg_key") == ["k", "k"]


PUBLISH_TRACED = """
from notify.agent.outbox import publish
import json
print(json.dumps([publish("a", 1, traceparent=text) for text in {texts!r}]))
"""


def test_an_event_goes_on_in_its_trace(project: Project) -> None:
    project.shop.load_ddl()
    project.shop.insert(1)
    traced = f"00-{'a' * 32}-{'b' * 16}-01"
    project.script(PUBLISH_TRACED.format(texts=[traced, "00-0-0-01"]))
    assert project.shop.column("traceparent") == ["", traced, ""], "a malformed one is ignored"


def _schema(shop: Shop) -> dict[str, str]:
    if shop.kind == "mariadb":
        made = {t: shop.execute(f"SHOW CREATE TABLE {t}")[0][1] for t in ("outbox", "outbox_dead")}
        return {t: re.sub(r" AUTO_INCREMENT=\d+", "", text) for t, text in made.items()}
    rows = shop.execute("SELECT name, sql FROM sqlite_master WHERE name LIKE 'outbox%'")
    # Django drops the comments before it runs a script.
    return {
        name: " ".join(sqlparse.format(text, strip_comments=True).split()) for name, text in rows
    }


def test_migrations_and_ddl_make_the_same_tables(
    project: Project, tmp_path: Path, mariadb: MariaDb
) -> None:
    folder = tmp_path / "by-hand"
    folder.mkdir()
    by_hand = Shop(project.shop.kind, folder, mariadb)
    by_hand.load_ddl()
    project.manage("migrate", "--verbosity", "0")
    schema = _schema(project.shop)
    assert set(schema) == {"outbox", "outbox_dead"}
    assert schema == _schema(by_hand)


COLUMNS = """
import json
from django.apps import apps
from django.db import connection
shown = {}
for model in apps.get_app_config("outbox").get_models():
    with connection.cursor() as cursor:
        table = connection.introspection.get_table_description(cursor, model._meta.db_table)
    real = {
        c.name: [connection.introspection.get_field_type(c.type_code, c), bool(c.null_ok),
                 c.default is not None] for c in table
    }
    said = {
        f.column: [f.get_internal_type(), f.null, f.has_db_default()]
        for f in model._meta.fields
    }
    shown[model._meta.db_table] = [real, said]
print(json.dumps(shown))
"""
SAME = {"BigIntegerField": "BigAutoField", "AutoField": "BigAutoField"}


def test_the_models_are_the_tables(project: Project) -> None:
    project.manage("migrate", "--verbosity", "0")
    for real, said in project.script(COLUMNS).values():
        assert real
        assert set(real) == set(said)
        for name, (kind, null, default) in real.items():
            assert SAME.get(kind, kind) == said[name][0], name
            assert null is said[name][1] is False, name
            if name not in {"id", "msg_key"}:
                assert default is said[name][2], name
    project.manage("makemigrations", "--check", "--dry-run")


def test_tables_made_by_hand_are_kept_and_migrations_go_back(project: Project) -> None:
    project.shop.load_ddl()
    project.shop.insert(2)
    project.manage("migrate", "--verbosity", "0")
    assert len(project.shop.column("id")) == 2
    assert "CREATE TABLE" in project.manage("sqlmigrate", "outbox", "0001")
    project.manage("migrate", "outbox", "zero", "--verbosity", "0")
    assert _schema_is_empty(project.shop)


def _schema_is_empty(shop: Shop) -> bool:
    if shop.kind == "mariadb":
        return not shop.execute("SHOW TABLES LIKE 'outbox%'")
    return not _schema(shop)


def test_another_database_is_refused_with_the_way_out() -> None:
    with pytest.raises(NotSupportedError, match="allow_migrate"):
        ddl("postgresql")


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"in": value}
    return value


RULES: list[tuple[str, Any, dict[str, str], str]] = [
    ("order.paid", {"n": 1}, {}, ""),
    ("a_1.B", b"[1, 2]", {"channel": "a.b:c-d_", "idempotency_key": "!~"}, ""),
    ("a", b'"' + b"x" * (outbox.MAX_PAYLOAD_BYTES - 2) + b'"', {}, ""),
    ("a" * 128, b"0", {"channel": "c" * 64, "idempotency_key": "k" * 128}, ""),
    ("", b"0", {}, "event_type"),
    ("a" * 129, b"0", {}, "event_type"),
    ("a..b", b"0", {}, "event_type"),
    ("https://example.com/order-paid:v1", b"0", {}, ""),
    ("order paid", b"0", {}, "event_type"),
    ("a\n", b"0", {}, "event_type"),
    ("订单", b"0", {}, "event_type"),
    ("a", b"0", {"channel": "a b"}, "channel"),
    ("a", b"0", {"channel": "a" * 65}, "channel"),
    ("a", b"0", {"idempotency_key": ""}, "idempotency_key"),
    ("a", b"0", {"idempotency_key": "a b"}, "idempotency_key"),
    ("a", b"0", {"idempotency_key": "é"}, "idempotency_key"),
    ("a", b"0", {"idempotency_key": "k" * 129}, "idempotency_key"),
    ("a", b"", {}, "payload"),
    ("a", b"{", {}, "payload"),
    ("a", b"NaN", {}, "payload"),
    ("a", b'{"a": NaN, "a": 1}', {}, "payload"),  # the text has it, the value does not
    ("a", b"\xff", {}, "payload"),
    ("a", b"\xef\xbb\xbf{}", {}, "payload"),
    ("a", b"[" * 100_000, {}, "payload"),
    ("a", b"[" * 101 + b"]" * 101, {}, "payload"),
    ("a", nested(101), {}, "payload"),
    ("a", nested(100), {}, ""),
    ("a", b"[" + b"[]," * 200 + b"1]", {}, ""),
    ("a", b'{"n": 1e999}', {}, "payload"),
    ("a", b'["\\ud800"]', {}, "payload"),
    ("a", b'["\\ud83d\\ude00"]', {}, ""),
    ("a", b'"' + b"x" * (outbox.MAX_PAYLOAD_BYTES - 1) + b'"', {}, "payload"),
]


@pytest.fixture
def using(tmp_path: Path, mariadb: MariaDb, django_db_blocker: Any) -> Iterator[str]:
    """An outbox in this process, as the alias of its connection."""
    shop = Shop("sqlite", tmp_path, mariadb)
    shop.load_ddl()
    with django_db_blocker.unblock():
        alias = add_database(shop.url, "outbox_rules")
        yield alias
        connections[alias].close()
    del connections[alias]
    del connections.settings[alias]


@pytest.mark.parametrize(("event_type", "payload", "options", "field"), RULES)
def test_publish_and_intake_have_the_same_rules(
    event_type: str, payload: Any, options: dict[str, str], field: str, using: str
) -> None:
    raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    event = intake.Event(
        1, event_type, raw, options.get("idempotency_key"), options.get("channel", "")
    )
    if not field:
        intake.check(event)
        outbox.publish(event_type, payload, using=using, **options)
        (row,) = Outbox.objects.using(using)
        assert (row.event_type, row.channel) == (event_type, event.channel)
        assert json.loads(row.payload) == json.loads(raw)
        return
    with pytest.raises(InvalidInput) as at_intake:
        intake.check(event)
    with pytest.raises(outbox.InvalidEvent) as here:
        outbox.publish(event_type, payload, using=using, **options)
    assert not Outbox.objects.using(using).exists()
    assert at_intake.value.field == here.value.field == field


@pytest.mark.parametrize("payload", [float("nan"), object(), {1, 2}, "\ud800", {("a",): 1}])
def test_what_json_cannot_say(payload: Any) -> None:
    with pytest.raises(outbox.InvalidEvent, match="payload"):
        outbox.publish("a", payload)


@pytest.mark.parametrize("wrong", [{"event_type": None}, {"channel": 3}, {"idempotency_key": 7}])
def test_arguments_of_the_wrong_type(wrong: dict[str, Any]) -> None:
    with pytest.raises(outbox.InvalidEvent, match=next(iter(wrong))):
        outbox.publish(**{"event_type": "a", "payload": 1, **wrong})
