"""The console of CRM sync: CRMs, sources and policies, tried before they are saved."""

import dataclasses
import json
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils.html import escape

from bench.harness.mariadb import MariaDb
from crmsync import presence, trials
from crmsync.adapters.registry import registry
from crmsync.admin.setup import crms as crms_admin
from crmsync.models import Crm, Policy, Source
from crmsync.orders import MainQueue
from crmsync.poller.reading import source as described
from crmsync.setup.crms import CrmResource
from msgplatform.core.data import sql
from msgplatform.core.errors import Unavailable
from msgplatform.core.queues import jobs
from msgplatform.core.rates.breaker import State
from msgplatform.core.secrets import encryption
from msgplatform.doors.api.access import keys
from msgplatform.models import ApiKey, AuditLog, Biz, Preferences
from msgplatform.setup.declaration import Before, Faults
from tests.integration.crmsync.console_client import ADMIN, get, person, post
from tests.support import crm_rows
from tests.support.crm_rows import EMAIL, MAPPING, NAME, PHONE, SECRET
from tests.support.http_sinks import Sink, answering
from tests.support.management import Manager
from tests.support.sources import PASSWORD

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]

SECRETS = {"http": ["token"], "salesforce": ["client_id", "client_secret"],
           "tryton": ["password"], "hubspot": ["token"]}  # fmt: skip

ODD = f"""
from crmsync.adapters.base import CRMAdapter

class Odd(CRMAdapter):
    name = title = "odd"

    def deliver(self, batch): raise RuntimeError({SECRET!r})

    fields = read = lambda self, *given: self.deliver(given)
"""


def crm_form(url: str, **changes: Any) -> dict[str, Any]:
    return {
        "name": "sales", "adapter": "sql", "enabled": "on", "settings": '{"table": "customer"}',
        "credentials": json.dumps({"url": url}), "concurrency": 2,
        "retry_seconds": "10 s\n5 min", **changes,
    }  # fmt: skip


def crm_changes(**changes: Any) -> dict[str, Any]:
    """What the form of an existing CRM sends: name and kind stay."""
    given = {**crm_form(""), "credentials": "", **changes}
    return {name: value for name, value in given.items() if name not in ("name", "adapter")}


def source_form(url: str, **changes: Any) -> dict[str, Any]:
    return {
        "name": "shop", "database": url, "table": "lead", "key_column": "id",
        "time_column": "UpdateTime", "deleted_column": "", "version_column": "version",
        "value_columns": "name\nphone", "zone": "UTC", "lag_seconds": 60, **changes,
    }  # fmt: skip


def policy_form(source: Source, crm: Crm, **changes: Any) -> dict[str, Any]:
    return {
        "source": source.pk, "crm": crm.pk, "enabled": "on", "biz": "", "appkeys": "",
        "mapping": MAPPING.replace("\n", "\r\n"),  # as browsers send lines
        "key_prefix": "", "interval_seconds": 10, "cron": "", "hours": "",
        "batch_size": 500, "sweep_cron": "30 3 * * *", "guard_percent": 20, "guard_records": 50,
        "on_conflict": "fill_empty", **changes,
    }  # fmt: skip


@pytest.fixture
def biz(db: None) -> Biz:
    return Biz.objects.create(name="cars")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return crm_rows.customers(tmp_path / "customers.db")


@pytest.fixture
def crm(url: str, db: None) -> Crm:
    return crm_rows.sql_crm("sales", url)


@pytest.fixture
def shop(tmp_path: Path) -> str:
    """Somebody else's table of leads, with two rows; its URL."""
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.execute(
            "CREATE TABLE `lead` (id INTEGER PRIMARY KEY, name TEXT, phone TEXT, "
            '"UpdateTime" TEXT, version INTEGER)'
        )
        connection.execute('CREATE INDEX of_time ON lead ("UpdateTime", id)')
        for n in (1, 2):
            connection.execute(
                "INSERT INTO `lead` VALUES (?, ?, ?, ?, 1)",
                (n, f"{NAME}{n}", PHONE, f"2026-01-0{n} 08:00:00.000"),
            )
        connection.commit()
    return f"sqlite:///{tmp_path / 'shop.db'}"


class TestCrms:
    def test_add_test_and_change(self, admin_client: Client, url: str) -> None:
        shown = get(admin_client, "crm/add/")
        assert "Any SQL database" in shown
        assert "<code>table</code>" in shown  # the help with its settings
        assert "For another account or database add another CRM" in shown
        assert "answers and accepts" in post(admin_client, "crm/test/", crm_form(url))
        assert not Crm.objects.exists()
        post(admin_client, "crm/add/", crm_form(url), 302)
        crm = Crm.objects.get()
        assert crm.credentials == {"url": url}
        assert crm.retry_seconds == [10, 300]
        page = get(admin_client, f"crm/{crm.pk}/change/")
        assert url not in page
        assert "Set: url." in page
        # Empty credentials are those that are stored: for the test, and when it is saved.
        changes = crm_changes(concurrency=3)
        assert "answers and accepts" in post(admin_client, f"crm/{crm.pk}/test/", changes)
        post(admin_client, f"crm/{crm.pk}/change/", changes, 302)
        crm.refresh_from_db()
        assert (crm.credentials, crm.concurrency) == ({"url": url}, 3)
        assert {"crm_created", "crm_changed", "crm_tested"} == set(
            AuditLog.objects.values_list("action", flat=True)
        )

    @pytest.mark.parametrize(
        ("wrong", "says"),
        [
            ({"name": "Sales!"}, "Use lower-case letters, digits and -."),
            ({"adapter": "nothing"}, "Select a valid choice"),
            ({"settings": '{"table": 1,\n}'}, "Line 2, column 1: this is not JSON"),
            ({"settings": "[]"}, "Write an object"),
            ({"settings": '{"table": NaN}'}, "a number that cannot be stored"),
            ({"settings": '{"table": "\\ud800"}'}, "half a character"),
            ({"settings": '{"a":' * 40 + "1" + "}" * 40}, "nested more than 29 levels"),
            ({"settings": "{}"}, "The setting table is missing."),
            ({"settings": '{"table": "t", "tabel": 1}'}, "There is no setting tabel."),
            ({"settings": '{"table": "a;b"}'}, "The setting table is no name"),
            ({"credentials": "{}"}, "The setting url is missing."),
            ({"credentials": '{"url": "ftp://x"}'}, "the database's URL is neither"),
            ({"credentials": '{"url": "sqlite:////a%00b"}'}, "the database's URL has a NUL"),
            ({"concurrency": "17"}, "less than or equal to 16"),
            ({"retry_seconds": "soon"}, "is not a valid delay"),
            ({"retry_seconds": "2 d"}, "of at most a day"),
            ({"retry_seconds": "1 s\n" * 10}, "Write up to 9 waits"),
        ],
    )
    def test_what_is_wrong_is_said_at_its_field(
        self, admin_client: Client, url: str, wrong: dict[str, str], says: str
    ) -> None:
        data = crm_form(url, **wrong)
        (name,) = wrong
        answer = admin_client.post(f"{ADMIN}crm/add/", data)
        errors = answer.context["adminform"].form.errors
        assert list(errors) == [name]
        assert says in " ".join(errors[name])
        assert escape(says) in post(admin_client, "crm/test/", data)
        assert not Crm.objects.exists()

    def test_a_crm_that_is_paused_meanwhile_stays_paused(
        self, admin_client: Client, crm: Crm, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By a handler, after the form has read the row."""
        check = CrmResource.faults

        def paused_meanwhile(resource: CrmResource, row: Crm, before: Before | None) -> Faults:
            Crm.objects.filter(pk=crm.pk).update(paused_at=sql.now(), paused_because="refused")
            return check(resource, row, before)

        monkeypatch.setattr(CrmResource, "faults", paused_meanwhile)
        post(admin_client, f"crm/{crm.pk}/change/", crm_changes(concurrency=3), 302)
        crm.refresh_from_db()
        assert (crm.concurrency, crm.paused_because) == (3, "refused")
        assert crm.paused_at is not None

    def test_a_crm_is_switched_off_although_it_needs_a_correction(
        self, admin_client: Client, crm: Crm
    ) -> None:
        settings, waits = {"table": "a;b"}, [10, 300]
        Crm.objects.update(settings=settings, concurrency=2, retry_seconds=waits)
        changes = crm_changes(settings=json.dumps(settings))
        del changes["enabled"]
        page, manager = f"crm/{crm.pk}/change/", Manager("manage:crms")
        assert "is no name" in post(admin_client, page, changes | {"concurrency": 3})
        post(admin_client, page, changes, 302)
        assert not Crm.objects.get().enabled
        assert "is no name" in post(admin_client, page, changes | {"enabled": "on"})
        Crm.objects.update(enabled=True)
        body = {"adapter": "sql", "settings": settings, "concurrency": 2, "retry_seconds": waits}
        sent = [{"enabled": False, "concurrency": 3}, {"enabled": False}, {}]
        answers = [manager.send("PUT", "crms/sales", body | values) for values in sent]
        assert [answer.status_code for answer in answers] == [400, 200, 400]

    def test_names_of_credentials_are_shown_as_text(self, admin_client: Client, crm: Crm) -> None:
        named = '<b x-init="alert(1)">'
        Crm.objects.filter(pk=crm.pk).update(adapter="http")
        crm.credentials = {named: "x"}
        crm.save(update_fields=["credentials"])
        page = get(admin_client, f"crm/{crm.pk}/change/")
        assert f"Set: {escape(named)}." in page
        assert named not in page

    @pytest.mark.parametrize(
        ("adapter", "address", "more"),
        [
            ("http", "url", {"headers": {"X-Key": "{secret.token}"}}),
            ("salesforce", "login_url", {}),
            ("tryton", "url", {"database": "crm", "user": "sync"}),
            ("hubspot", "base_url", {}),
        ],
    )
    def test_stored_credentials_go_to_no_other_host(
        self, admin_client: Client, settings: Any, adapter: str, address: str, more: dict[str, Any]
    ) -> None:
        settings.OUTBOUND_ALLOW = ["127.0.0.0/8"]
        secret = dict.fromkeys(SECRETS[adapter], SECRET)
        with Sink(answering()) as home, Sink(answering()) as thief:
            at = {address: home.url(""), **more}
            crm = Crm.objects.create(name="sales", adapter=adapter, settings=at, credentials=secret)
            elsewhere = {**at, address: thief.url("")}
            changes = crm_changes(settings=json.dumps(elsewhere))
            for path in ("test", "change"):
                said = post(admin_client, f"crm/{crm.pk}/{path}/", changes)
                assert "were entered for another address" in said
                assert thief.url("") in said
            crm.refresh_from_db()
            assert crm.settings == at
            assert not thief.requests
            # Another path of the same host keeps them; entered again, they go anywhere.
            near = crm_changes(settings=json.dumps({**at, address: home.url("/v2")}))
            assert "another address" not in post(admin_client, f"crm/{crm.pk}/test/", near)
            anew = {**changes, "credentials": json.dumps(secret)}
            assert "another address" not in post(admin_client, f"crm/{crm.pk}/test/", anew)
            log = AuditLog.objects.filter(action="crm_tested").order_by("-id")[0]
            assert thief.url("") in log.detail["addresses"]

    @pytest.mark.parametrize(
        ("adapter", "at", "changes"),
        [
            ("http", {"url": "HOME"}, {"test": {"url": "http:/{key}/THIEF/x"}}),
            ("http", {"url": "HOME"}, {"test": {"url": "http://{field.a@HOST/}THIEF/x"}}),
            ("tryton", {"url": "HOME", "database": "crm", "user": "sync"},
             {"url": "http:", "database": "/THIEF"}),
            ("hubspot", {"base_url": "HOME"},
             {"base_url": "http:", "properties_path": "//THIEF/p"}),
        ],
    )  # fmt: skip
    def test_parts_of_an_address_make_no_other_host(
        self, admin_client: Client, settings: Any, adapter: str, at: Any, changes: Any
    ) -> None:
        settings.OUTBOUND_ALLOW = ["127.0.0.0/8"]
        secret = dict.fromkeys(SECRETS[adapter], SECRET)
        more = {"headers": {"X-Key": "{secret.token}"}} if adapter == "http" else {}
        with Sink(answering()) as home, Sink(answering()) as thief:

            def places(values: dict[str, Any]) -> dict[str, Any]:
                text = json.dumps(values).replace("HOME", home.url(""))
                text = text.replace("HOST", f"127.0.0.1:{home.port}")
                return dict(json.loads(text.replace("THIEF", f"127.0.0.1:{thief.port}")))

            at = places(at) | more
            crm = Crm.objects.create(name="sales", adapter=adapter, settings=at, credentials=secret)
            data = crm_changes(settings=json.dumps(at | places(changes)))
            said = post(admin_client, f"crm/{crm.pk}/test/", data)
            refusals = ("No URL of the settings names this server.", "Write the server out;")
            assert any(words in said for words in refusals)
            assert not thief.requests

    def test_secrets_in_addresses_are_masked(self, admin_client: Client, biz: Biz) -> None:
        """In the audit log, for people who may only view, and for limited keys."""
        address = f"https://ann:{SECRET}@crm.example/api?access_token={SECRET}&id={{key}}"
        at = {"url": address, "test": {"url": address}}
        data = crm_form("", adapter="http", settings=json.dumps(at), credentials="{}")
        post(admin_client, "crm/add/", data, 302)
        crm = Crm.objects.get()
        assert SECRET in get(admin_client, f"crm/{crm.pk}/change/")
        viewer = person("viewer", "view_crm")
        page = get(viewer, f"crm/{crm.pk}/change/")
        query = "crm/?settings__url__startswith=https"
        assert [c.get(ADMIN + query).status_code for c in (admin_client, viewer)] == [200, 400]
        keys.forget()
        manager = Manager("manage:crms")
        body = {"adapter": "http", "settings": at}
        assert manager.send("PUT", "crms/other", body).status_code == 201
        assert SECRET in str(manager.send("GET", "crms/other").json())
        ApiKey.objects.filter(pk=manager.key.pk).update(systems=[biz.name])
        keys.forget()
        answer = str(manager.send("GET", "crms/other").json())
        log = json.dumps(list(AuditLog.objects.values_list("detail", flat=True)))
        for text in (page, answer, log):
            assert "id={key}" in text
            assert SECRET not in text

    def test_a_test_says_what_is_wrong(self, admin_client: Client, crm: Crm) -> None:
        def says(**changes: Any) -> str:
            return post(admin_client, f"crm/{crm.pk}/test/", {**crm_changes(), **changes})

        assert "cannot be used" in says(settings='{"table": "nothing"}')
        assert "cannot be reached" in says(
            credentials=json.dumps({"url": f"mysql://u:{SECRET}@127.0.0.1:1/crm"})
        )
        assert SECRET not in says(
            credentials=json.dumps({"url": f"mysql://u:{SECRET}@127.0.0.1:1/crm"})
        )
        Policy.objects.create(source=crm_rows.hive(), crm=crm, mapping="nane = name")
        assert escape("has no field nane. Did you mean name?") in says()

    def test_resume_tests_first(self, admin_client: Client, crm: Crm) -> None:
        Crm.objects.update(
            paused_at=sql.now(), paused_because="refused", settings={"table": "nothing"}
        )
        page = get(admin_client, f"crm/{crm.pk}/change/")
        assert "refused" in page
        post(admin_client, f"crm/{crm.pk}/resume/", status=302)
        assert Crm.objects.get().paused_at is not None
        assert "It stays paused." in get(admin_client, f"crm/{crm.pk}/change/")
        post(admin_client, f"crm/{crm.pk}/change/", crm_changes(), 302)
        assert Crm.objects.get().paused_at is not None  # saving alone does not resume it
        post(admin_client, f"crm/{crm.pk}/resume/", status=302)
        crm = Crm.objects.get()
        assert (crm.paused_at, crm.paused_because) == (None, "")
        assert "its records go on" in get(admin_client, f"crm/{crm.pk}/change/")
        post(admin_client, f"crm/{crm.pk}/resume/", status=302)  # from a page that is out of date
        assert "was in another state by then" in get(admin_client, f"crm/{crm.pk}/change/")
        assert AuditLog.objects.get(action="crm_resumed").target == "sales"

    def test_the_list_says_how_each_does(self, admin_client: Client, url: str) -> None:
        crms = {
            name: crm_rows.sql_crm(name, url)
            for name in ("well", "opened", "held", "alone", "rested", "stopped", "off")
        }
        jobs.put(MainQueue("alone").name, [{}], ttl=600)
        Crm.objects.filter(name="stopped").update(paused_at=sql.now(), paused_because="wrong token")
        Crm.objects.filter(name="off").update(enabled=False)
        presence.crms.report({
            crms["well"].pk: presence.LiveCrm(1, 0.25, 40.0),
            crms["opened"].pk: presence.LiveCrm(breaker=State.OPEN, retry_in=30.0),
            crms["held"].pk: presence.LiveCrm(held_for=12.0),
        })  # fmt: skip
        crm_rows.dead(crm_rows.policy(crms["well"]), "1", {"name": "x"})
        answer = admin_client.get(f"{ADMIN}crm/")
        rows = {row.name: row for row in answer.context["cl"].result_list}
        admin = answer.context["cl"].model_admin
        wanted = {
            "well": "working", "opened": "breaker open", "held": "held back",
            "alone": "not served", "rested": "its queues are empty", "stopped": "wrong token",
            "off": "switched off",
        }  # fmt: skip
        for name, words in wanted.items():
            assert words in crms_admin.state(rows[name]), name
        assert "250 ms" in crms_admin.latency(rows["well"])
        assert f"crm={crms['well'].pk}&amp;state=0" in admin.dead(rows["well"])

    def test_kinds_that_cannot_be_used(
        self, admin_client: Client, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One is listed with its reason; a CRM of it says so; a faulty one breaks no page."""
        (tmp_path / "odd_crm.py").write_text(ODD)
        info = tmp_path / "odd_crm-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd-crm\nVersion: 1\n")
        (info / "entry_points.txt").write_text(
            "[msgplatform.crm_adapters]\ngone = nowhere_at_all:Adapter\nodd = odd_crm:Odd\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        registry.cache_clear()
        try:
            page = get(admin_client, "crm/add/")
            assert "gone cannot be used: ModuleNotFoundError" in page
            given = crm_form(url, adapter="odd", settings="{}", credentials="{}")
            said = post(admin_client, "crm/test/", given)
            assert "failed in an unexpected way (RuntimeError)" in said
            assert SECRET not in said
            crm = Crm.objects.create(name="old", adapter="gone")
            get(admin_client, "crm/")
            get(admin_client, f"crm/{crm.pk}/change/")
            said = post(admin_client, f"crm/{crm.pk}/test/", crm_changes(settings="{}"))
            assert "The adapter gone cannot be used" in said
        finally:
            registry.cache_clear()
            sys.modules.pop("odd_crm", None)

    def test_without_redis(self, admin_client: Client, crm: Crm, servers: Any) -> None:
        servers.work.kill()
        try:
            assert "unknown" in get(admin_client, "crm/")
            assert "unknown" in get(admin_client, f"crm/{crm.pk}/change/")
        finally:
            servers.work.start()


class TestSources:
    def test_add_test_and_change(self, admin_client: Client, shop: str) -> None:
        says = post(admin_client, "source/test/", source_form(shop))
        assert "The table can be read. No change is missed: the horizon is exact" in says
        post(admin_client, "source/add/", source_form(shop), 302)
        source = Source.objects.get(name="shop")
        assert (source.database, source.value_columns) == (shop, ["name", "phone"])
        page = get(admin_client, f"source/{source.pk}/change/")
        assert shop not in page
        assert "A database is set." in page
        changes = source_form("", lag_seconds=90)
        assert "can be read" in post(admin_client, f"source/{source.pk}/test/", changes)
        post(admin_client, f"source/{source.pk}/change/", changes, 302)
        source.refresh_from_db()
        assert (source.database, source.lag_seconds) == (shop, 90)

    @pytest.mark.parametrize(
        ("wrong", "says"),
        [
            ({"name": "hive"}, "already exists"),
            ({"database": "http://x"}, "The database's URL is neither"),
            ({"database": "sqlite:////a%00b"}, "The database's URL has a NUL"),
            ({"database": "mysql://u:p%00@h/d"}, "The database's URL has a NUL"),
            ({"database": ""}, "This field is required"),
            ({"table": "a`b"}, "is no usable name"),
            ({"value_columns": "na;me"}, "is no usable name"),
            ({"value_columns": "name\nid"}, "A column is named twice"),
            ({"value_columns": ""}, "This field is required"),
            ({"zone": "Mars/Base"}, "is no time zone"),
            ({"lag_seconds": "0"}, "The lag must be longer than 0"),
        ],
    )
    def test_what_is_wrong_is_said_at_its_field(
        self, admin_client: Client, shop: str, wrong: dict[str, str], says: str
    ) -> None:
        crm_rows.hive()
        answer = admin_client.post(f"{ADMIN}source/add/", source_form(shop, **wrong))
        errors = answer.context["adminform"].form.errors
        assert list(errors) == list(wrong)
        assert says in " ".join(*errors.values())

    @pytest.mark.parametrize(
        ("wrong", "says"),
        [
            ({"database": f"mysql://u:{SECRET}@127.0.0.1:1/x"}, "server does not answer"),
            ({"database": "sqlite:////nowhere/at/all.db"}, "There is no such file"),
            ({"table": "nothing"}, "table nothing does not exist"),
            ({"value_columns": "nothing"}, "has no column nothing"),
            ({"version_column": "name", "value_columns": "phone"}, "it must be an integer"),
            ({"version_column": ""}, "Without a version column"),
        ],
    )
    def test_a_test_says_what_is_wrong(
        self, admin_client: Client, shop: str, wrong: dict[str, str], says: str
    ) -> None:
        shown = post(admin_client, "source/test/", source_form(shop, **wrong))
        assert escape(says) in shown
        assert SECRET not in shown

    @pytest.mark.parametrize(
        ("wrong", "says"),
        [
            ({"table": "nothing"}, "表 nothing 不存在，或无法读取"),
            ({"value_columns": "nothing"}, "没有列 nothing，或无法读取该列"),
            ({"version_column": "name", "value_columns": "phone"}, "必须是整数"),
            ({"database": "http://x"}, "数据库的 URL 既不是 sqlite:/// 也不是 mysql://。请使用 "),
            ({"table": "a`b"}, "不能用作名称"),
        ],
    )
    def test_a_test_is_chinese_where_its_form_is(
        self, admin_client: Client, shop: str, wrong: dict[str, str], says: str
    ) -> None:
        Preferences.objects.create(user=User.objects.get(), language="zh-hans")
        assert says in post(admin_client, "source/test/", source_form(shop, **wrong))

    def test_no_index_is_told(self, admin_client: Client, shop: str, tmp_path: Path) -> None:
        with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
            connection.execute("DROP INDEX of_time")
        says = post(admin_client, "source/test/", source_form(shop))
        assert "every look reads the whole table" in says

    def test_servers_of_others(
        self, admin_client: Client, foreign: Callable[..., described.Source], mariadb: MariaDb
    ) -> None:
        """What proves that nothing is missed needs a privilege; a wrong password is told."""
        columns = {"value_columns": "name", "version_column": "version"}

        def says(source: described.Source, **changes: Any) -> str:
            return post(
                admin_client, "source/test/", source_form(source.database, **columns, **changes)
            )

        exact = foreign(process=True)
        assert "the horizon is exact" in says(exact)
        mariadb.execute("REVOKE PROCESS ON *.* FROM reader@'%'")
        deadline = time.monotonic() + 30
        # What the same user has read a moment ago still holds.
        while "needs the privilege PROCESS" not in (bounded := says(exact, lag_seconds=77)):
            assert time.monotonic() < deadline, bounded
        assert "more than 77 s after" in bounded
        wrong = dataclasses.replace(exact, database=exact.database.replace(PASSWORD, SECRET))
        refused = says(wrong)
        assert "refuses this user" in refused
        assert SECRET not in refused

    def test_the_hive_is_fixed(self, admin_client: Client, biz: Biz) -> None:
        hive = crm_rows.hive()
        crm_rows.lead(biz)
        page = get(admin_client, f"source/{hive.pk}/change/")
        assert 'name="_save"' not in page
        post(admin_client, f"source/{hive.pk}/change/", source_form("sqlite:////x"), 403)
        post(admin_client, f"source/{hive.pk}/delete/", {"post": "yes"}, 403)
        assert "can be read" in post(admin_client, f"source/{hive.pk}/test/")

    def test_what_policies_read_stays(self, admin_client: Client, crm: Crm, shop: str) -> None:
        post(admin_client, "source/add/", source_form(shop), 302)
        source = Source.objects.get(name="shop")
        crm_rows.policy(crm, source, mapping="name = name")
        changes = {"table": "other", "version_column": ""}
        post(admin_client, f"source/{source.pk}/change/", source_form("", **changes), 302)
        source.refresh_from_db()
        assert (source.table, source.version_column) == ("lead", "version")
        post(admin_client, f"source/{source.pk}/delete/", {"post": "yes"}, 403)


class TestPolicies:
    def test_add_and_change(self, admin_client: Client, crm: Crm) -> None:
        post(admin_client, "policy/add/", policy_form(crm_rows.hive(), crm), 302)
        policy = Policy.objects.get()
        assert (policy.mapping, policy.crm) == (MAPPING, crm)
        changes = policy_form(
            crm_rows.hive(), crm, hours="08:00-12:00, 13:00-18:00", cron="*/5 8-20 * * 1-5",
            key_prefix="hive-",
        )  # fmt: skip
        post(admin_client, f"policy/{policy.pk}/change/", changes, 302)
        policy.refresh_from_db()
        assert (policy.hours, policy.key_prefix) == ("08:00-12:00, 13:00-18:00", "hive-")
        changed = AuditLog.objects.get(action="policy_changed").detail["changes"]
        assert sorted(changed) == ["cron", "hours", "key_prefix"]
        assert changed["key_prefix"] == ["", "hive-"]

    @pytest.mark.parametrize(
        ("wrong", "says"),
        [
            ({"mapping": "name"}, "Line 1: write it as LastName = name."),
            ({"mapping": "name = name\n\nphone = fone"}, "Line 3: the source has no column fone"),
            ({"mapping": 'name = "x'}, "a quotation mark is missing"),
            ({"mapping": "name = 007"}, "007 is no number; a text stands in quotation marks"),
            ({"mapping": "name = \uff11\uff12"}, "is no number"),
            ({"mapping": "name = 1.2.3"}, "is no number"),
            ({"mapping": f"name = {'9' * 400}"}, "is no number"),
            ({"mapping": ""}, "This field is required"),
            ({"cron": "61 * * * *"}, "is no line of a crontab"),
            ({"hours": "8-20"}, "8-20 is no span of hours"),
            ({"sweep_cron": "never"}, "is no line of a crontab"),
            ({"key_prefix": ""}, "two sources of one CRM need different prefixes"),
            ({"key_prefix": "12"}, "two sources of one CRM need different prefixes"),
            ({"appkeys": "a"}, "The source has no column appkey"),
            ({"appkeys": "a\n\u202eb"}, "Line 2: Remove the characters that control a terminal"),
            ({"mapping": "City = 'a\u200e'"}, "Remove the characters that control a terminal"),
            ({"interval_seconds": "0"}, "greater than or equal to 1"),
            ({"batch_size": "1001"}, "less than or equal to 900"),
        ],
    )
    def test_what_is_wrong_is_said_at_its_field(
        self, admin_client: Client, crm: Crm, wrong: dict[str, str], says: str
    ) -> None:
        crm_rows.policy(crm)
        source = Source.objects.create(
            name="other", table="t", time_column="at", version_column="v",
            value_columns=["name", "phone"],
        )  # fmt: skip
        good = policy_form(source, crm, mapping="name = name", key_prefix="other-")
        answer = admin_client.post(f"{ADMIN}policy/add/", {**good, **wrong})
        errors = answer.context["adminform"].form.errors
        assert list(errors) == list(wrong)
        assert says in " ".join(*errors.values())
        post(admin_client, "policy/add/", good, 302)

    def test_a_prefix_stays_once_it_was_used(self, admin_client: Client, crm: Crm) -> None:
        policy = crm_rows.policy(crm)
        crm_rows.record(policy, crm_rows.operation(policy, []), "1")
        data = policy_form(crm_rows.hive(), crm, key_prefix="new-")
        answer = admin_client.post(f"{ADMIN}policy/{policy.pk}/change/", data)
        errors = answer.context["adminform"].form.errors["key_prefix"]
        assert "would be made a second time" in errors[0]

    def test_no_other_system_gets_its_records(self, admin_client: Client, crm: Crm) -> None:
        """Whoever is limited to the policy's system acts on all of them."""
        cars, boats = (Biz.objects.create(name=name) for name in ("cars", "boats"))
        policy = crm_rows.policy(crm)
        page = f"policy/{policy.pk}/change/"
        post(admin_client, page, policy_form(crm_rows.hive(), crm, biz=cars.pk), 302)
        post(admin_client, page, policy_form(crm_rows.hive(), crm, biz=boats.pk), 302)
        crm_rows.record(policy, crm_rows.operation(policy, []), "1")
        for system, status in ((cars.pk, 200), (boats.pk, 302), ("", 302), (boats.pk, 200)):
            data = policy_form(crm_rows.hive(), crm, biz=system)
            shown = post(admin_client, page, data, status)
            assert ("could act on them" in shown) == (status == 200)

    def test_a_sample(self, admin_client: Client, crm: Crm, biz: Biz) -> None:
        for n in range(7):
            crm_rows.lead(biz, name=f"{NAME}{n}", extra={"email": EMAIL} if n < 6 else {})
        gone = crm_rows.lead(biz, is_delete=True)
        shown = post(admin_client, "policy/try/sample/", policy_form(crm_rows.hive(), crm))
        for words in (f"{NAME}6", f"{NAME}3", EMAIL, "not sent", "deleted", str(gone.pk)):
            assert words in shown
        assert f"{NAME}2" not in shown  # five in all
        only = policy_form(crm_rows.hive(), crm, appkeys="nobody")
        assert "no row that this policy would carry" in post(
            admin_client, "policy/try/sample/", only
        )
        wrong = policy_form(crm_rows.hive(), crm, mapping="name = name.first")
        assert "the column does not hold JSON" in post(admin_client, "policy/try/sample/", wrong)
        missing = policy_form(crm_rows.hive(), crm, mapping="name = nam")
        assert "Line 1: the source has no column nam" in post(
            admin_client, "policy/try/sample/", missing
        )
        assert not Policy.objects.exists()

    def test_a_sample_has_the_values_that_a_run_sends(
        self, admin_client: Client, crm: Crm, tmp_path: Path
    ) -> None:
        with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
            connection.execute(
                "CREATE TABLE customer (id INTEGER PRIMARY KEY, changed DATETIME, born DATETIME)"
            )
            moment = "2026-11-20 08:00:00"
            connection.execute("INSERT INTO customer VALUES (1, ?, ?)", (moment, moment))
            connection.commit()
        source = Source.objects.create(
            name="shop", database=f"sqlite:///{tmp_path}/shop.db", table="customer",
            time_column="changed", value_columns=["born"], zone="Asia/Shanghai",
        )  # fmt: skip
        data = policy_form(source, crm, mapping="born = born", key_prefix="s-", sweep_cron="")
        shown = post(admin_client, "policy/try/sample/", data)
        assert "2026-11-20T08:00:00+08:00" in shown

    def test_a_dry_run_sends_nothing(
        self, admin_client: Client, crm: Crm, biz: Biz, tmp_path: Path
    ) -> None:
        new, other, held = (crm_rows.lead(biz, name=name) for name in ("new", "other", "held"))
        gone, never = crm_rows.lead(biz, is_delete=True), crm_rows.lead(biz, is_delete=True)
        broken = crm_rows.lead(biz, name="broken", uid="no JSON")
        with closing(sqlite3.connect(tmp_path / "customers.db")) as connection:
            for row, name in ((other, "before"), (held, "held"), (gone, "gone")):
                connection.execute(
                    "INSERT INTO customer (id, name, phone, email, company) VALUES (?,?,?,?,'-')",
                    (f"h-{row.pk}", name, PHONE, EMAIL),
                )
            connection.commit()
            before = connection.execute("SELECT * FROM customer ORDER BY id").fetchall()
            mapping = MAPPING.replace("extra.city", "uid.city")
            data = policy_form(crm_rows.hive(), crm, key_prefix="h-", mapping=mapping)
            answer = admin_client.post(f"{ADMIN}policy/try/dry-run/", data)
            assert connection.execute("SELECT * FROM customer ORDER BY id").fetchall() == before
        found = {each["row"].key: each for each in answer.context_data["outcomes"]}
        assert {key: str(each["words"]) for key, each in found.items()} == {
            f"h-{new.pk}": "created", f"h-{other.pk}": "changed", f"h-{held.pk}": "unchanged",
            f"h-{gone.pk}": "deleted", f"h-{never.pk}": "unchanged",
            f"h-{broken.pk}": "refused by the mapping",
        }  # fmt: skip
        assert found[f"h-{other.pk}"]["changes"] == [("name", "before", "other")]
        text = answer.content.decode()
        assert "<del>before</del> → <ins>other</ins>" in text
        wrong = policy_form(crm_rows.hive(), crm, mapping="nane = name")
        assert "has no field nane" in post(admin_client, "policy/try/dry-run/", wrong)

    def test_personal_data_is_for_those_who_may_see_it(self, crm: Crm, biz: Biz) -> None:
        crm_rows.lead(biz)
        data = policy_form(crm_rows.hive(), crm)
        for what in ("sample", "dry-run"):
            masked = post(person(f"a{what}", "add_policy"), f"policy/try/{what}/", data)
            assert "138****5678" in masked
            assert PHONE not in masked
            assert NAME not in masked
            clear = post(
                person(f"b{what}", "add_policy", "view_personal"), f"policy/try/{what}/", data
            )
            assert PHONE in clear
        shown = AuditLog.objects.order_by("pk").values_list("actor", "action")
        assert list(shown) == [
            ("asample", "policy_sample_shown"), ("bsample", "policy_sample_shown"),
            ("adry-run", "policy_dry_run"), ("bdry-run", "policy_dry_run"),
        ]  # fmt: skip

    def test_fields_and_columns(self, admin_client: Client, crm: Crm) -> None:
        chosen = {"source": crm_rows.hive().pk, "crm": crm.pk}
        shown = post(admin_client, "policy/try/fields/", chosen)
        for words in ("<code>extra</code>", "<code>company</code>", "required"):
            assert words in shown
        assert "Choose a CRM." in post(admin_client, "policy/try/fields/")

    def test_asking_for_runs(self, admin_client: Client, crm: Crm) -> None:
        policy = crm_rows.policy(crm)
        post(admin_client, f"policy/{policy.pk}/request/", {"kind": "sweep"}, 302)
        policy.refresh_from_db()
        assert (policy.requested, policy.requested_by) == ("sweep", "admin")
        post(admin_client, f"policy/{policy.pk}/request/", {"kind": "full"}, 302)
        policy.refresh_from_db()
        assert policy.requested == "sweep"
        assert "asked for a run already" in get(admin_client, f"policy/{policy.pk}/change/")
        Policy.objects.update(requested="")
        for change in ({"enabled": False}, {"paused_at": sql.now()}):
            Crm.objects.update(**change)
            post(admin_client, f"policy/{policy.pk}/request/", {"kind": "full"}, 302)
        assert Policy.objects.get().requested == ""
        post(admin_client, f"policy/{policy.pk}/request/", {"kind": "all"}, 404)
        assert AuditLog.objects.filter(action="run_requested").count() == 1


def test_a_question_has_an_end_and_a_place() -> None:
    """Who does not answer keeps a place, not the page; when all are taken others are told."""
    silence = threading.Event()

    def never() -> None:
        silence.wait(600)

    for _ in range(trials.AT_ONCE):
        with pytest.raises(Unavailable, match="no answer within"):
            trials.ask(never, seconds=0.05)
    with pytest.raises(Unavailable, match="Other tests wait"):
        trials.ask(never)
    silence.set()
    for _ in range(trials.AT_ONCE):  # the tests that follow need the places
        assert trials._slots.acquire(timeout=180)
    trials._slots.release(trials.AT_ONCE)


def test_secrets_that_no_key_decrypts(
    admin_client: Client, crm: Crm, shop: str, url: str, settings: Any
) -> None:
    post(admin_client, "source/add/", source_form(shop), 302)
    source = Source.objects.get(name="shop")
    policy = crm_rows.policy(crm, source, mapping="name = name")
    settings.ENCRYPTION_KEYS = (encryption.new_key(),)
    for path in ("crm/", "source/", "policy/", f"policy/{policy.pk}/change/"):
        get(admin_client, path)
    for path in (f"crm/{crm.pk}/", f"source/{source.pk}/"):
        page = get(admin_client, f"{path}change/")
        assert "The stored value cannot be decrypted: enter it again." in page, path
        assert "This field is required" in post(admin_client, f"{path}test/", crm_changes()), path
    data = policy_form(source, crm, mapping="name = name", sweep_cron="")
    for what in ("sample", "dry-run"):
        said = post(admin_client, f"policy/{policy.pk}/try/{what}/", data)
        assert "cannot be decrypted" in said, what
    post(admin_client, f"crm/{crm.pk}/resume/", status=302)
    assert "cannot be decrypted" in get(admin_client, f"crm/{crm.pk}/change/")
    given = crm_changes(credentials=json.dumps({"url": url}))
    post(admin_client, f"crm/{crm.pk}/change/", given, 302)
    assert Crm.objects.get().credentials == {"url": url}


def test_who_may_do_what(crm: Crm, url: str) -> None:
    policy = crm_rows.policy(crm)
    views = [f"view_{name}" for name in ("crm", "source", "policy")]
    viewer, guest = person("viewer", *views), person("guest")
    for path in ("crm/", f"crm/{crm.pk}/change/", "policy/", f"policy/{policy.pk}/change/",
                 "source/", f"source/{policy.source_id}/change/"):  # fmt: skip
        page = get(viewer, path)
        assert url not in page
        assert 'name="_save"' not in page
        assert "data-probe=" not in page
        assert guest.get(ADMIN + path).status_code == 403, path
    for path in ("crm/test/", f"crm/{crm.pk}/test/", f"crm/{crm.pk}/resume/", "source/test/",
                 f"source/{policy.source_id}/test/", "policy/try/sample/", "policy/try/dry-run/",
                 "policy/try/fields/", f"policy/{policy.pk}/try/sample/",
                 f"policy/{policy.pk}/request/", f"policy/{policy.pk}/removals/"):  # fmt: skip
        for client in (viewer, guest):
            assert client.post(ADMIN + path, {"kind": "full"}).status_code == 403, path
        assert viewer.get(ADMIN + path).status_code in (403, 405), path
    assert not AuditLog.objects.exists()


def test_who_may_see_one_kind_is_led_to_no_other(crm: Crm) -> None:
    policy = crm_rows.policy(crm)
    entry = crm_rows.dead(policy, "1", {"name": "x"})
    one = {
        f"crm/{crm.pk}/change/": "crm",
        "policy/": "policy",
        f"policy/{policy.pk}/change/": "policy",
        f"recoveryentry/{entry.pk}/change/": "recoveryentry",
    }
    kinds = {"policy", "record", "operation", "run", "recoveryentry", "exceptionentry"}
    lists = {kind: f"{ADMIN}{kind}/" for kind in kinds} | {"record": "/console/search/crmsync"}
    everybody = person("all", "view_crm", "view_lead", *(f"view_{kind}" for kind in kinds))
    led_to: set[str] = set()
    for path, own in one.items():
        others = {kind for kind in kinds - {own} if lists[kind] in body(everybody, path)}
        led_to |= others
        text = body(person(path, f"view_{own}"), path)
        assert not {kind for kind in others if lists[kind] in text}, path
    assert led_to == kinds


def body(client: Client, path: str) -> str:
    """A page without the menu."""
    return get(client, path).partition('class="console')[2]


def test_a_policy_names_the_zone_of_its_times(admin_client: Client, crm: Crm) -> None:
    policy = crm_rows.policy(crm, hours="08:00-20:00")
    Preferences.objects.create(user=User.objects.get(), time_zone="Asia/Tokyo")
    fields = admin_client.get(f"{ADMIN}policy/{policy.pk}/change/").context["adminform"].form.fields
    for name in ("cron", "hours", "sweep_cron"):
        assert fields[name].help_text.startswith("Times in UTC. "), name
    assert "08:00-20:00 UTC" in get(admin_client, "policy/")


def test_actions_need_the_token(admin_user: User, crm: Crm) -> None:
    policy = crm_rows.policy(crm)
    entry = crm_rows.dead(policy, "1", {"name": "x"})
    client = Client(enforce_csrf_checks=True)
    client.force_login(admin_user)
    for name, given in (
        ("crm_test", [crm.pk]), ("crm_resume", [crm.pk]), ("policy_request", [policy.pk]),
        ("policy_removals", [policy.pk]),
        ("policy_try", [policy.pk, "sample"]), ("source_test", [policy.source_id]),
        ("recoveryentry_edit", [entry.pk]), ("recoveryentry_act", [entry.pk, "retry"]),
        ("operation_clear", [entry.operation_id]),
    ):  # fmt: skip
        address = reverse(f"admin:crmsync_{name}", args=given)
        assert client.post(address).status_code == 403, address
        assert client.get(address).status_code == 405, address
