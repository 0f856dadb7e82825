"""Leads and records found by what people know of them, and the timeline of each."""

import math
import time
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from bench.harness.plans import read_plan
from crmsync import orders, presence
from crmsync.messages import timeline
from crmsync.messages.index import LEADS, MESSAGES
from crmsync.messages.page import page as message_page
from crmsync.models import Item, LandingPage, Lead, Operation, Policy, Record, RecoveryEntry
from crmsync.recovery import actions
from msgplatform.core import flows
from msgplatform.core.data import ids, sql
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.page import Recipient
from msgplatform.core.rates.breaker import State
from msgplatform.messages import engine
from msgplatform.messages.filters import read_filter
from msgplatform.models import Biz
from tests.integration.crmsync import recovery_steps, sync_support
from tests.integration.crmsync.sync_support import crm, hive

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db]
WAITING, QUEUED, RETRY, CONFIRMED, DEAD, DISMISSED, _HELD = Record.State
MAX_ID = 2**63 - 1


@pytest.fixture
def biz() -> Biz:
    return Biz.objects.create(name="dealers")


@pytest.fixture
def policy() -> Policy:
    return hive("hubspot")


def new_lead(biz: Biz, **fields: Any) -> Lead:
    fields = {"appkey": "ad-1", "name": "王小明", "phone": "13800000000", **fields}
    return Lead.objects.create(id=ids.new(0), biz=biz, **fields)


def carry(policy: Policy, lead: Lead | str, state: int = CONFIRMED, **fields: Any) -> Record:
    """A record with its operation, in which it is alone."""
    key = str(lead.pk) if isinstance(lead, Lead) else lead
    one = recovery_steps.request(policy.key_prefix + key)
    fields = {"key": key, "remote_id": f"r-{key}", **fields}
    return recovery_steps.record(
        sync_support.new_operation(policy, [one], run_id=7), one, state, **fields
    )


def tried(record: Record, outcome: str = "ok", **fields: Any) -> Item:
    policy = Policy.objects.get(pk=record.policy_id)
    fields = {"version": record.version, "attempt": 1, "milliseconds": 12, **fields}
    return Item.objects.create(
        id=ids.new(0), operation_id=record.operation_id, record_id=record.pk, at=sql.now(),
        crm_id=policy.crm_id, outcome=outcome, **fields,
    )  # fmt: skip


def found(**filter: str) -> list[str]:
    return [hit.id for hit in engine.find(MESSAGES, filter, "", 50).hits]


def searched(query: str) -> list[str]:
    return [hit.id for hit in engine.search(MESSAGES, query, 50).hits]


class TestSearch:
    def test_everything_that_a_lead_is_known_by(self, biz: Biz, policy: Policy) -> None:
        lead, other = new_lead(biz, uid="u-1"), new_lead(biz, name="李", phone="13900000000")
        record = carry(policy, lead)
        carry(policy, other)
        by = [str(lead.pk), "138 0000-0000", "u-1", "王小", "王小明", f"r-{lead.pk}",
              str(record.operation_id)]  # fmt: skip
        for query in by:
            assert searched(query) == [str(lead.pk)], query
        assert searched("ad-1") == [str(other.pk), str(lead.pk)]
        assert searched("nobody") == searched("") == searched("\x00") == searched("9" * 25) == []

    def test_a_record_of_another_source_by_its_key(self, biz: Biz) -> None:
        policy = sync_support.policy(crm(), "people", key_prefix="p-", biz=biz)
        record = carry(policy, "A7")
        (hit,) = engine.search(MESSAGES, "A7", 50).hits
        assert (hit.id, hit.biz) == (f"record-{record.pk}", "dealers")
        assert hit.title == "people · A7"
        assert searched(str(record.operation_id)) == searched("r-A7") == [hit.id]

    def test_a_line_says_how_it_stands_at_each_crm(self, biz: Biz, policy: Policy) -> None:
        lead = new_lead(biz)
        carry(hive("tryton"), lead, DEAD)
        hive("off", enabled=False)
        hive("others", appkeys=["ad-2"])
        (hit,) = engine.search(MESSAGES, "王小明", 50).hits
        assert hit.title == "王小明 · 13800000000"
        assert hit.state == "hubspot: not read yet, tryton: dead"


class TestFind:
    def test_leads_by_what_their_records_are(self, biz: Biz, policy: Policy) -> None:
        good, bad = new_lead(biz), new_lead(biz)
        carry(policy, good)
        carry(policy, bad, DEAD, error_class="invalid")
        assert found(phone="13800000000") == [str(bad.pk), str(good.pk)]
        assert found(phone="13800000000", state="dead") == [str(bad.pk)]
        assert found(name="王", crm="hubspot", error_class="invalid") == [str(bad.pk)]
        assert found(id=str(good.pk), state="dead") == []
        assert found(biz="dealers") == [str(bad.pk), str(good.pk)]
        assert found(biz="dealers", uid="u-9") == []
        operation = str(Record.objects.get(key=str(bad.pk)).operation_id)
        assert found(phone="13800000000", operation=operation) == [str(bad.pk)]

    def test_records_of_every_source(self, biz: Biz, policy: Policy) -> None:
        lead = new_lead(biz)
        carry(policy, lead, DEAD, error_class="invalid")
        people = sync_support.policy(crm("tryton"), "people", biz=biz)
        record = carry(people, "A7", DEAD, error_class="retry")
        carry(people, "A8")
        dead = [f"record-{record.pk}", str(lead.pk)]
        assert found(state="dead") == found(state="dead", biz="dealers") == dead
        assert found(state="dead", crm="tryton") == dead[:1]
        assert found(error_class="invalid") == dead[1:]
        assert found(state="dead", biz=str(biz.pk + 1)) == []
        assert found(operation=str(record.operation_id)) == dead[:1]
        assert found(remote_id="r-A7", record_key="A7", state="confirmed") == []
        (hit,) = engine.find(MESSAGES, {"crm": "hubspot"}, "", 50).hits
        assert (hit.title, hit.state) == ("王小明 · 13800000000", "hubspot: dead")
        assert (hit.reason, hit.tone) == ("refused by the CRM", "bad")

    def test_records_that_are_looked_up_first_by_the_reason_why_they_are_dead(
        self, biz: Biz, policy: Policy
    ) -> None:
        lead = new_lead(biz)
        people = sync_support.policy(crm("tryton"), "people", biz=biz)
        of_people = carry(people, "A7", DEAD, error_class="unknown")
        of_lead = carry(policy, lead, DEAD, error_class="unknown")
        dismissed = RecoveryEntry.State.DISMISSED
        recovery_steps.entry(
            of_lead, policy, error_class="fault", state=dismissed
        )  # an earlier one
        entries = [
            recovery_steps.entry(record, of, error_class="conflict").pk
            for record, of in ((of_lead, policy), (of_people, people))
        ]
        for _ in ("dead", "dismissed"):
            assert found(error_class="conflict") == [str(lead.pk), f"record-{of_people.pk}"]
            assert found(error_class="conflict", name="王") == [str(lead.pk)]
            assert found(error_class="fault") == []
            hits = engine.find(MESSAGES, {"error_class": "conflict"}, "", 50).hits
            assert {hit.reason for hit in hits} == {"another record of the CRM"}
            actions.dismiss(entries, "ann")
        assert set(Record.objects.values_list("state", flat=True)) == {DISMISSED}

    def test_records_are_listed_without_any_other_filter(self, biz: Biz, policy: Policy) -> None:
        lead = new_lead(biz)
        carry(policy, lead)
        people = sync_support.policy(crm("tryton"), "people", biz=biz)
        record = carry(people, "A7", RETRY, error_class="retry", attempt=2, sent_version=0)
        assert found() == [str(lead.pk)]
        assert found(rows="records") == [f"record-{record.pk}", str(lead.pk)]
        for chosen in ("people/tryton", str(people.pk)):
            assert found(rows="records", policy=chosen) == [f"record-{record.pk}"]
        assert found(policy="people/tryton", crm="hubspot") == []
        (line,) = engine.find(MESSAGES, {"record_key": "A7"}, "", 50).hits
        assert (line.tone, line.reason) == ("warn", "the CRM failed; 2 failed")
        assert line.details == "from people · version 1 · id in the CRM r-A7"
        assert line.duration.startswith("changed at ")
        Record.objects.filter(pk=record.pk).update(next_at=sql.now(), version=5, sent_version=3)
        (line,) = engine.find(MESSAGES, {"record_key": "A7"}, "", 50).hits
        assert "version 5, the CRM holds 3" in line.details
        assert line.duration.startswith("next try at ")
        with pytest.raises(InvalidInput) as error:
            found(rows="records", phone="13800000000")
        assert error.value.field == "rows"

    def test_deleted_leads(self, biz: Biz) -> None:
        LandingPage.objects.create(biz=biz, appkey="ad-1", title="Test drive")
        kept, deleted = new_lead(biz, uid="u-1"), new_lead(biz)
        Lead.objects.filter(pk=deleted.pk).update(is_delete=True)
        assert found(deleted="true") == [str(deleted.pk)]
        assert found(deleted="false") == [str(kept.pk)]
        deleted_line, line = engine.find(MESSAGES, {}, "", 50).hits
        assert deleted_line.title.endswith("(deleted)")
        assert deleted_line.duration.startswith("changed at ")
        assert (line.details, line.duration) == ("Test drive (ad-1) · u-1", "")
        (option,) = MESSAGES.fields["appkey"].options("drive", None)  # type: ignore[misc]
        assert (option.value, option.label) == ("ad-1", "Test drive")

    def test_a_phone_number_in_other_spellings(self, biz: Biz) -> None:
        stored = ("008613800000000", "+8613800000000", "13800000000")
        newest_first = [str(new_lead(biz, phone=phone).pk) for phone in stored][::-1]
        new_lead(biz, phone="13800000001")
        for text in ("138 0000 0000", "+86 138-0000-0000", "１３８００００００００"):
            assert found(phone=text) == newest_first, text
            hits = engine.search(MESSAGES, text, 9).hits
            assert [hit.id for hit in hits] == newest_first, text

    def test_times(self, biz: Biz) -> None:
        lead = new_lead(biz)
        hour = timedelta(hours=1)
        before, after = (f"{sql.now() + shift:%Y-%m-%d %H:%M:%S+00:00}" for shift in (-hour, hour))
        assert found(since=before, until=after) == [str(lead.pk)]
        assert found(since=after) == found(until=before) == []

    @pytest.mark.parametrize(
        ("field", "value"),
        [("crm", "nowhere"), ("state", "lost"), ("phone", "abc"), ("operation", "x"),
         ("colour", "red"), ("id", "-1")],
    )  # fmt: skip
    def test_what_cannot_be_asked(self, field: str, value: str) -> None:
        with pytest.raises(InvalidInput) as error:
            engine.find(MESSAGES, {field: value}, "", 50)
        assert error.value.field == field

    def test_pages_go_on_by_key(self, biz: Biz, policy: Policy) -> None:
        leads = [new_lead(biz, name=f"name {n}") for n in range(7)]
        for lead in leads:
            carry(policy, lead, DEAD)
        wanted = [str(lead.pk) for lead in reversed(leads)]
        for filter in ({"name": "name"}, {"state": "dead"}, {"phone": "13800000000"}):
            seen, cursor = [], ""
            while True:
                page = engine.find(MESSAGES, filter, cursor, 3)
                seen += [hit.id for hit in page.hits]
                cursor = page.cursor
                if not cursor:
                    break
            assert seen == wanted, filter

    def test_a_search_that_finds_little_ends_with_a_notice(
        self, biz: Biz, policy: Policy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(engine, "BATCH", 2)
        monkeypatch.setattr(engine, "MAX_SCANNED", 4)
        monkeypatch.setattr("msgplatform.core.flows.messages.MAX_SORTED", 3)
        first = new_lead(biz)
        carry(policy, first, DEAD)
        for _ in range(7):
            carry(policy, new_lead(biz))
        filter = {"name": "王", "record_key": str(first.pk)}
        many = engine.find(MESSAGES, filter, "", 50)
        assert (many.hits, bool(many.cursor)) == ([], True)
        assert "4 messages were looked at" in many.notice
        rest = engine.find(MESSAGES, filter, many.cursor, 50)
        assert [hit.id for hit in rest.hits] == [str(first.pk)]

    def test_letters_that_mean_something_to_a_pattern(self, biz: Biz) -> None:
        new_lead(biz, name="100 cars")
        percent = new_lead(biz, name="100% electric")
        assert found(name="100%") == [str(percent.pk)]
        assert found(name="electric") == []


class TestPage:
    def entries(self, lead: Lead | str) -> list[tuple[str, str]]:
        page = message_page(str(lead.pk) if isinstance(lead, Lead) else lead)
        assert page
        return [(entry.title, entry.detail) for entry in page.timeline]

    def test_from_the_form_to_the_crm(self, biz: Biz, policy: Policy) -> None:
        LandingPage.objects.create(biz=biz, appkey="ad-1", title="Test drive")
        lead = new_lead(biz, extra={"city": "上海"})
        # An operation notes whole milliseconds: one that began with the lead would come before it.
        while int(time.time() * 1000) < math.ceil(ids.datetime_of(lead.pk).timestamp() * 1000):
            pass
        record = carry(policy, lead, sent_version=1)
        tried(record, "retry", message="HTTP 503")
        tried(record, attempt=2, remote_id="77")
        Record.objects.update(updated_at=sql.now())
        page = message_page(str(lead.pk))
        assert page
        assert page.title == "王小明 · 13800000000"
        assert str(page.facts["Landing page"]) == "Test drive (ad-1)"
        (card,) = page.recipients
        assert (str(card.name), card.state, card.tone) == ("hubspot", "confirmed", "good")
        assert card.facts["The CRM holds"] == "version 1"
        assert card.facts["Id in the CRM"] == f"r-{lead.pk}"
        assert [attempt.answer for attempt in card.attempts] == ["the CRM holds it", "not stored"]
        assert '"name": "name ' in card.attempts[0].sections[0].body
        assert '"city": "上海"' in page.body
        titles = [entry.title for entry in page.timeline]
        assert titles == [
            "Form received", "hubspot: read, to be sent", "hubspot: not stored",
            "hubspot: the CRM holds it", "hubspot: confirmed",
        ]  # fmt: skip
        details = [entry.detail for entry in page.timeline]
        assert '"name": "name ' in page.timeline[1].body
        assert f"operation {record.operation_id} of run 7" in details[1]
        assert "HTTP 503" in details[2]
        assert "id in the CRM 77" in details[3]

    def test_what_waits_says_until_when_and_for_what(self, biz: Biz, policy: Policy) -> None:
        lead = new_lead(biz)
        hive("tryton")
        later = sql.now() + timedelta(hours=1)
        record = carry(policy, lead, RETRY, next_at=later)
        tried(record, "retry", message="HTTP 503")
        (retry, _), unread = self.entries(lead)[-2:], self.entries(lead)[-1]
        assert retry[0] == "hubspot: failed, tried again"
        assert "next try at" in retry[1]
        assert "HTTP 503" in retry[1]
        assert unread[0] == "tryton: not read yet"
        policy.crm.paused_at, policy.crm.paused_because = sql.now(), "the password is wrong"
        policy.crm.save()
        assert "the CRM is paused: the password is wrong · HTTP 503" in self.entries(lead)[-2][1]
        # A CRM is paused by what it said of a record: that is said once.
        policy.crm.paused_because = "HTTP 503"
        policy.crm.save()
        assert self.entries(lead)[-2][1] == "the CRM is paused: HTTP 503"

    def test_dead_with_its_reason(self, biz: Biz, policy: Policy) -> None:
        lead = new_lead(biz)
        record = carry(policy, lead, DEAD)
        recovery_steps.entry(record, policy, reason="LastName is required")
        assert ("hubspot: dead", "LastName is required") in self.entries(lead)

    def test_what_was_sent_and_said_is_for_those_who_may_see_it(
        self, biz: Biz, policy: Policy, admin_client: Client, work_redis: object
    ) -> None:
        lead = new_lead(biz)
        record = carry(policy, lead, DEAD)
        fields = {"name": "王小明", "phone": "13812345678"}
        request = sync_support.requests([policy.key_prefix + str(lead.pk)], values=fields)
        Operation.objects.update(data=orders.dump(request))
        tried(record, "invalid", message="13912345678 belongs to li@example.com")
        recovery_steps.entry(record, policy, reason="13912345678 is taken")
        reader = User.objects.create_user("reader", is_staff=True)
        reader.user_permissions.set(Permission.objects.filter(codename="view_lead"))
        viewer = Client()
        viewer.force_login(reader)
        address = f"/console/crmsync/{lead.pk}"
        clear, masked = (
            unescape(client.get(address).content.decode()) for client in (admin_client, viewer)
        )
        said = ("13912345678 belongs to li@example.com", "13912345678 is taken")
        for text in (*said, "王小明", '"phone": "13812345678"'):
            assert text in clear
            assert text not in masked
        assert "139****5678 belongs to l****@example.com" in masked
        assert "139****5678 is taken" in masked
        assert '"phone": "138****5678"' in masked

    def test_a_lead_that_was_changed_or_deleted(self, biz: Biz) -> None:
        lead = new_lead(biz)
        for change, said in (({"name": "王大明"}, "Changed"), ({"is_delete": True}, "Deleted")):
            Lead.objects.filter(pk=lead.pk).update(**change)
            lead.refresh_from_db()
            assert self.entries(lead)[-1] == (said, f"version {lead.version}")

    def test_a_record_of_another_source(self) -> None:
        policy = sync_support.policy(crm(), "people", key_prefix="p-")
        record = carry(policy, "A7", QUEUED)
        page = message_page(f"record-{record.pk}")
        assert page
        assert page.title == "people · A7"
        assert '"name": "name p-A7"' in page.body
        assert page.timeline[-1].title == "sales: on its way"

    def test_no_more_tries_than_a_page_shows(
        self, biz: Biz, policy: Policy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(timeline, "SHOWN_TRIES", 3)
        lead = new_lead(biz)
        record = carry(policy, lead, RETRY)
        for number in range(5):
            tried(record, "retry", message=f"answer {number}")
        texts = " ".join(title + detail for title, detail in self.entries(lead))
        assert "There were more tries; the last 3 are shown." in texts
        assert [f"answer {n}" in texts for n in range(5)] == [False, False, True, True, True]

    def test_each_crm_says_why_and_is_sent_to_again(
        self, biz: Biz, policy: Policy, admin_client: Client, work_redis: object, settings: Settings
    ) -> None:
        lead = new_lead(biz)
        hive("tryton")
        sales = hive("sales")
        dead = carry(policy, lead, DEAD)
        recovery_steps.entry(dead, policy, reason="LastName is required")
        waits = carry(sales, lead, RETRY, next_at=sql.now() + timedelta(hours=1))
        page = message_page(str(lead.pk))
        assert page
        shown = {str(card.name): card for card in page.recipients}
        assert list(shown) == ["hubspot", "sales", "tryton"]  # what failed comes first
        assert "LastName is required" in shown["hubspot"].why
        assert shown["sales"].next_at == waits.next_at
        assert "a poller reads it" in shown["tryton"].why
        assert shown["tryton"].resend_effect == ""
        assert page.resend_effect.startswith("1 dead record")
        opened = presence.LiveCrm(breaker=State.OPEN, retry_in=30)
        presence.crms.report({sales.crm_id: opened})
        assert "breaker of its CRM is open" in self.card(lead, "sales").why
        settings.REDIS_URL = "unix:///nowhere/redis.sock"
        assert any("Redis is unavailable" in note for note in self.card(lead, "sales").notes)
        url = f"/console/crmsync/{lead.pk}/resend"
        assert admin_client.post(url, {"recipient": "7"}).status_code == 404
        assert admin_client.post(url).status_code == 302
        dead.refresh_from_db()
        assert (dead.state, dead.attempt) == (WAITING, 0)
        said = [title for title, _detail in self.entries(lead)]
        assert "hubspot: tried again by admin" in said
        page_again = admin_client.get(f"/console/crmsync/{lead.pk}").content.decode()
        assert "Sent again by admin" in page_again

    def card(self, lead: Lead, crm_name: str) -> Recipient:
        page = message_page(str(lead.pk))
        assert page
        return next(card for card in page.recipients if str(card.name) == crm_name)

    def test_a_lead_that_no_policy_carries(self, biz: Biz) -> None:
        page = message_page(str(new_lead(biz).pk))
        assert page
        assert str(page.no_recipient_reasons[0]) == "No policy carries it to a CRM."

    def test_an_unknown_id(self) -> None:
        assert message_page("1") is message_page("record-1") is message_page("x") is None


def rows_read() -> int:
    """Rows that this session has read from tables and indexes; SQLite does not count them."""
    if connection.vendor != "mysql":
        return 0
    with connection.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%%'")
        return sum(int(value) for _name, value in cursor.fetchall())


class TestCost:
    def test_as_many_queries_for_200_as_for_20(self, biz: Biz, policy: Policy) -> None:
        tryton = hive("tryton")
        costs: list[tuple[int, ...]] = []
        for count in (20, 180):
            for _ in range(count):
                lead = new_lead(biz)
                carry(policy, lead, DEAD, error_class="invalid")
                tried(carry(tryton, lead))
            filters: list[dict[str, str]] = [
                {}, {"phone": "13800000000"}, {"name": "王"}, {"state": "dead"}, {"crm": "tryton"},
                {"biz": "dealers", "state": "dead"}, {"name": "王", "error_class": "invalid"},
            ]  # fmt: skip
            costs.append(tuple(self.cost(filter) for filter in filters))
        assert costs[0] == costs[1]
        assert max(costs[0]) <= 12

    def cost(self, filter: dict[str, str]) -> int:
        with CaptureQueriesContext(connection) as queries:
            assert len(engine.find(MESSAGES, filter, "", 200).hits) >= 20
        return len(queries)

    @pytest.mark.parametrize(
        ("filter", "index"),
        [
            ({"error_class": "invalid"}, "sync_record_due"),
            ({"state": "dead", "policy": "hive/hubspot"}, "sync_record_due"),
            ({"phone": "13800000000"}, "lead_of_phone"),
            ({"uid": "u-1"}, "lead_of_uid"),
            ({"appkey": "ad-1"}, "lead_of_appkey"),
            ({"name": "王"}, "lead_of_name"),
            ({"remote_id": "r-1"}, "sync_record_of_remote"),
            ({"record_key": "1"}, "sync_record_of_key"),
            ({"state": "dead", "crm": "hubspot"}, "sync_record_due"),
        ],
    )
    def test_each_search_reads_an_index(
        self, filter: dict[str, str], index: str, biz: Biz, policy: Policy
    ) -> None:
        crms = [policy, hive("tryton")]
        for number in range(300):
            lead = new_lead(
                biz, name=f"name {number}", phone=f"138{number:08}", uid=f"u-{number}",
                appkey=f"ad-{number}",
            )  # fmt: skip
            carry(crms[number % 2], lead, DEAD if number < 5 else CONFIRMED)
        values = read_filter(MESSAGES.fields, filter)
        (source,) = MESSAGES.sources(values)
        with CaptureQueriesContext(connection) as queries:
            engine.Table(source, values).ids(MAX_ID, 500)
        statement = queries.captured_queries[0]["sql"]
        with connection.cursor() as cursor:
            (step,) = read_plan(cursor, statement.replace("%", "%%"))
        assert index in str(step.get("key") or step.get("detail")), step

    @pytest.mark.django_db(transaction=True)
    def test_the_api_reads_as_many_rows_of_a_larger_table(self, biz: Biz, policy: Policy) -> None:
        """Rows of leads and records that a page reads, by the server's own count, at two sizes."""
        fields = {"name": "李", "phone": "13800000000", "uid": "u-1", "appkey": "ad-x"}
        for _ in range(3):
            carry(policy, new_lead(biz, **fields), DEAD, error_class="invalid", remote_id="r-x")
        operation = Operation.objects.order_by("id").last()
        assert operation
        filters: list[dict[str, str]] = [
            {"state": "dead"}, {"state": "dead", "crm": "hubspot"}, {"error_class": "invalid"},
            {"remote_id": "r-x"}, {"state": "dead", "deleted": "false"}, {"phone": "13800000000"},
            {"uid": "u-1"}, {"appkey": "ad-x"}, {"name": "李"},
        ]  # fmt: skip
        costs = []
        for size in (300, 900):
            leads = [
                Lead(id=ids.new(0), biz=biz, appkey="ad-1", name="王", phone=f"139{n:08}", uid="-")
                for n in range(size)
            ]
            Lead.objects.bulk_create(leads)
            Record.objects.bulk_create(
                Record(
                    id=ids.new(0), policy_id=policy.pk, key=str(lead.pk), version=1,
                    operation_id=operation.pk, digest="", state=CONFIRMED, updated_at=sql.now(),
                )
                for lead in leads
            )  # fmt: skip
            if connection.vendor == "mysql":
                with connection.cursor() as cursor:
                    cursor.execute("ANALYZE TABLE `lead`, sync_record")
                    cursor.fetchall()
            costs.append([self.rows_of_page(biz, filter) for filter in filters])
        for filter, few, many in zip(filters, *costs, strict=True):
            assert many <= few + 5, (filter, few, many)

    def rows_of_page(self, biz: Biz, filter: dict[str, str]) -> int:
        values = {**read_filter(LEADS.fields, filter), "biz": biz.pk}
        LEADS.check(values)
        before = rows_read()
        found_ids, _following = engine.find_ids(LEADS, values, MAX_ID, 50)
        assert len(found_ids) == 3
        return rows_read() - before


def test_the_console_finds_and_shows_them(biz: Biz, policy: Policy, admin_client: Any) -> None:
    lead = new_lead(biz)
    carry(policy, lead)
    answer = admin_client.get("/console/search", {"q": "王小明"}, follow=True)
    assert str(lead.pk) in answer.content.decode()
    assert flows.get("crmsync").messages.page(str(lead.pk))  # type: ignore[union-attr]


def test_a_bulk_job_is_offered_where_its_times_are_those_of_the_list(
    policy: Policy, admin_client: Client
) -> None:
    address = f"/console/search/crmsync?crm={policy.crm.name}"
    for times, count in (("", 3), ("&since=2026-01-01", 0), ("&until=2026-01-01", 0)):
        assert len(admin_client.get(address + times).context["bulk_links"]) == count, times


def test_the_csv_file_has_each_record_of_a_lead(
    biz: Biz, policy: Policy, admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records of one lead have its id, also where they are on two pages."""
    monkeypatch.setattr("msgplatform.doors.console.views.message_list._CSV_PAGE", 2)
    lead, other = new_lead(biz), hive("salesforce")
    for _ in range(3):
        carry(other, new_lead(biz), DEAD)
    carry(policy, lead, DEAD)
    carry(other, lead, DEAD)
    carry(policy, new_lead(biz), DEAD)
    answer = admin_client.get("/console/search/crmsync.csv?rows=records")
    text = b"".join(answer.streaming_content).decode("utf-8-sig")  # type: ignore[attr-defined]
    assert len(text.splitlines()) == 1 + 6
