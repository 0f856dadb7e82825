"""SMS in the console: how it stands, how a message is found, its timeline, and sending it again."""

import json
from datetime import timedelta
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.db.models import QuerySet
from django.test import Client
from django.utils import timezone

from gateway import presence
from gateway.connections import sms_redis
from gateway.flow import FLOW
from gateway.forwarder.forwarder import Forwarder
from gateway.intake import accept
from gateway.lifecycle import keys, store
from gateway.messages import in_flight
from gateway.messages.page import repeat_of
from gateway.models import SgipMt, SmsAccount, SmsGateway
from gateway.monitor import failures
from gateway.presence import LinkState
from gateway.pump.pump import Pump
from msgplatform.core.errors import InvalidInput, OutcomeUnknown, Unavailable
from msgplatform.core.flows.actions import Step
from msgplatform.core.flows.bulk_pages import Counted
from msgplatform.core.flows.page import PageLink, Recipient, SearchResult
from msgplatform.jobs import control
from msgplatform.jobs.bulk import BulkRunner
from msgplatform.jobs.models import BulkBatch, BulkJob
from msgplatform.messages import engine
from msgplatform.models import AuditLog, Biz
from msgplatform.models.failures import MAX_ANSWER
from notify.intake import intake
from tests.integration.gateway.sms_messages import archived, settle
from tests.servers import Servers
from tests.support import sms_rows
from tests.support.cutting_proxy import CuttingProxy
from tests.support.sms_rows import Caller, report, respond, send, submit

shop = sms_rows.shop
pytestmark = pytest.mark.django_db(transaction=True)


class TestStatus:
    def test_each_stage_is_counted(self, shop: Caller) -> None:
        pk = SmsGateway.objects.get().pk
        presence.report("c", [LinkState(pk, "submit", "peer", 1.0)])
        message = send(shop.biz)
        status = FLOW.health.status()
        assert status.backlog == 1
        assert status.oldest_seconds is not None
        assert "pending for unicom" not in status.facts, "with one gateway that is the backlog"
        assert status.facts["links of unicom"] == 1

        (seqno,) = submit(pk)[message]
        status = FLOW.health.status()
        assert (status.backlog, status.oldest_seconds) == (0, None)
        assert status.facts["without a response"] == 1
        respond(seqno)
        assert FLOW.health.status().facts["awaiting their Reports"] == 1
        report(seqno)
        assert FLOW.health.status().backlog == 1
        Forwarder().turn()
        status = FLOW.health.status()
        assert (status.backlog, status.facts["not archived yet"]) == (
            1,
            1,
        )
        Pump().turn()
        assert FLOW.health.status().backlog == 0

    def test_a_gateway_without_a_link(self, shop: Caller) -> None:
        assert FLOW.health.status().facts["links of unicom"] == "down"
        presence.report(
            "c", [LinkState(SmsGateway.objects.get().pk, "submit", "p", 1.0, problem="refused")]
        )
        assert FLOW.health.status().facts["links of unicom"] == "down"

    def test_redis_away(self, shop: Caller, settings: Any) -> None:
        settings.SMS_REDIS_URL = "unix:///nowhere/sms.sock"
        assert FLOW.health.status().problem
        assert FLOW.messages.search_warning(None)
        assert engine.search(FLOW.messages, "13800000000", 10).hits == []
        with pytest.raises(Unavailable):
            FLOW.messages.page("7")

    @pytest.mark.parametrize("is_on", [True, False])
    def test_metrics(self, shop: Caller, settings: Any, is_on: bool) -> None:
        send(shop.biz)
        settings.OUTBOUND = is_on
        found = {(s.name, tuple(sorted(s.labels.values()))): s.value for s in FLOW.health.metrics()}
        assert found["sms_gateway_enabled", ("unicom",)] == is_on
        assert found["sms_pending", ("unicom",)] == 1
        assert found["sms_links", ("submit", "unicom")] == 0
        assert found["sms_accepted", ()] == 1
        assert found["sms_messages", ("unarchived",)] == 0


class TestSearch:
    def test_a_live_message_by_id_and_key(self, shop: Caller) -> None:
        message = send(shop.biz, idempotency_key="order-7")
        for query in (message, "order-7"):
            (hit,) = engine.search(FLOW.messages, query, 10).hits
            assert (hit.id, hit.state, hit.biz) == (message, "pending", "shop")

    def test_an_archived_one_by_all(self, shop: Caller) -> None:
        message = archived(shop, idempotency_key="order-7", reference="ref-7")
        other = archived(shop, to="13900000000")
        for query in (
            message, "13800000000", "8613800000000", "138 0000 0000", "+86 138-0000-0000",
            "１３８００００００００", "order-7", "ref-7",
        ):  # fmt: skip
            (hit,) = engine.search(FLOW.messages, query, 10).hits
            assert (hit.id, hit.state) == (message, "delivered (archived)")
        assert [hit.id for hit in engine.search(FLOW.messages, "13900000000", 10).hits] == [other]
        # Long after Redis has forgotten the key.
        sms_redis().flushall()
        assert [hit.id for hit in engine.search(FLOW.messages, "order-7", 10).hits] == [message]

    def test_those_in_flight_by_what_they_have(self, shop: Caller) -> None:
        stock = Caller("stock")
        sms_rows.account(stock.biz, "stock", sp_number="10657")
        message = send(shop.biz, to="13800000077", reference="order-77")
        other = send(stock.biz, account="stock", to="13900000000")
        for given, wanted in (
            ({"reference": "order-77"}, message), ({"biz": "shop"}, message),
            ({"account": "stock"}, other), ({"biz": "stock", "since": "2026-01-01"}, other),
        ):  # fmt: skip
            found = engine.find(FLOW.messages, given, "", 10)
            assert ([hit.id for hit in found.hits], found.notice) == ([wanted], ""), given
        for nobody in ({"biz": "shop", "account": "stock"}, {"account": "stock", "number": "139"}):
            assert engine.find(FLOW.messages, nobody, "", 10).hits == []
        (hit,) = engine.search(FLOW.messages, "order-77", 10).hits
        assert hit.id == message
        assert [hit.id for hit in engine.find(FLOW.messages, {}, "", 10).hits] == [other, message]
        assert engine.find(FLOW.messages, {"state": "failed"}, "", 10).hits == []
        # Refused, and not archived yet: the pump may be down.
        (seqno,) = submit(SmsGateway.objects.get().pk)[message]
        respond(seqno, 5)
        (hit,) = engine.find(FLOW.messages, {"state": "failed", "biz": "shop"}, "", 10).hits
        assert hit.id == message

    def test_the_newest_of_many_in_flight(self, shop: Caller) -> None:
        sent = [send(shop.biz, to=f"138000000{n:02}") for n in range(12)]
        found = engine.find(FLOW.messages, {"biz": "shop"}, "", 5)
        assert [hit.id for hit in found.hits] == sorted(sent, key=int, reverse=True)[:5]
        assert "12 messages in flight match, of which the newest 5 are shown" in found.notice
        assert "not all" not in found.notice, "the walk came to its end"

    def test_one_in_flight_that_the_walk_meets_twice(
        self, shop: Caller, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As SCAN may, while Redis resizes its table."""
        message, scan = send(shop.biz), store.scan
        monkeypatch.setattr(store, "scan", lambda *args: (0, scan(*args)[1] * 2))
        found = engine.find(FLOW.messages, {"biz": "shop"}, "", 1)
        assert ([hit.id for hit in found.hits], found.notice) == ([message], "")
        assert len(engine.search_text(FLOW.messages, "你好", timezone.now(), "", 1.0).hits) == 1

    def test_one_in_flight_by_its_number(self, shop: Caller) -> None:
        message = send(shop.biz, to="13800000077", reference="order-77")
        send(shop.biz, to="13900000000")
        for query in ("13800000077", "8613800000077"):
            (hit,) = engine.search(FLOW.messages, query, 10).hits
            assert (hit.id, hit.state) == (message, "pending")
            assert engine.find(FLOW.messages, {"number": query}, "", 10) == SearchResult([hit])
        assert engine.find(FLOW.messages, {"number": "13800000077", "biz": "0"}, "", 10).hits == []

    def test_a_foreign_one_by_the_digits_of_its_events(self, shop: Caller) -> None:
        """A Chinese mobile number has the same digits: the lists have both."""
        digits, texts = "13125551234", list[str]()
        for make in (archived, lambda shop, to: send(shop.biz, to=to)):
            texts = [make(shop, to=digits), make(shop, to=f"+{digits}"), *texts]
            for query, wanted in (
                (digits, set(texts)), (f"+{digits}", set(texts[1::2])),
                (f"86{digits}", set(texts[::2])),
            ):  # fmt: skip
                found = engine.find(FLOW.messages, {"number": query}, "", 10)
                assert {hit.id for hit in found.hits} == wanted, query
                found = engine.search(FLOW.messages, query, 10)
                assert {hit.id for hit in found.hits} == wanted, query
        live = engine.search_text(FLOW.messages, digits, timezone.now(), "", 10.0)
        assert {hit.id for hit in live.hits} == set(texts[:2])
        filter = {"number": digits, "biz": "shop", "state": "delivered"}
        found = engine.find(FLOW.messages, filter, "", 10)
        assert [hit.id for hit in found.hits] == sorted(texts[2:], key=int, reverse=True)

    def test_texts_in_redis_and_the_archive(
        self, shop: Caller, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(in_flight, "_STEP", 20)
        old = archived(shop, text="parcel RB1 is here", to="13800000001")
        sent = send(shop.biz, text="parcel RB1 comes", to="13800000002")
        for n in range(40):
            send(shop.biz, to=f"139000000{n:02d}")
        found: dict[str, str] = {}
        cursor, looked = "", list[str]()
        for _ in range(100):
            piece = engine.search_text(
                FLOW.messages, "RB1", timezone.now() - timedelta(days=1), cursor, 0.0
            )
            found |= {hit.id: hit.state for hit in piece.hits}
            cursor, looked = piece.cursor, [*looked, piece.range_text]
            if not cursor:
                break
        assert found == {sent: "pending", old: "delivered (archived)"}
        assert len(looked) > 2
        assert looked[-2].startswith("41 messages in flight were looked at")
        late = engine.search_text(
            FLOW.messages, "RB1", timezone.now() + timedelta(days=1), str(2**63 - 1), 0.0
        )
        assert late.hits == []

    def test_what_a_walk_left_out_is_said(
        self, shop: Caller, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(in_flight, "_STEP", 1)
        monkeypatch.setattr(in_flight, "WALK_SECONDS", 0.0)
        for n in range(30):
            send(shop.biz, to=f"139000000{n:02d}")
        assert "not all" in engine.find(FLOW.messages, {"number": "13999999999"}, "", 10).notice

    def test_texts_while_redis_is_away(self, shop: Caller, settings: Any) -> None:
        old = archived(shop, text="parcel RB1 is here")
        settings.SMS_REDIS_URL = "unix:///nowhere/sms.sock"
        since = timezone.now() - timedelta(days=1)
        found = engine.search_text(FLOW.messages, "RB1", since, "", 1.0)
        assert [hit.id for hit in found.hits] == [old]
        assert "does not answer" in found.range_text
        assert found.cursor == ""
        # Said to the end, also when the archive takes several pieces.
        assert (
            "does not answer"
            in engine.search_text(FLOW.messages, "RB1", since, "without-live:7", 1.0).range_text
        )

    def test_the_whole_filter_holds(self, shop: Caller) -> None:
        message = archived(shop, error=25, idempotency_key="k", reference="r")
        matching = {
            "id": message, "number": "13800000000", "key": "k", "reference": "r", "biz": "shop",
            "account": "marketing", "state": "failed", "since": "2025-01-02", "until": "2090-01-01",
        }  # fmt: skip
        assert [hit.id for hit in engine.find(FLOW.messages, matching, "", 10).hits] == [message]
        for field, wrong in (
            ("id", "7"), ("number", "13900000000"), ("key", "x"), ("reference", "x"),
            ("biz", "0"), ("state", "delivered"), ("since", "2089-01-01"), ("until", "2025-01-03"),
        ):  # fmt: skip
            assert engine.find(FLOW.messages, {**matching, field: wrong}, "", 10).hits == [], field

    def test_the_whole_filter_holds_for_a_live_one(self, shop: Caller) -> None:
        message = send(shop.biz, idempotency_key="k", reference="r")
        assert [
            hit.id
            for hit in engine.find(FLOW.messages, {"key": "k", "reference": "r"}, "", 10).hits
        ] == [message]
        for wrong in ({"reference": "x"}, {"number": "13900000000"}, {"biz": "0"},
                      {"until": "2025-01-02"}, {"state": "failed"}):  # fmt: skip
            assert engine.find(FLOW.messages, {"key": "k", **wrong}, "", 10).hits == []

    def test_page_by_page(self, shop: Caller) -> None:
        messages = [archived(shop) for _ in range(5)]
        seen: list[str] = []
        cursor, pages = "", 0
        while pages == 0 or cursor:
            found = engine.find(FLOW.messages, {"biz": "shop"}, cursor, 2)
            seen += [hit.id for hit in found.hits]
            cursor, pages = found.cursor, pages + 1
        assert (seen, pages) == (messages[::-1], 3)

    def test_a_page_is_bounded_and_the_next_goes_on(
        self, shop: Caller, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        oldest = archived(shop, reference="r")
        for _ in range(5):
            archived(shop)
        sms_redis().flushall()
        monkeypatch.setattr(engine, "BATCH", 2)
        monkeypatch.setattr(engine, "MAX_SCANNED", 4)
        first = engine.find(FLOW.messages, {"reference": "r"}, "", 10)
        assert (list(first.hits), bool(first.cursor)) == ([], True)
        assert "4 messages" in first.notice
        rest = engine.find(FLOW.messages, {"reference": "r"}, first.cursor, 10)
        assert [hit.id for hit in rest.hits] == [oldest]
        assert (rest.cursor, rest.notice) == ("", "")

    def test_the_box_says_how_far_back_it_looked(
        self, shop: Caller, admin_client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The archive has no index of keys and references."""
        oldest = archived(shop, reference="r")
        for _ in range(5):
            archived(shop)
        sms_redis().flushall()
        assert engine.search(FLOW.messages, "nothing", 10) == SearchResult([])
        monkeypatch.setattr(engine, "BATCH", 2)
        monkeypatch.setattr(engine, "MAX_SCANNED", 4)
        found = engine.search(FLOW.messages, "r", 10)
        assert (list(found.hits), found.notice.count("4 messages were looked at")) == ([], 1)
        page = admin_client.get("/console/search?q=r")
        (notice,) = page.context["notices"]
        assert notice.startswith("4 messages were looked at, back to")
        assert '<a href="/console/search/sms">' in notice
        assert str(notice) in page.content.decode()
        found = engine.search(FLOW.messages, oldest, 10)
        assert ([hit.id for hit in found.hits], found.notice) == ([oldest], "")


class TestPage:
    def titles(self, message: str) -> list[tuple[str, str]]:
        page = FLOW.messages.page(message)
        assert page is not None
        return [(entry.title, entry.state) for entry in page.timeline]

    def test_a_message_with_all_that_happened(self, shop: Caller) -> None:
        message = send(shop.biz, reference="ref-7", idempotency_key="k")
        assert self.titles(message) == [("Accepted", "accepted")]
        (seqno,) = submit(SmsGateway.objects.get().pk)[message]
        respond(seqno)
        report(seqno, state=2, error=25)
        Forwarder().turn()
        live = self.titles(message)
        assert live == [
            ("Accepted", "accepted"), ("Submit", "attempt"), ("Response", "responded"),
            ("Report", "failed"), ("failed", "failed"),
            ("Published as sms.report: failed", "published"),
        ]  # fmt: skip
        Pump().turn()
        assert self.titles(message) == [*live, ("Archived", "done")]
        page = FLOW.messages.page(message)
        assert page is not None
        assert page.body == "你好"
        assert f"{sms_rows.NODE}:{sms_rows.TS}:{seqno}" in page.timeline[1].detail
        assert page.timeline[3].detail.startswith("25 ")
        assert {"shop", "marketing", "unicom", "ref-7", "k"} <= set(map(str, page.facts.values()))

    def test_events_of_other_systems_are_not_its_own(self, shop: Caller) -> None:
        message = send(shop.biz)
        other, key = Biz.objects.create(name="other"), f"sms.report:{message}:failed"
        intake.publish(intake.Event(other.pk, "a.b", b"{}", idempotency_key=key))
        assert self.titles(message) == [("Accepted", "accepted")]

    def test_it_has_all_that_the_operator_got(self, shop: Caller) -> None:
        SmsAccount.objects.update(charge_number="8613900000000", fee_type=2, fee_value="10")
        accept.intake().directory.refresh(at_once=True)
        until = timezone.now() + timedelta(hours=2)
        message = send(shop.biz, expire_at=until.timestamp(), priority=3)
        live = FLOW.messages.page(message)
        (seqno,) = submit(SmsGateway.objects.get().pk)[message]
        respond(seqno, result=5)
        settle()
        page = FLOW.messages.page(message)
        assert page is not None
        assert live is not None
        assert live.fact_cards == page.fact_cards
        (card,) = page.fact_cards.values()
        expected = {
            "Corp id": "99999", "Charge number": "8613900000000", "Fee type": "2: per message",
            "Fee value": "10", "MT flag": "2: not caused by an MO", "Coding": "15: GBK",
            "Priority": "3",
        }  # fmt: skip
        assert {name: str(card[name]) for name in expected} == expected
        assert page.facts["Expires"] == f"{timezone.localtime(until):%Y-%m-%d %H:%M:%S}"
        number = page.facts["All to this number"]
        assert isinstance(number, PageLink)
        assert number.url == "/console/search/sms?number=8613800000000"
        assert number.permission == "msgplatform.view_personal"

    def test_a_long_one_names_its_parts(self, shop: Caller) -> None:
        message = send(shop.biz)
        for seqno in submit(SmsGateway.objects.get().pk, parts=2)[message]:
            respond(seqno)
            report(seqno)
        assert ("Submit 2/2", "attempt") in self.titles(message)
        settle()
        assert ("Report 2/2", "delivered") in self.titles(message)

    def card(self, message: str) -> Recipient:
        page = FLOW.messages.page(message)
        assert page is not None
        (only,) = page.recipients
        return only

    def test_the_recipient_says_why(self, shop: Caller, settings: Any) -> None:
        message = send(shop.biz)
        assert "No sender is connected to its gateway unicom" in self.card(message).why
        gateway = SmsGateway.objects.get().pk
        presence.report("a", [LinkState(gateway, "submit", "smg", 0.0)])
        assert "waits for its turn" in self.card(message).why
        (seqno,) = submit(gateway)[message]
        assert "has not answered yet" in self.card(message).why
        respond(seqno)
        assert "Report has not come yet" in self.card(message).why
        report(seqno, state=2, error=25)
        card = self.card(message)
        assert (card.tone, card.why[:3], card.resend_effect) == ("bad", "25 ", "")
        assert [attempt.title for attempt in card.attempts] == ["Report", "Submit"]
        settle()
        assert "new message" in self.card(message).resend_effect
        settings.SMS_REDIS_URL = "unix:///nowhere/sms.sock"
        page = FLOW.messages.page(message)
        assert page is not None
        assert "whether it was sent again is not known" in page.notices[0]

    def test_one_that_is_scheduled(self, shop: Caller) -> None:
        at = timezone.now() + timedelta(hours=1)
        card = self.card(send(shop.biz, schedule_at=at.timestamp()))
        assert "not to be sent before its time" in card.why
        assert card.next_at is not None
        assert abs(card.next_at - at) < timedelta(seconds=1)


class TestSendAgain:
    def test_once_and_the_new_one_is_shown(self, shop: Caller, admin_client: Client) -> None:
        original = archived(shop, result=5)
        url = f"/console/sms/{original}/resend"
        assert "Yes, send it again" in admin_client.get(f"/console/sms/{original}").content.decode()
        answer = admin_client.post(url, follow=True)
        new = repeat_of(shop.biz.pk, int(original))
        assert answer.redirect_chain[-1][0] == f"/console/sms/{new}"
        assert "This is another try of" in answer.content.decode()
        shown = admin_client.get(f"/console/sms/{original}").content.decode()
        assert "Sent again by admin" in shown
        assert "Yes, send it again" not in shown
        # A second click, in a page that was open: nothing is sent twice.
        admin_client.post(url)
        assert repeat_of(shop.biz.pk, int(original)) == new
        assert sms_redis().llen(keys.pending(SmsGateway.objects.get().pk)) == 1

    def test_what_is_left_alone(self, shop: Caller, admin_client: Client, settings: Any) -> None:
        delivered, failed = archived(shop), archived(shop, result=5)
        for message, says in ((delivered, "1 was left alone"), (send(shop.biz), "")):
            answer = admin_client.post(f"/console/sms/{message}/resend", follow=True)
            assert answer.status_code == (200 if says else 404)
            assert says in answer.content.decode()
        settings.SMS_REDIS_URL = "unix:///nowhere/sms.sock"
        answer = admin_client.post(f"/console/sms/{failed}/resend", follow=True)
        assert "It was not sent again" in answer.content.decode()


def configure(accounts: QuerySet[SmsAccount], **fields: Any) -> None:
    """Change them, and let intake know at once."""
    accounts.update(**fields)
    accept.intake().directory.refresh(at_once=True)


class TestResend:
    def job(self, limit: int = 2, **given: str) -> int:
        """All steps of a job; how many it sent."""
        filter = {"since": str(timezone.localtime().year - 1) + "-01-01", **given}
        done, step = 0, Step("", 0)
        while True:
            step = FLOW.action("resend").step(filter, step.cursor, limit)
            done += step.done
            if not step.cursor:
                return done

    def test_failed_ones_are_new_messages(self, shop: Caller) -> None:
        SmsAccount.objects.update(extension_digits=2)
        failed = [
            archived(shop, error=25, to=f"1380000000{n}", extension="07", reference=f"r{n}",
                     priority=3, text=f"text {n}")
            for n in range(5)
        ]  # fmt: skip
        archived(shop)
        given = {"since": "2026-01-01"}
        assert FLOW.action("resend").count(given) == Counted(5)
        assert self.job() == 5
        claimed = store.claim(SmsGateway.objects.get().pk, "me", 100, 30)
        made = {item.mt.reference: item.mt for item in claimed}
        assert len(made) == len(claimed) == 5
        for n, original in enumerate(failed):
            mt = made[f"r{n}"]
            assert mt.id != original
            assert (mt.user_number, mt.text) == (f"861380000000{n}", f"text {n}")
            assert (mt.sp_number, mt.priority) == ("1065507", 3)
            assert mt.key == failures.resend_key(original)

    def test_an_extension_that_no_longer_fits_is_left_out(self, shop: Caller) -> None:
        SmsAccount.objects.update(extension_digits=2)
        archived(shop, error=25, extension="07")
        SmsAccount.objects.update(extension_digits=1)
        assert self.job() == 1
        (claimed,) = store.claim(SmsGateway.objects.get().pk, "me", 100, 30)
        assert claimed.mt.sp_number == "10655"

    def test_a_foreign_number_of_eleven_digits_stays_one(self, shop: Caller) -> None:
        original = archived(shop, result=5, to="+1 312 555 1234")
        for digits, count in (("13125551234", 1), ("8613125551234", 0)):
            given = {"since": "2026-01-01", "number": digits}
            assert FLOW.action("resend").count(given) == Counted(count), digits
        assert self.job() == 1
        (claimed,) = store.claim(SmsGateway.objects.get().pk, "me", 100, 30)
        assert claimed.mt.user_number == "13125551234"
        page = FLOW.messages.page(original)
        assert page is not None
        assert page.call is not None
        assert json.loads(page.call.body)["to"] == "+13125551234"
        number = page.facts["All to this number"]
        assert isinstance(number, PageLink)
        assert number.url.endswith("?number=%2B13125551234")
        found = engine.find(FLOW.messages, {"number": "+13125551234"}, "", 10)
        assert {hit.id for hit in found.hits} == {original, claimed.mt.id}

    def test_nothing_is_sent_twice(self, shop: Caller, sms_redis: Any) -> None:
        original = archived(shop, result=5)
        assert [self.job(), self.job()] == [1, 1]
        assert sms_redis.llen(keys.pending(SmsGateway.objects.get().pk)) == 1
        # The key outlives the time in which a message may be sent again.
        name = keys.idempotency(shop.biz.pk, failures.resend_key(original))
        assert sms_redis.ttl(name) > failures.MAX_RESEND_DAYS * 86_400

    def test_the_key_of_one_whose_answer_was_lost_is_kept_as_long(
        self, shop: Caller, sms_redis: Any, servers: Servers, settings: Any, tmp_path: Path
    ) -> None:
        """A person who asks again days later sends nothing twice."""
        original = archived(shop, result=5)
        path = tmp_path / "p.sock"
        with CuttingProxy(path, servers.sms.socket, b"EVALSHA", arrives=True) as proxy:
            settings.SMS_REDIS_URL = f"unix://{proxy.path}"
            with pytest.raises(OutcomeUnknown):
                self.job()
        name = keys.idempotency(shop.biz.pk, failures.resend_key(original))
        assert sms_redis.ttl(name) > failures.MAX_RESEND_DAYS * 86_400

    def test_the_preview_and_the_outcome(self, shop: Caller) -> None:
        originals = [archived(shop, error=25, to=f"1380000000{n}") for n in range(4)]
        archived(shop, to="13800000009")
        given = {"since": "2026-01-01"}
        preview = FLOW.action("resend").preview(given)
        assert preview.counted == Counted(4)
        assert [(group.title, group.count) for group in preview.groups] == [
            ("marketing · failed", 4)
        ]
        assert {hit.id for hit in preview.sample} == set(originals)
        noted: list[str] = []

        def note(ids: Any) -> None:
            noted.extend(ids)

        for _ in range(2):  # the second as after a kill
            step = FLOW.action("resend").step(given, preview.cursor, 10, note)
        assert (step.done, len(noted), len(set(noted))) == (4, 8, 4)
        made = list(dict.fromkeys(noted))
        assert FLOW.action("resend").outcome(made) == dict.fromkeys(made, "waiting")
        submitted = submit(SmsGateway.objects.get().pk)
        for pk, state, error in ((made[0], 0, 0), (made[1], 2, 7)):
            respond(submitted[pk][0])
            report(submitted[pk][0], store.read([pk])[0].mt.user_number, state=state, error=error)
        expected = dict(zip(made, ("arrived", "failed", "waiting", "waiting"), strict=True))
        assert FLOW.action("resend").outcome(made) == expected
        settle()
        assert SgipMt.objects.filter(pk__in=[int(pk) for pk in made]).count() == 2
        assert FLOW.action("resend").outcome([*made, "77"]) == expected, "nobody knows of this one"
        assert [hit.id for hit in FLOW.action("resend").lines([*made, "77"])] == made

    def test_a_job_waits_for_the_account_s_next_day(self, shop: Caller) -> None:
        """Nobody gets it twice, and each counts once: also who was behind the one that was refused,
        under an account that has no limit."""
        stock = Caller("stock")
        sms_rows.account(stock.biz, "stock", sp_number="10657")
        off = Caller("off")
        sms_rows.account(off.biz, "off", sp_number="10658")
        archived(off, result=5, account="off", to="13800000009")
        originals = [archived(shop, result=5, to=f"1380000000{n}") for n in range(4)]
        behind = archived(stock, result=5, account="stock", to="13900000000")
        configure(SmsAccount.objects.filter(name="marketing"), daily_limit=3)
        configure(SmsAccount.objects.filter(name="off"), enabled=False)
        job = BulkJob.objects.create(
            flow="sms", action="resend", filter={"since": "2026-01-01"}, created_by="x"
        )
        while BulkRunner().turn():
            pass
        job.refresh_from_db()
        assert (job.state, job.done, job.waits) == ("paused", 3, True)
        assert repeat_of(stock.biz.pk, int(behind))
        left_because, waits_because = job.error.splitlines()
        assert "account" in left_because
        assert "limit of 3 messages a day" in waits_because
        configure(SmsAccount.objects.all(), daily_limit=0)
        control.change(job.pk, BulkJob.State.PENDING, "li")
        while BulkRunner().turn():
            pass
        job.refresh_from_db()
        assert (job.state, job.done, job.error, job.waits) == ("done", 5, left_because, False)
        noted = " ".join(BulkBatch.objects.values_list("ids", flat=True)).split()
        made = {item.mt.key: item.mt.id for pk in SmsGateway.objects.values_list("pk", flat=True)
                for item in store.claim(pk, "me", 100, 30)}  # fmt: skip
        assert made.keys() == {failures.resend_key(pk) for pk in (*originals, behind)}
        assert sorted(noted) == sorted(made.values())

    def test_who_is_refused_is_told_of(self, shop: Caller, admin_client: Client) -> None:
        first, second = (archived(shop, result=5, to=f"1380000000{n}") for n in range(2))
        self.job(ids=first)
        configure(SmsAccount.objects.all(), enabled=False)
        step = FLOW.action("resend").step({"ids": second}, "", 10)
        step = FLOW.action("resend").step({"ids": second}, step.cursor, 10)
        assert (step.cursor, step.done) == ("", 0)
        assert "account" in step.left_because
        answer = admin_client.post(f"/console/sms/{second}/resend", follow=True)
        assert f"It was not sent again: {step.left_because}" in unescape(answer.content.decode())
        ticked = {"id": [first, second]}
        answer = admin_client.post("/console/search/sms/resend", ticked, follow=True)
        assert step.left_because in unescape(answer.content.decode())
        assert AuditLog.objects.get(action="message_resent").target == f"sms {first}"
        assert "Sent again by" not in admin_client.get(f"/console/sms/{second}").content.decode()

    @pytest.mark.parametrize("why", ["", "no route " + "x" * 80])
    def test_a_group_s_filter_finds_its_messages(self, shop: Caller, why: str) -> None:
        message = archived(shop, result=5)
        SgipMt.objects.filter(pk=int(message)).update(error=why, error_code=0, result=0)
        row = SgipMt.objects.get(pk=int(message))
        given = {"since": "2026-01-01", "answer": failures.answer_of(row)}
        assert len(given["answer"]) <= MAX_ANSWER
        assert FLOW.action("resend").count(given).count == 1
        assert self.job(answer=given["answer"]) == 1
        assert FLOW.action("resend").count({**given, "answer": "result ²"}).count == 0

    def test_both_pages_name_the_other(self, shop: Caller) -> None:
        original = archived(shop, result=5)
        self.job()
        again = repeat_of(shop.biz.pk, int(original))
        assert again
        one, other = FLOW.messages.page(original), FLOW.messages.page(again)
        assert one is not None
        assert other is not None
        assert any(again in entry.title for entry in one.timeline)
        assert any(original in entry.title for entry in other.timeline)

    def test_the_filter(self, shop: Caller) -> None:
        stock = Caller("stock")
        sms_rows.account(stock.biz, "stock", sp_number="10657")
        mine = archived(shop, result=5)
        archived(stock, result=5, account="stock", to="13900000000")
        assert self.job(biz="0") == 0
        assert self.job(state="unknown") == 0
        assert self.job(biz="shop") == 1
        assert repeat_of(shop.biz.pk, int(mine))
        assert self.job(number="13900000000", account="stock") == 1
        assert self.job(ids=mine) == 1

    def test_a_job_leaves_alone_what_fails_meanwhile(self, shop: Caller) -> None:
        given = {"since": "2026-01-01"}
        begun = FLOW.action("resend").step(given, "", 10)
        archived(shop, result=5)
        assert FLOW.action("resend").step(given, begun.cursor, 10) == Step("", 0)

    @pytest.mark.parametrize(
        ("given", "field"),
        [({}, "since"), ({"since": "2026-01-01", "state": "delivered"}, "state"),
         ({"since": "soon"}, "since"), ({"since": "2026-01-01", "account": "x"}, "account")],
    )  # fmt: skip
    def test_a_wrong_filter_is_named(self, given: dict[str, str], field: str) -> None:
        for call in (
            lambda: FLOW.action("resend").count(given),
            lambda: FLOW.action("resend").step(given, "", 10),
        ):
            with pytest.raises(InvalidInput) as caught:
                call()
            assert caught.value.field == field
