"""The console of CRM sync: runs, operations, records, the recovery log; who sees whose data."""

from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from bench.harness.plans import read_plan
from crmsync.models import (
    Crm,
    ExceptionEntry,
    Item,
    Operation,
    Policy,
    Record,
    RecoveryEntry,
    Run,
)
from crmsync.orders import Request, load
from msgplatform.core.data import sql
from msgplatform.models import AuditLog
from tests.integration.crmsync.console_client import ADMIN, get, person, post
from tests.support import crm_rows
from tests.support.crm_rows import EMAIL, NAME, PHONE, SECRET

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
PERSONAL = (PHONE, EMAIL, NAME)
HOT = ("sync_record", "sync_operation", "sync_item", "sync_run", "recovery_log", "exception_log")
LISTS = ("crm/", "source/", "policy/", "run/", "operation/", "recoveryentry/", "exceptionentry/")


@pytest.fixture
def crm(tmp_path: Path, db: None) -> Crm:
    return crm_rows.sql_crm("sales", crm_rows.customers(tmp_path / "customers.db"))


@pytest.fixture
def policy(crm: Crm) -> Policy:
    return crm_rows.policy(crm)


@pytest.fixture
def entry(policy: Policy) -> RecoveryEntry:
    """A dead record, with a reason that repeats personal data."""
    fields = {"name": NAME, "phone": PHONE, "email": EMAIL}
    return crm_rows.dead(policy, "4711", fields, reason=f"{PHONE} of {EMAIL} is wrong")


def cell(client: Client, path: str, column: str) -> list[str]:
    """A column's text in each row of a list."""
    listed = client.get(ADMIN + path).context["cl"]
    return [str(getattr(listed.model_admin, column)(row)) for row in listed.result_list]


class TestRuns:
    def test_list_and_page(self, admin_client: Client, policy: Policy) -> None:
        done = crm_rows.run(policy, kind="full", read=10, unchanged=2, requested_by="li")
        requests = [Request(str(n), 1, {"name": "x"}) for n in range(8)]
        operation = crm_rows.operation(policy, requests, run_id=done.pk, confirmed=8, result=1)
        going = crm_rows.run(policy, state=0, read=50, unread=100, unchanged=25)
        states = cell(admin_client, "run/", "how_far")
        assert "25 %" in states[0]
        assert "done" in states[1]
        page = get(admin_client, f"run/{done.pk}/change/")
        assert str(operation.pk) in page
        assert "li" in page
        assert "data-live-seconds" not in page
        assert 'data-live-seconds="3"' in get(admin_client, f"run/{going.pk}/change/")
        for run, goes_on in ((going, True), (done, False)):
            parts = get(admin_client, f"run/{run.pk}/change/?live=1")
            assert "<html" not in parts
            assert 'id="live-run"' in parts
            assert ("data-live-seconds" in parts) is goes_on
        assert admin_client.get(f"{ADMIN}run/1/change/").status_code == 404
        assert len(cell(admin_client, f"run/?crm={policy.crm_id}", "policy")) == 2
        assert cell(admin_client, f"run/?policy={policy.pk + 1}", "policy") == []


class TestOperations:
    def test_the_page_has_its_five_columns(self, admin_client: Client, policy: Policy) -> None:
        row = crm_rows.operation(policy, [Request("7", 3, {"name": NAME, "phone": PHONE})])
        page = get(admin_client, f"operation/{row.pk}/change/")
        for name in ("id", "data", "start_at", "end_at", "result"):
            assert f"<dt>{name}</dt>" in page
        assert page.count("<dt>") == 5
        for words in (f"{{&quot;name&quot;:&quot;{NAME[0]}****&quot;", "138****5678", "NULL"):
            assert words in page
        assert NAME not in page

    def test_personal_data_is_shown_to_whoever_may_see_it(self, entry: RecoveryEntry) -> None:
        path = f"operation/{entry.operation_id}/"
        viewer = person("viewer", "view_operation")
        page = get(viewer, f"{path}change/")
        assert "138****5678 of w****@example.com is wrong" in page
        assert not [words for words in PERSONAL if words in page]
        assert "Show personal data" not in page
        post(viewer, f"{path}clear/", status=403)
        assert not AuditLog.objects.exists()
        chief = person("chief", "view_operation", "view_personal")
        page = get(chief, f"{path}change/")
        assert not [words for words in PERSONAL if words in page]
        page = post(chief, f"{path}clear/")
        assert [words for words in PERSONAL if words in page] == list(PERSONAL)
        shown = AuditLog.objects.get()
        assert (shown.actor, shown.action) == ("chief", "personal_data_shown")
        assert shown.target == f"operation {entry.operation_id}"

    def test_filters(self, admin_client: Client, policy: Policy) -> None:
        run = crm_rows.run(policy)
        first = crm_rows.operation(policy, [], run_id=run.pk)
        second = crm_rows.operation(policy, [])
        for query, wanted in (
            ("", [second, first]), (f"run={run.pk}", [first]), (f"q={second.pk}", [second]),
            (f"policy={policy.pk}", [second, first]), (f"crm={policy.crm_id + 1}", []),
            ("q=nothing", []),
        ):  # fmt: skip
            found = cell(admin_client, f"operation/?{query}", "id_text")
            assert found == [str(row.pk) for row in wanted], query


class TestRecords:
    def test_pages_lead_to_their_records(self, admin_client: Client, policy: Policy) -> None:
        crm_rows.record(policy, crm_rows.operation(policy, []), "k-1", remote_id="remote-1")
        for path, query in (
            (f"policy/{policy.pk}", f"policy={policy.source.name}/{policy.crm.name}"),
            (f"crm/{policy.crm_id}", f"crm={policy.crm.name}"),
        ):
            address = f"/console/search/crmsync?rows=records&amp;{query}"
            assert address in get(admin_client, f"{path}/change/")
            listed = admin_client.get(unescape(address)).content.decode()
            assert "id in the CRM remote-1" in listed
        viewer = person("viewer", "view_crm", "view_record")
        assert "rows=records" not in get(viewer, f"crm/{policy.crm_id}/change/")


class TestRecoveryLog:
    def test_list_and_page(self, admin_client: Client, entry: RecoveryEntry) -> None:
        closed = crm_rows.dead(Policy.objects.get(), "done", {}, error_class="retry", field="")
        RecoveryEntry.objects.filter(pk=closed.pk).update(
            state=RecoveryEntry.State.RETRIED, handled_by="li"
        )
        assert len(cell(admin_client, "recoveryentry/", "tries")) == 1
        for query, count in (
            ("state=all", 2), ("state=1", 1), ("error=invalid", 1), ("error=retry", 0),
            ("q=4711", 1), (f"q={entry.operation_id}", 1), ("q=nobody", 0),
            (f"crm={entry.crm_id + 1}", 0),
            (f"crm={entry.crm_id}", 1), ("created_at_since=2099-01-01T00:00", 0),
            ("created_at_until=2099-01-01T00:00", 1),
        ):  # fmt: skip
            assert len(cell(admin_client, f"recoveryentry/?{query}", "tries")) == count, query
        page = get(admin_client, f"recoveryentry/{entry.pk}/change/")
        assert "138****5678 of w****@example.com is wrong" in page
        assert not [words for words in PERSONAL if words in page]
        assert "li" in cell(admin_client, "recoveryentry/?state=1", "state_mark")[0]

    def test_all_of_a_filter_are_a_bulk_job(self, admin_client: Client, crm: Crm) -> None:
        page = get(admin_client, f"recoveryentry/?crm={crm.pk}&error=invalid&state=0")
        query = f"action=resend&amp;count=1&amp;crm={crm.pk}&amp;error_class=invalid"
        assert f"/console/bulk/crmsync?{query}" in page
        # A job has no such filters: it would take more than the list shows.
        for chosen in ("q=4711", "state=all", f"crm={crm.pk}&state=1"):
            page = get(admin_client, f"recoveryentry/?{chosen}")
            assert "/console/bulk/crmsync?" not in page, chosen

    def test_edit_and_try_again(self, admin_client: Client, entry: RecoveryEntry) -> None:
        path = f"recoveryentry/{entry.pk}/edit/"
        form = post(admin_client, path)
        assert PHONE in form
        assert "personal_data_shown" in AuditLog.objects.values_list("action", flat=True)
        wrong = {"save": "1", "field-name": NAME, "field-phone": "1" * 100, "field-email": ""}
        post(admin_client, path, {**wrong, "field-phone": "13900000000"}, 302)
        entry.refresh_from_db()
        assert entry.state == RecoveryEntry.State.RETRIED
        record = Record.objects.get(pk=entry.record_id)
        assert record.state == Record.State.WAITING
        (request,) = load(bytes(Operation.objects.get(pk=record.operation_id).data))
        assert request.fields == {"name": NAME, "phone": "13900000000"}
        # Once is enough: there is nothing to edit any more.
        post(admin_client, path, wrong, 302)
        assert Operation.objects.count() == 2

    def test_line_breaks_stay_as_they_were(self, admin_client: Client, policy: Policy) -> None:
        """A browser sends those of a text area as two characters."""
        fields = {"name": "A\nB\n", "phone": "1\r\n2", "email": "x\ry"}
        for changed, phone in (("1\r\n2", "1\r\n2"), ("1\r\n3", "1\r\n3")):
            row = crm_rows.dead(policy, f"k{phone[-1]}", fields)
            given = {"save": "1", "field-name": "A\r\nC\r\n", "field-phone": changed,
                     "field-email": "x\r\ny"}  # fmt: skip
            post(admin_client, f"recoveryentry/{row.pk}/edit/", given, 302)
            record = Record.objects.get(pk=row.record_id)
            (request,) = load(bytes(Operation.objects.get(pk=record.operation_id).data))
            assert request.fields == {"name": "A\nC\n", "phone": phone, "email": "x\ry"}

    @pytest.mark.parametrize(
        ("written", "says"),
        [("NaN", "cannot be stored"), ("1e999", "cannot be stored"), ("9" * 5000, "cannot be"),
         ("[" * 100_000, "nested too deeply"), ('"\\ud800"', "half a character")],
    )  # fmt: skip
    def test_what_is_no_json_is_refused(
        self, admin_client: Client, policy: Policy, written: str, says: str
    ) -> None:
        row = crm_rows.dead(policy, "1", {"name": NAME, "age": 40}, field="age")
        given = {"save": "1", "field-name": NAME, "field-age": written}
        assert says in post(admin_client, f"recoveryentry/{row.pk}/edit/", given)
        row.refresh_from_db()
        assert row.state == RecoveryEntry.State.OPEN

    def test_what_is_wrong_is_said_at_its_field(self, admin_client: Client, policy: Policy) -> None:
        row = crm_rows.dead(policy, "1", {"name": NAME, "age": 40, "nane": "x"}, field="city")
        path = f"recoveryentry/{row.pk}/edit/"
        assert 'name="field-city"' in post(admin_client, path)  # what the CRM misses
        given = {"save": "1", "field-name": NAME, "field-age": "forty", "field-nane": "x"}
        assert "Write it as JSON" in post(admin_client, path, given)
        given["field-age"] = ""
        assert "has no field nane" in post(admin_client, path, given)
        row.refresh_from_db()
        assert row.state == RecoveryEntry.State.OPEN

    def test_try_again_and_dismiss(self, admin_client: Client, policy: Policy) -> None:
        first, second, third = (crm_rows.dead(policy, key, {"name": key}) for key in "abc")
        post(admin_client, f"recoveryentry/{first.pk}/do/retry/", status=302)
        post(admin_client, f"recoveryentry/{second.pk}/do/dismiss/", status=302)
        post(admin_client, f"recoveryentry/{third.pk}/do/nothing/", status=404)
        states = dict(Record.objects.values_list("key", "state"))
        assert states == {
            "a": Record.State.WAITING, "b": Record.State.DISMISSED, "c": Record.State.DEAD,
        }  # fmt: skip
        answer = admin_client.post(
            f"{ADMIN}recoveryentry/",
            {"action": "retry", "_selected_action": [third.pk], "index": 0},
            follow=True,
        )
        assert "1 entry is tried again." in answer.content.decode()
        assert not RecoveryEntry.objects.filter(state=RecoveryEntry.State.OPEN).exists()

    def test_who_may_act(self, entry: RecoveryEntry) -> None:
        path = f"recoveryentry/{entry.pk}/"
        viewer = person("viewer", "view_recoveryentry", "view_personal")
        page = get(viewer, f"{path}change/")
        assert "Try again" not in page
        operator = person("operator", "view_recoveryentry", "change_recoveryentry")
        page = get(operator, f"{path}change/")
        assert "Editing needs the permission to see personal data." in page
        post(operator, f"{path}edit/", status=403)
        for what in ("do/retry", "do/dismiss", "edit"):
            post(viewer, f"{path}{what}/", status=403)
        entry.refresh_from_db()
        assert entry.state == RecoveryEntry.State.OPEN
        post(operator, f"{path}do/retry/", status=302)
        entry.refresh_from_db()
        assert (entry.state, entry.handled_by) == (RecoveryEntry.State.RETRIED, "operator")


def test_exceptions(admin_client: Client, policy: Policy, entry: RecoveryEntry) -> None:
    ExceptionEntry.objects.create(
        id=crm_rows.new_id(), policy_id=policy.pk, crm_id=policy.crm_id, kind="auth",
        operation_id=entry.operation_id, message=f"{EMAIL} may not do this", at=sql.now(),
    )  # fmt: skip
    assert cell(admin_client, "exceptionentry/", "says") == ["w****@example.com may not do this"]
    link = f"{ADMIN}operation/{entry.operation_id}/change/"
    assert link in cell(admin_client, f"exceptionentry/?crm={policy.crm_id}", "operation")[0]
    assert cell(admin_client, "exceptionentry/?q=5", "operation") == []


def test_empty_lists_say_what_to_do(admin_client: Client, db: None) -> None:
    assert "Nothing is dead" in get(admin_client, "recoveryentry/")
    assert "Nothing is dead" not in get(admin_client, "recoveryentry/?error=invalid")
    assert "Begin here: add a CRM" in get(admin_client, "crm/")
    assert "It needs a CRM" in get(admin_client, "policy/")
    for path in LISTS:
        get(admin_client, path)


def test_sources_lead_to_their_policies(admin_client: Client, policy: Policy) -> None:
    (link,) = cell(admin_client, "source/", "policy_count")
    query = f"policy/?source__id__exact={policy.source_id}"
    assert query in link
    assert len(cell(admin_client, query, "name")) == 1
    assert cell(admin_client, f"policy/?source__id__exact={policy.source_id + 1}", "name") == []


def test_no_page_has_a_secret(admin_client: Client, tmp_path: Path) -> None:
    made = crm_rows.make(str(tmp_path))
    pages = [
        *LISTS, f"crm/{made['refused']}/change/", f"crm/{made['http']}/change/",
        f"source/{made['source']}/change/", f"policy/{made['third']}/change/",
        f"crm/{made['refused']}/history/", f"source/{made['source']}/history/",
    ]  # fmt: skip
    for path in pages:
        assert SECRET not in get(admin_client, path), path
    for path in ("crm/?credentials__contains=hush", "source/?database__startswith=mysql"):
        assert admin_client.get(ADMIN + path).status_code in (302, 400), path
    # Nor does a form that comes back with an error.
    wrong = {"name": "x y", "adapter": "sql", "credentials": f'{{"url": "{SECRET}"}}'}
    assert SECRET not in post(admin_client, "crm/add/", wrong)
    assert SECRET not in post(admin_client, "source/add/", {"database": f"mysql://{SECRET}"})
    assert SECRET not in str(list(AuditLog.objects.values()))


def fill(policies: list[Policy], many: int) -> None:
    """As many rows of everything."""
    for n in range(many):
        policy = policies[n % len(policies)]
        crm_rows.dead(policy, f"d-{many}-{n}", {"name": "x"})
        run = crm_rows.run(policy)
        sent = crm_rows.operation(policy, [], run_id=run.pk)
        row = crm_rows.record(policy, sent, f"k-{many}-{n}")
        Item.objects.create(
            id=crm_rows.new_id(), operation_id=sent.pk, record_id=row.pk, crm_id=policy.crm_id,
            version=1, attempt=1, outcome="ok", at=sql.now(),
        )  # fmt: skip
        ExceptionEntry.objects.create(
            id=crm_rows.new_id(), policy_id=policy.pk, crm_id=policy.crm_id, kind="retry",
            operation_id=sent.pk, message="x", at=sql.now(),
        )  # fmt: skip


def more_policies(tmp_path: Path, first: int, last: int) -> list[Policy]:
    url = crm_rows.customers(tmp_path / "customers.db")
    return [crm_rows.policy(crm_rows.sql_crm(f"crm-{n}", url)) for n in range(first, last)]


def test_lists_ask_as_much_at_20_rows_as_at_200(admin_client: Client, tmp_path: Path) -> None:
    def asked() -> dict[str, int]:
        counts: dict[str, Any] = {}
        for path in LISTS:
            with CaptureQueriesContext(connection) as captured:
                page = get(admin_client, f"{path}?p=1")
            assert "result_list" in page
            counts[path] = len(captured)
        return counts

    policies = more_policies(tmp_path, 0, 20)
    fill(policies, 20)
    get(admin_client, "crm/")  # what is read once for the process is read now
    few = asked()
    policies += more_policies(tmp_path, 20, 60)
    fill(policies, 180)
    assert asked() == few
    assert max(few.values()) <= 16


def many(policy: Policy, made: Operation, count: int) -> None:
    """Rows of the hot tables, so that reading one whole is worse than an index."""
    of, now, numbers = {"policy_id": policy.pk}, sql.now(), range(1, count + 1)
    crm, kept = {"crm_id": policy.crm_id}, {"operation_id": made.pk}
    Record.objects.bulk_create(
        Record(id=n, key=f"k{n}", version=1, state=Record.State.CONFIRMED, updated_at=now,
               **of, **kept)
        for n in numbers
    )  # fmt: skip
    Operation.objects.bulk_create(
        Operation(id=n, data=b"[]", start_at=n, records=0, run_id=n, **of) for n in numbers
    )
    Run.objects.bulk_create(Run(id=n, kind="changes", started_at=now, **of) for n in numbers)
    RecoveryEntry.objects.bulk_create(
        RecoveryEntry(record_id=n, key=str(n), error_class="invalid", created_at=now, state=n % 2,
                      **of, **crm, **kept)
        for n in numbers
    )  # fmt: skip
    ExceptionEntry.objects.bulk_create(
        ExceptionEntry(id=n, kind="retry", message="x", at=now, operation_id=n, **of, **crm)
        for n in numbers
    )
    Item.objects.bulk_create(
        Item(id=n, operation_id=n, record_id=n, version=1, attempt=1, outcome="ok", at=now, **crm)
        for n in numbers
    )


def wrong_steps(statement: str) -> list[str]:
    """Steps of a plan that read a whole hot table."""
    with connection.cursor() as cursor:
        plan = read_plan(cursor, statement)
    if connection.vendor == "sqlite":
        details = [step["detail"] for step in plan]
        return [d for d in details if d.startswith(tuple(f"SCAN {t}" for t in HOT))
                and " USING " not in d]  # fmt: skip
    return [str(step) for step in plan if step["type"] == "ALL" and step["table"] in HOT]


def test_whatever_is_chosen_is_read_from_an_index(admin_client: Client, policy: Policy) -> None:
    """Newest first is the primary key backwards; what narrows has an index of its own."""
    entry = crm_rows.dead(policy, "d-7", {"name": "x"})
    made = Operation.objects.get()
    many(policy, made, 4000)
    if connection.vendor == "mysql":
        with connection.cursor() as cursor:
            for table in HOT:
                cursor.execute(f"ANALYZE TABLE {table}")
    by_crm = f"crm={policy.crm_id}"
    found: dict[str, list[str]] = {}
    for address in (
        "operation/", f"operation/?{by_crm}", "operation/?run=7",
        f"operation/{made.pk}/change/", "run/", f"run/?{by_crm}", "recoveryentry/",
        "recoveryentry/?state=all", f"recoveryentry/?{by_crm}", "recoveryentry/?q=d-7",
        f"recoveryentry/{entry.pk}/change/", "exceptionentry/", f"exceptionentry/?{by_crm}",
        f"exceptionentry/?q={entry.operation_id}", "crm/", "policy/",
    ):  # fmt: skip
        with CaptureQueriesContext(connection) as captured:
            get(admin_client, address)
        # Without a condition it is the primary key backwards, which SQLite calls a scan.
        asked = [
            q["sql"] for q in captured if q["sql"].startswith("SELECT") and "WHERE" in q["sql"]
        ]
        assert asked
        for statement in asked:
            if wrong := wrong_steps(statement):
                found[address] = [*wrong, statement[:300]]
    assert found == {}
