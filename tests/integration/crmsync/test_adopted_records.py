"""Records that people made in the CRM: filled in or left alone, and never deleted with a lead."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from crmsync import models
from crmsync.directory import Crms, Policies
from crmsync.handler import marks
from crmsync.intake import intake
from crmsync.models import LandingPage, Lead, Record, RecoveryEntry
from crmsync.orders import Request
from crmsync.poller.policy_poll import PolicyPoll
from msgplatform.core.data import sql
from msgplatform.models import Biz
from tests.integration.crmsync import sync_support as sync
from tests.support.http_sinks import Sink
from tests.support.hubspot_stub import HubSpotStub
from tests.support.json_stub import Answer, Asked, serving

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
CONFIRMED, DEAD = Record.State.CONFIRMED, Record.State.DEAD
HOLDER = "h" * 32
BOSS = {"firstname": "Our best customer", "email": "boss@corp.example"}


@pytest.fixture(autouse=True)
def _loopback(settings: Any) -> None:
    settings.OUTBOUND_ALLOW = ["127.0.0.0/8"]


class Company:
    """A form, the hive, a poller and a handler, and a HubSpot in which people made contact 77."""

    def __init__(self, server: Sink, hubspot: HubSpotStub, **policy: Any) -> None:
        self.hubspot = hubspot
        crm = sync.crm(
            "sales", "hubspot", settings={"base_url": server.url("")},
            credentials={"token": "hush-hush"}, retry_seconds=[0, 0],
        )  # fmt: skip
        self.policy = models.Policy.objects.create(
            source=models.Source.hive(), crm=crm, sweep_cron="", interval_seconds=1,
            mapping="firstname = name\nemail = extra.email\nphone = phone", **policy,
        )  # fmt: skip
        self.biz = Biz.objects.create(name="cars")
        self._policies, self._crms = Policies(), Crms()
        self._poll = PolicyPoll(self.policy.pk, HOLDER, self._policies, self._crms, lambda _: None)
        hubspot.contacts["77"] = dict(BOSS)

    def form(self, name: str, phone: str, email: str = BOSS["email"]) -> int:
        page = LandingPage(appkey="ad-1", biz=self.biz)
        fields = {"name": name, "phone": phone, "email": email}
        (verdict,) = intake.add_many([intake.make_lead(page, fields, "", None)])
        return int(verdict.id)

    def delete(self, lead: int) -> None:
        Lead.objects.filter(pk=lead).update(is_delete=True)

    def record(self, lead: int) -> Record:
        return Record.objects.get(key=str(lead))

    def sync_until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + sync.DEADLINE
        with sync.running() as handler:
            while not condition():
                assert time.monotonic() < deadline
                until = sql.now() + timedelta(seconds=60)
                models.Policy.objects.update(claimed_by=HOLDER, lease_until=until)
                self._policies.refresh(at_once=True)
                self._crms.refresh(at_once=True)
                sync.turn_after(handler, self._poll.turn())

    def sync(self, lead: int, deleted: bool = False) -> None:
        """Until the CRM has confirmed the newest version of this lead."""

        def has_come() -> bool:
            rows = Record.objects.filter(key=str(lead), deleted=deleted)
            version = Lead.objects.get(pk=lead).version
            return any(row.state == CONFIRMED and row.sent_version == version for row in rows)

        self.sync_until(has_come)


@pytest.fixture
def hubspot() -> HubSpotStub:
    return HubSpotStub("hush-hush")


@pytest.fixture
def hubspot_server(hubspot: HubSpotStub) -> Iterator[Sink]:
    with serving(hubspot) as server:
        yield server


class TestASpamLead:
    def test_fills_in_what_is_empty_and_leaves_the_customer_when_it_is_deleted(
        self, hubspot_server: Sink, hubspot: HubSpotStub
    ) -> None:
        company = Company(hubspot_server, hubspot)
        lead = company.form("spam spam", "13900000000")
        company.sync(lead)
        assert hubspot.contacts == {"77": {**BOSS, "phone": "13900000000"}}
        assert company.record(lead).is_adopted
        company.delete(lead)
        company.sync(lead, deleted=True)
        assert hubspot.contacts == {"77": {**BOSS, "phone": "13900000000", "hive_id": ""}}

    def test_overwrites_and_deletes_where_the_policy_says_so(
        self, hubspot_server: Sink, hubspot: HubSpotStub
    ) -> None:
        company = Company(hubspot_server, hubspot, on_conflict="update", delete_adopted=True)
        lead = company.form("boss himself", "13900000000")
        company.sync(lead)
        assert hubspot.contacts["77"]["firstname"] == "boss himself"
        company.delete(lead)
        company.sync(lead, deleted=True)
        assert hubspot.contacts == {}

    def test_changes_nothing_where_a_person_is_to_decide(
        self, hubspot_server: Sink, hubspot: HubSpotStub
    ) -> None:
        company = Company(hubspot_server, hubspot, on_conflict="dead")
        lead = company.form("spam spam", "13900000000")
        company.sync_until(lambda: Record.objects.filter(state=DEAD).exists())
        assert hubspot.contacts == {"77": BOSS}
        assert RecoveryEntry.objects.get().reason.endswith("another record: 77")
        company.delete(lead)
        company.sync(lead, deleted=True)
        assert hubspot.contacts == {"77": BOSS}

    def test_is_still_the_customers_record_after_a_handler_was_killed(
        self, hubspot_server: Sink, hubspot: HubSpotStub, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Killed after the record was filled in, and before that was marked."""
        company = Company(hubspot_server, hubspot)
        values = {"firstname": "spam", "phone": "1", "email": BOSS["email"]}
        queued = sync.queued(company.policy, [Request("a", 1, values)])
        killed = threading.Event()

        def end(*_args: Any) -> None:
            killed.set()
            raise RuntimeError("killed")

        with monkeypatch.context() as patch, sync.running() as handler:
            patch.setattr(marks, "apply", end)
            sync.turn_until(handler, killed.is_set)
        queued.order = sync.again(queued)
        sync.handled(queued)
        assert queued.record("a").is_adopted
        assert hubspot.contacts["77"] == {**BOSS, "phone": "1"}

    def test_is_still_the_customers_after_a_restore(
        self, hubspot_server: Sink, hubspot: HubSpotStub
    ) -> None:
        """The database is from before the lead: nothing is known of its record."""
        company = Company(hubspot_server, hubspot)
        lead = company.form("spam spam", "13900000000")
        company.sync(lead)
        Record.objects.all().delete()
        models.Policy.objects.update(requested="full", requested_by="li")
        company.sync(lead)
        assert hubspot.contacts["77"] == {**BOSS, "phone": "13900000000"}
        assert company.record(lead).is_adopted
        company.delete(lead)
        company.sync(lead, deleted=True)
        assert hubspot.contacts == {"77": {**BOSS, "phone": "13900000000", "hive_id": ""}}

    def test_that_people_restored_is_theirs(
        self, hubspot_server: Sink, hubspot: HubSpotStub
    ) -> None:
        company = Company(hubspot_server, hubspot)
        lead = company.form("Li", "1", "li@example.com")
        company.sync(lead)
        contact = hubspot.contacts["501"]
        company.delete(lead)
        company.sync(lead, deleted=True)
        hubspot.contacts["501"] = {**contact, "firstname": "Li Wei, our customer"}
        second = company.form("spam", "2", "li@example.com")
        company.sync(second)
        assert hubspot.contacts["501"]["firstname"] == "Li Wei, our customer"
        assert company.record(second).is_adopted


class TestWhatThePlatformMade:
    def test_two_leads_of_a_person_overwrite_and_delete_their_contact(
        self, hubspot_server: Sink, hubspot: HubSpotStub
    ) -> None:
        company = Company(hubspot_server, hubspot)
        first = company.form("Li", "1", "li@example.com")
        company.sync(first)
        second = company.form("Li Na", "2", "li@example.com")
        company.sync(second)
        assert hubspot.contacts["501"]["firstname"] == "Li Na"
        for lead in (first, second):
            company.delete(lead)
            company.sync(lead, deleted=True)
        assert set(hubspot.contacts) == {"77"}

    def test_a_contact_that_people_deleted_and_the_crm_made_anew(
        self, hubspot_server: Sink, hubspot: HubSpotStub
    ) -> None:
        company = Company(hubspot_server, hubspot)
        lead = company.form("Wang", "1")
        company.sync(lead)
        del hubspot.contacts["77"]
        Lead.objects.filter(pk=lead).update(name="Wang Fang")
        company.sync(lead)
        assert hubspot.contacts["501"]["firstname"] == "Wang Fang"
        assert not company.record(lead).is_adopted
        company.delete(lead)
        company.sync(lead, deleted=True)
        assert hubspot.contacts == {}


class TestAContactOfItsOwn:
    @pytest.mark.parametrize("email", [BOSS["email"], "wang@example.com"])
    def test_is_kept_and_deleted_when_another_contact_has_the_leads_new_address(
        self, hubspot_server: Sink, hubspot: HubSpotStub, email: str
    ) -> None:
        """A contact of people, or of another lead: nobody would delete the lead's own any more."""
        company = Company(hubspot_server, hubspot)
        company.sync(company.form("Wang", "2", "wang@example.com"))
        lead = company.form("Li", "1", "li@example.com")
        company.sync(lead)
        before = {remote_id: dict(contact) for remote_id, contact in hubspot.contacts.items()}
        Lead.objects.filter(pk=lead).update(extra={"email": email})
        company.sync_until(lambda: Record.objects.filter(state=DEAD).exists())
        record = company.record(lead)
        assert (record.remote_id, record.is_adopted) == ("502", False)
        assert hubspot.contacts == before
        assert "another record: " in RecoveryEntry.objects.get().reason
        company.delete(lead)
        company.sync(lead, deleted=True)
        del before["502"]
        assert hubspot.contacts == before

    def test_that_people_deleted_is_followed_by_the_one_with_the_leads_address(
        self, hubspot_server: Sink, hubspot: HubSpotStub
    ) -> None:
        company = Company(hubspot_server, hubspot)
        lead = company.form("Li", "1", "li@example.com")
        company.sync(lead)
        del hubspot.contacts["501"]
        Lead.objects.filter(pk=lead).update(extra={"email": BOSS["email"]})
        company.sync(lead)
        record = company.record(lead)
        assert (record.remote_id, record.is_adopted) == ("77", True)
        assert hubspot.contacts == {"77": {**BOSS, "phone": "1"}}

    def test_that_people_merged_into_a_customers_is_theirs_when_the_lead_is_deleted(
        self, hubspot_server: Sink, hubspot: HubSpotStub
    ) -> None:
        company = Company(hubspot_server, hubspot)
        lead = company.form("Li", "1", "li@example.com")
        company.sync(lead)
        hubspot.contacts["77"] = {**hubspot.contacts.pop("501"), **BOSS}
        hubspot.merged["501"] = "77"
        Lead.objects.filter(pk=lead).update(phone="2")
        company.sync(lead)
        record = company.record(lead)
        assert (record.remote_id, record.is_adopted) == ("77", True)
        assert hubspot.contacts["77"]["phone"] == "2"
        company.delete(lead)
        company.sync(lead, deleted=True)
        assert hubspot.contacts["77"]["hive_id"] == ""


class TestTwoLanes:
    def test_a_lead_whose_contact_another_lane_deletes_is_sent_again(
        self, hubspot_server: Sink, hubspot: HubSpotStub
    ) -> None:
        """The deletion of lead a is on its way when lead b of the same person finds a's contact."""
        company = Company(hubspot_server, hubspot)
        models.Crm.objects.update(concurrency=2)
        values = {"firstname": "Li", "email": "li@example.com"}
        first = sync.queued(company.policy, [Request("a", 1, values)])
        sync.handled(first)
        assert first.record("a").remote_id == "501"
        sync.deleted(first, "a")
        sync.again(first)
        second = sync.on_its_way(company.policy, [Request("b", 1, values)])
        answer = hubspot.__call__

        def slow_to_archive(request: Asked) -> Answer:
            if request.path.endswith("/archive"):
                sync.MainQueue("sales").put([second.order])
                deadline = time.monotonic() + 120
                while sync.aside(lambda: second.record("b").remote_id) != "501":
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
            return answer(request)

        async def behaviour(_sink: Sink, reader: Any, writer: Any) -> None:
            while True:  # two calls at a time, which `serving` does not answer
                request = Asked(await hubspot_server.read(reader))
                writer.write((await asyncio.to_thread(slow_to_archive, request)).raw())
                await writer.drain()

        hubspot_server.behaviour = behaviour
        with sync.running() as handler:
            sync.turn_until(handler, lambda: first.record("a").state == CONFIRMED)
            sync.turn_until(handler, lambda: second.record("b").claimed_by == "")
        assert "501" not in hubspot.contacts
        assert second.record("b").state == Record.State.WAITING
        second.order = sync.again(second)
        sync.handled(second)
        assert second.record("b").state == CONFIRMED
        assert [c for c in hubspot.contacts.values() if c.get("hive_id") == "b"]
