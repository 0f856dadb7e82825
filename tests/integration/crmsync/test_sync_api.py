"""`/api/v1/sync` and `/api/v1/leads/{id}/crms`: what each CRM holds, policies, and their runs."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from bench.harness.plans import read_plan
from crmsync.messages import page as message_page
from crmsync.models import Crm, Item, Lead, Policy, Record, RecoveryEntry, Run, Source
from crmsync.policies import run_requests
from msgplatform.core.data import ids, sql
from msgplatform.core.errors import NotNow
from msgplatform.doors.api.access import keys, throttling
from msgplatform.models import AuditLog, Biz
from tests.integration.crmsync import recovery_steps, sync_support
from tests.integration.crmsync.support import Caller
from tests.integration.crmsync.sync_support import hive
from tests.support.api_support import Api, problem

pytestmark = pytest.mark.django_db
SYNC = "/api/v1/sync"
CONFIRMED, RETRY = Record.State.CONFIRMED, Record.State.RETRY


@pytest.fixture
def api(work_redis: object, monkeypatch: pytest.MonkeyPatch, db: None) -> Iterator[Api]:
    monkeypatch.setattr(throttling, "_paused_until", 0.0)
    keys.forget()
    yield Api()
    keys.forget()


@pytest.fixture
def biz(api: Api) -> Biz:
    return api.biz()


@pytest.fixture
def caller(api: Api, biz: Biz) -> Caller:
    return Caller(api, api.key("sync:run", "leads:read", biz=biz)[1])


@pytest.fixture
def policy(api: Api) -> Policy:
    Source.objects.get_or_create(
        name="hive", defaults={"table": "lead", "time_column": "UpdateTime"}
    )
    Source.objects.filter(name="hive").update(version_column="version")
    return hive()


def new_lead(biz: Biz) -> Lead:
    return Lead.objects.create(id=ids.new(0), biz=biz, appkey="ad-1", name="王小明")


def new_run(policy: Policy, **fields: Any) -> Run:
    fields = {"kind": "full", "started_at": sql.now() - timedelta(seconds=10), **fields}
    return Run.objects.create(id=ids.new(0), policy_id=policy.pk, **fields)


def answered(caller: Caller, path: str, **parameters: str) -> Any:
    response = caller.get(path, **parameters)
    assert response.status_code == 200, response.content
    return response.json()


class TestLeadAtCrms:
    def test_each_crm(self, caller: Caller, biz: Biz, policy: Policy) -> None:
        lead = new_lead(biz)
        one = recovery_steps.request(str(lead.pk), version=3)
        tryton = hive("tryton")
        first, second = (sync_support.new_operation(each, [one]) for each in (policy, tryton))
        recovery_steps.record(first, one, CONFIRMED, remote_id="r-7")
        later = sql.now() + timedelta(hours=1)
        retry = recovery_steps.record(
            second, one, RETRY, next_at=later, error_class="retry", sent_version=2
        )
        for message in ("HTTP 500", "HTTP 503"):
            Item.objects.create(
                id=ids.new(0), operation_id=retry.operation_id, record_id=retry.pk, crm_id=1,
                version=3, attempt=1, outcome="retry", message=message, at=sql.now(),
            )  # fmt: skip
        hive("unread")
        sales, second, unread = answered(caller, f"/api/v1/leads/{lead.pk}/crms")["crms"]
        assert (sales["crm"], sales["state"], sales["remote_id"]) == ("sales", "confirmed", "r-7")
        assert (sales["version"], sales["confirmed_version"], sales["next_try_at"]) == (3, 3, None)
        assert (second["state"], second["message"]) == ("retry", "the CRM failed")
        assert (second["confirmed_version"], second["error_class"]) == (2, "retry")
        assert second["next_try_at"].startswith(f"{later:%Y-%m-%dT%H:%M:%S}")
        assert (unread["state"], unread["version"], unread["updated_at"]) == ("unread", None, None)

    def test_a_dead_one_says_why(self, caller: Caller, biz: Biz, policy: Policy) -> None:
        lead = new_lead(biz)
        recovery_steps.dead(
            policy, str(lead.pk), "invalid", field="LastName", reason="LastName is required"
        )
        (state,) = answered(caller, f"/api/v1/leads/{lead.pk}/crms")["crms"]
        assert (state["state"], state["message"]) == ("dead", "refused by the CRM: LastName")

    def test_a_dead_one_that_is_looked_up_first_has_the_class_of_its_entry(
        self, caller: Caller, biz: Biz, policy: Policy
    ) -> None:
        lead = new_lead(biz)
        _, entry = recovery_steps.dead(policy, str(lead.pk), "unknown")
        RecoveryEntry.objects.filter(pk=entry.pk).update(error_class="conflict")
        (state,) = answered(caller, f"/api/v1/leads/{lead.pk}/crms")["crms"]
        words = (state["error_class"], state["message"])
        assert words == ("conflict", "another record of the CRM")

    def test_no_server_is_named(self, caller: Caller, biz: Biz, policy: Policy) -> None:
        """The driver's text is for the console."""
        said = "Can't connect to server on 'crm-db.internal' (115), table `secret_crm`.`customer`"
        lead = new_lead(biz)
        one = recovery_steps.request(str(lead.pk))
        waiting = recovery_steps.record(
            sync_support.new_operation(policy, [one]), one, RETRY, error_class="retry"
        )
        Item.objects.create(
            id=ids.new(0), operation_id=waiting.operation_id, record_id=waiting.pk, crm_id=1,
            version=1, attempt=1, outcome="retry", message=said, at=sql.now(),
        )  # fmt: skip
        recovery_steps.dead(hive("tryton"), str(lead.pk), "unknown", reason=said)
        first, second = answered(caller, f"/api/v1/leads/{lead.pk}/crms")["crms"]
        assert (first["error_class"], first["message"]) == ("retry", "the CRM failed")
        assert second["message"] == "nobody knows whether it is stored"
        assert said in message_page.page(str(lead.pk)).timeline[-1].detail

    def test_policies_of_another_system_are_not_shown(
        self, api: Api, caller: Caller, biz: Biz, policy: Policy
    ) -> None:
        hive("others", biz=api.biz())
        crms = answered(caller, f"/api/v1/leads/{new_lead(biz).pk}/crms")["crms"]
        assert [each["crm"] for each in crms] == ["sales"]

    def test_a_lead_of_another_system_is_not_there(self, api: Api, caller: Caller) -> None:
        problem(caller.get(f"/api/v1/leads/{new_lead(api.biz()).pk}/crms"), 404, "not-found")
        problem(caller.get("/api/v1/leads/1/crms"), 404, "not-found")


class TestPolicies:
    def test_its_own_and_those_of_all(self, api: Api, caller: Caller, biz: Biz) -> None:
        of_all = hive("all", requested="full", requested_by=f"{biz.name}/key 7")
        hive("others", biz=api.biz())
        own = hive("own", biz=biz)
        found = answered(caller, f"{SYNC}/policies")["results"]
        assert [each["id"] for each in found] == [str(own.pk), str(of_all.pk)]
        assert found[1] == {
            "id": str(of_all.pk), "source": "hive", "crm": "all", "enabled": True,
            "paused": False, "requested": "full", "requested_by": f"{biz.name}/key 7",
            "stopped": None,
        }  # fmt: skip

    def test_removals_that_wait_for_a_person(self, caller: Caller) -> None:
        now = sql.now()
        hive("all", stopped_at=now, stopped_removals=60, stopped_records=100)
        (shown,) = answered(caller, f"{SYNC}/policies")["results"]
        stopped = shown["stopped"]
        assert datetime.fromisoformat(stopped.pop("since")) == now
        assert stopped == {"removals": 60, "records": 100, "decision": ""}

    @pytest.mark.parametrize("by", ["ann", "shop/key 5", "{own}/key 7/key 5", "{own}-2/key 7"])
    def test_who_else_asked_is_not_told(self, by: str, caller: Caller, biz: Biz) -> None:
        by = by.format(own=biz.name)
        policy = hive("all", requested="full", requested_by=by)
        run = new_run(policy, requested_by=by)
        nobody = new_run(policy)
        (shown,) = answered(caller, f"{SYNC}/policies")["results"]
        assert shown["requested_by"] == "somebody else"
        assert answered(caller, f"{SYNC}/runs/{run.pk}")["requested_by"] == "somebody else"
        listed = answered(caller, f"{SYNC}/runs")["results"]
        assert {each["id"]: each["requested_by"] for each in listed} == {
            str(run.pk): "somebody else", str(nobody.pk): "",
        }  # fmt: skip
        response = caller.send("POST", f"{SYNC}/policies/{policy.pk}/runs", {"kind": "full"})
        detail = problem(response, 409, "not-now")["detail"]
        assert detail == "Somebody asked for a run already; it begins within seconds."


class TestAskForARun:
    def ask(self, caller: Caller, policy: Policy, kind: Any = "full") -> Any:
        path = f"{SYNC}/policies/{policy.pk}/runs"
        return caller.send("POST", path, {"kind": kind})

    @pytest.mark.parametrize("kind", ["changes", "full", "sweep"])
    def test_it_is_asked_for(self, kind: str, caller: Caller, policy: Policy) -> None:
        response = self.ask(caller, policy, kind)
        assert response.status_code == 202
        body = response.json()
        policy.refresh_from_db()
        assert (body["policy"], body["kind"]) == (str(policy.pk), policy.requested)
        assert body["requested_by"] == policy.requested_by == AuditLog.objects.get().actor

    def test_one_at_a_time(self, caller: Caller, policy: Policy) -> None:
        self.ask(caller, policy, "changes")
        detail = problem(self.ask(caller, policy), 409, "not-now")["detail"]
        assert "asked for a run already" in detail
        policy.refresh_from_db()
        assert policy.requested == "changes"

    def test_two_at_the_same_moment(self, policy: Policy) -> None:
        run_requests.ask(policy, "changes", "ann")
        with pytest.raises(NotNow):
            run_requests.ask(policy, "full", "bob")  # read before: it knows of none
        policy.refresh_from_db()
        assert (policy.requested, policy.requested_by) == ("changes", "ann")

    def test_a_run_that_would_not_begin(self, caller: Caller, policy: Policy) -> None:
        Crm.objects.update(paused_at=sql.now())
        assert "paused" in problem(self.ask(caller, policy), 409, "not-now")["detail"]
        Policy.objects.update(enabled=False)
        assert "switched off" in problem(self.ask(caller, policy), 409, "not-now")["detail"]

    def test_wrong_kinds(self, caller: Caller, policy: Policy) -> None:
        for kind in ("all", "", None, 7):
            (error,) = problem(self.ask(caller, policy, kind), 400, "invalid-input")["errors"]
            assert error["field"] == "kind"
        Source.objects.update(version_column="")
        (error,) = problem(self.ask(caller, policy, "sweep"), 400, "invalid-input")["errors"]
        assert "changes, full" in error["message"]
        assert not Policy.objects.exclude(requested="").exists()

    def test_a_policy_of_another_system(self, api: Api, caller: Caller) -> None:
        other = hive("sales", biz=api.biz())
        problem(self.ask(caller, other), 404, "not-found")
        assert not Policy.objects.exclude(requested="").exists()


class TestRuns:
    def test_progress(self, caller: Caller, biz: Biz, policy: Policy) -> None:
        by = f"{biz.name}/key 7"
        began = sql.now() - timedelta(seconds=1000)  # beside it the seconds of this test are few
        run = new_run(
            policy, read=3000, unchanged=1000, unread=10_000, requested_by=by, started_at=began
        )
        sync_support.new_operation(policy, [], run_id=run.pk, records=2000, confirmed=1000)
        body = answered(caller, f"{SYNC}/runs/{run.pk}")
        assert (body["kind"], body["state"], body["requested_by"]) == ("full", "reading", by)
        shown = body["progress"]
        counts = {
            "read": 3000, "unchanged": 1000, "sent": 2000, "confirmed": 1000, "waiting": 1000,
        }  # fmt: skip
        assert {name: shown[name] for name in counts} == counts
        assert shown["records_per_second"] == pytest.approx(2.0, rel=0.3)
        assert shown["seconds_left"] == pytest.approx(8000 / shown["records_per_second"])
        assert not shown["is_over"]

    def test_why_it_failed_names_no_table(self, caller: Caller, policy: Policy) -> None:
        problem_text = "the table secret_leads does not exist, or may not be read"
        failed = new_run(policy, kind="sweep", state=Run.State.FAILED, problem=problem_text)
        for shown in (
            answered(caller, f"{SYNC}/runs/{failed.pk}"),
            *answered(caller, f"{SYNC}/runs")["results"],
        ):
            assert (shown["state"], shown["problem"]) == (
                "failed", "The source does not fit its settings; the console says why."
            )  # fmt: skip
        assert answered(caller, f"{SYNC}/runs/{new_run(policy).pk}")["problem"] == ""

    def test_pages_of_what_may_be_seen(self, api: Api, caller: Caller, policy: Policy) -> None:
        other = hive("others", biz=api.biz())
        third = hive("third")
        runs = [new_run(each) for each in (policy, other, third, policy, policy)]
        wanted = [str(runs[n].pk) for n in (4, 3, 2, 0)]
        page = answered(caller, f"{SYNC}/runs", limit="3")
        assert [run["id"] for run in page["results"]] == wanted[:3]
        rest = caller.get(page["next"]).json()
        assert [run["id"] for run in rest["results"]] == wanted[3:]
        of_one = answered(caller, f"{SYNC}/runs", policy=str(policy.pk), limit="2")
        rest = caller.get(of_one["next"]).json()
        found = [run["id"] for page in (of_one, rest) for run in page["results"]]
        assert found == [str(runs[n].pk) for n in (4, 3, 0)]
        assert answered(caller, f"{SYNC}/runs", policy=str(other.pk))["results"] == []
        problem(caller.get(f"{SYNC}/runs", policy="x"), 400, "invalid-input")
        problem(caller.get(f"{SYNC}/runs/{runs[1].pk}"), 404, "not-found")
        problem(caller.get(f"{SYNC}/runs/1"), 404, "not-found")

    def test_as_many_queries_for_200_runs_as_for_20(self, caller: Caller, policy: Policy) -> None:
        costs = []
        for more in (20, 180):
            for _ in range(more):
                sync_support.new_operation(policy, [], run_id=new_run(policy).pk)
            answered(caller, f"{SYNC}/runs")  # the key is known now
            with CaptureQueriesContext(connection) as queries:
                found = answered(caller, f"{SYNC}/runs", limit="200")["results"]
            assert all(run["progress"]["read"] == 0 for run in found)
            costs.append(len(queries))
        assert costs[0] == costs[1] <= 5

    @pytest.mark.parametrize("filter", [{}, {"policy": "one"}])
    def test_no_page_sorts_all_runs(
        self, filter: dict[str, str], caller: Caller, policy: Policy
    ) -> None:
        now = sql.now()
        for each in (policy, hive("second")):
            columns = ("id", "policy_id", "kind", "started_at", "state", "requested_by", "read",
                       "unchanged", "unread", "problem")  # fmt: skip
            rows = ((ids.new(0), each.pk, "full", now, 1, "", 0, 0, 0, "") for _ in range(3000))
            sql.insert("sync_run", columns, rows)
        given = {"policy": str(policy.pk)} if filter else {}
        with CaptureQueriesContext(connection) as queries:
            answered(caller, f"{SYNC}/runs", limit="5", **given)
        (statement,) = [q["sql"] for q in queries.captured_queries if "FROM `sync_run`" in q["sql"]
                        or 'FROM "sync_run"' in q["sql"]]  # fmt: skip
        with connection.cursor() as cursor:
            steps = read_plan(cursor, statement.replace("%", "%%"))
        shown = " ".join(str(step) for step in steps).lower()
        assert "filesort" not in shown
        if filter:  # SQLite sorts those of several policies
            assert "temp b-tree" not in shown


ADDRESSES = [
    ("GET", "/api/v1/leads/7/crms", "leads:read"),
    ("GET", f"{SYNC}/policies", "sync:run"),
    ("POST", f"{SYNC}/policies/7/runs", "sync:run"),
    ("GET", f"{SYNC}/runs", "sync:run"),
    ("GET", f"{SYNC}/runs/7", "sync:run"),
]


@pytest.mark.parametrize(("method", "path", "scope"), ADDRESSES)
class TestKeys:
    def test_without_one_and_with_a_wrong_one(
        self, method: str, path: str, scope: str, api: Api
    ) -> None:
        for key in (None, "mp_wrong"):
            response = Caller(api, key).send(method, path, {"kind": "full"})
            problem(response, 401, "unauthenticated")

    def test_with_another_scope(self, method: str, path: str, scope: str, api: Api) -> None:
        key = api.key("leads:write", "sync:run" if scope == "leads:read" else "leads:read")[1]
        body = problem(Caller(api, key).send(method, path, {"kind": "full"}), 403, "missing-scope")
        assert body["required_scope"] == scope
