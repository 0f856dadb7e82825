"""Intake: what is a message, which gateway it takes, how many a day, and what a repeat is."""

import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
from django.utils import timezone
from msgspec.structs import replace

from gateway import directory, presence
from gateway.intake import accept
from gateway.intake.accept import Intake
from gateway.intake.request import Request
from gateway.lifecycle import keys, store
from gateway.models import SmsAccount, SmsGateway
from msgplatform.core.data import ids
from msgplatform.core.errors import Unavailable
from msgplatform.core.intake.group_commit import GroupCommit
from msgplatform.core.intake.verdicts import Verdict
from msgplatform.models import Alert, Biz
from tests.support import sms_rows
from tests.support.sms_rows import Caller, account, gateway

shop = sms_rows.shop
pytestmark = pytest.mark.django_db(transaction=True)


def send_many(process: Intake, requests: Sequence[Request]) -> list[Verdict]:
    return process.commit(process.prepare(requests))


def ask(biz: Any, **fields: Any) -> Verdict:
    """One request, to a process that knows every row as it is now."""
    given = {"to": ["13800000000"], "text": "你好", **fields}
    fresh = Intake(directory.Directory(refresh_seconds=0.0))
    return send_many(fresh, [Request(biz=biz.pk, **given)])[0]


def route(biz: Any, **fields: Any) -> list[str]:
    """Names of the gateways that a message would take, in order."""
    verdict = ask(biz, **fields)
    assert verdict.outcome == "created", verdict
    (found,) = store.read(verdict.ids)
    names = dict(SmsGateway.objects.values_list("pk", "name"))
    return [names[pk] for pk in found.mt.gateways]


def up(gateway: SmsGateway, **fields: Any) -> None:
    state = presence.LinkState(gateway.pk, "submit", "peer", time.time(), **fields)
    presence.report(f"c{gateway.pk}", [state])


class TestMessages:
    def test_everything_of_the_account_is_in_it(self, shop: Caller) -> None:
        SmsAccount.objects.update(
            service_type="news", fee_type=2, fee_value="10", extension_digits=2, report_flag=0,
            signature="【商店】",
        )  # fmt: skip
        verdict = ask(shop.biz, extension="07", priority=4, reference="r", idempotency_key="k")
        (found,) = store.read(verdict.ids)
        mt = found.mt
        assert (mt.sp_number, mt.corp_id, mt.service_type) == ("1065507", "99999", "news")
        assert (mt.fee_type, mt.fee_value, mt.report_flag, mt.priority) == (2, "10", 0, 4)
        assert (mt.signature, mt.reference, mt.key, mt.biz) == ("【商店】", "r", "k", shop.biz.pk)

    def test_a_system_without_an_account_is_told_so(self, shop: Caller) -> None:
        newcomer = Biz.objects.create(name="newcomer")
        verdict = ask(newcomer)
        assert "has no SMS account" in str(verdict.error)
        for name in ("one", "two"):
            account(newcomer, name=name, is_default=False)
        assert "name an account" in str(ask(newcomer).error)

    def test_an_account_that_was_made_just_now_is_known(self, shop: Caller) -> None:
        """By a process that has read the accounts a moment ago and would not read them for long."""
        process = Intake(directory.Directory(refresh_seconds=3600.0))

        def outcome(name: str) -> str:
            request = Request(biz=shop.biz.pk, to=["13800000000"], text="t", account=name)
            return send_many(process, [request])[0].outcome

        assert outcome("") == "created"
        account(shop.biz, name="new", is_default=False)
        assert outcome("new") == "created"
        assert outcome("nobody") == "rejected"

    def test_a_message_of_a_priority_goes_into_its_list(self, shop: Caller, sms_redis: Any) -> None:
        ask(shop.biz, priority=4)
        ask(shop.biz, schedule_at=time.time() + 60)
        pk = SmsGateway.objects.get().pk
        assert sms_redis.llen(keys.pending(pk, 4)) == 1
        assert sms_redis.zcard(keys.scheduled(pk)) == 1
        assert sms_redis.llen(keys.pending(pk)) == 0

    @pytest.mark.parametrize(
        ("fields", "field"),
        [
            ({"to": []}, "to"),
            ({"to": ["13800000000", "+86 138 0000 0000"]}, "to"),
            ({"to": ["1380000000x"]}, "to"),
            ({"to": ["1234"]}, "to"),
            ({"to": ["1" * 22]}, "to"),
            ({"text": "x" * 2001}, "text"),
            ({"text": "a\x07"}, "text"),
            ({"extension": "123"}, "extension"),
            ({"extension": "a"}, "extension"),
            ({"priority": -1}, "priority"),
            ({"reference": "x" * 65}, "reference"),
            ({"idempotency_key": "a b"}, "idempotency_key"),
            ({"account": "nobody"}, "account"),
            ({"expire_at": 1.0}, "expire_at"),
        ],
    )
    def test_what_is_refused(
        self, shop: Caller, sms_redis: Any, fields: dict[str, Any], field: str
    ) -> None:
        SmsAccount.objects.update(extension_digits=2)
        verdict = ask(shop.biz, **fields)
        assert (verdict.outcome, verdict.code, verdict.field) == ("rejected", "invalid", field)
        assert sms_redis.keys("*") == []

    def test_an_expiry_before_the_schedule(self, shop: Caller) -> None:
        soon = time.time() + 60
        assert ask(shop.biz, schedule_at=soon + 60, expire_at=soon).field == "expire_at"
        assert ask(shop.biz, schedule_at=soon, expire_at=soon + 60).outcome == "created"

    def test_an_expiry_long_after_the_schedule(self, shop: Caller) -> None:
        """SGIP writes years with two digits, so that a far one is of another century."""
        month = 30 * 86_400
        for begin in (0.0, time.time() + month / 2):
            late = max(time.time(), begin) + month
            assert ask(shop.biz, schedule_at=begin, expire_at=late - 3600).outcome == "created"
            verdict = ask(shop.biz, schedule_at=begin, expire_at=late + 3600)
            assert (verdict.field, "30 days" in verdict.reason) == ("expire_at", True)

    def test_how_many_recipients_a_call_has(self, shop: Caller) -> None:
        SmsAccount.objects.update(recipients_limit=2)
        numbers = ["13800000000", "13800000001", "13800000002"]
        assert len(ask(shop.biz, to=numbers[:2]).ids) == 2
        assert ask(shop.biz, to=numbers).field == "to"

    def test_how_many_recipients_a_call_has_whatever_the_account_may(
        self, shop: Caller, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """More than ten thousand, here 101, would keep Redis busy for too long."""
        monkeypatch.setattr(accept, "MAX_RECIPIENTS", 101)
        SmsAccount.objects.update(recipients_limit=500)
        numbers = [f"138000{n:05}" for n in range(102)]
        answer = shop.post("/api/v1/sms", {"to": numbers[:101], "text": "t"})
        assert len(answer.json()["ids"]) == 101
        answer = shop.post("/api/v1/sms", {"to": numbers, "text": "t"})
        assert answer.status_code == 400
        assert answer.json()["errors"] == [
            {"field": "to", "message": "Name at most 101 recipients in one request."}
        ]


class TestAccounts:
    def test_the_only_the_default_or_the_named_one(self, shop: Caller) -> None:
        SmsAccount.objects.update(is_default=False)
        assert ask(shop.biz).outcome == "created"
        other = account(shop.biz, "notices", sp_number="10656", is_default=False)
        assert ask(shop.biz).field == "account"
        (found,) = store.read(ask(shop.biz, account="notices").ids)
        assert found.mt.account == other.pk
        SmsAccount.objects.filter(pk=other.pk).update(is_default=True)
        (found,) = store.read(ask(shop.biz).ids)
        assert found.mt.account == other.pk

    def test_another_systems_account_is_not_there(self, shop: Caller) -> None:
        assert ask(Caller("stock").biz, account="marketing").field == "account"

    def test_a_disabled_one(self, shop: Caller) -> None:
        SmsAccount.objects.update(enabled=False)
        assert ask(shop.biz).field == "account"

    def test_a_change_arrives_without_a_restart(self, shop: Caller) -> None:
        own = Intake(directory.Directory(refresh_seconds=0.0))
        wanted = Request(biz=shop.biz.pk, to=["13800000000"], text="x")
        assert send_many(own, [wanted])[0].outcome == "created"
        SmsAccount.objects.update(enabled=False)
        assert send_many(own, [wanted])[0].outcome == "rejected"

    def test_one_that_cannot_be_used_stops_no_other(self, shop: Caller) -> None:
        """What the console would refuse, but a script may have written."""
        stock = Caller("stock")
        account(stock.biz, "stock")
        SmsAccount.objects.filter(biz=shop.biz).update(keywords=5)
        broken = gateway("broken", area_code="10")
        own = Intake(directory.Directory(refresh_seconds=0.0))

        def outcome(biz: Any) -> str:
            return send_many(own, [Request(biz=biz.pk, to=["13800000000"], text="x")])[0].outcome

        for _ in range(2):
            assert (outcome(shop.biz), outcome(stock.biz)) == ("rejected", "created")
        alerts = {
            alert.key: alert.count for alert in Alert.objects.filter(kind__endswith="_settings")
        }
        mine = SmsAccount.objects.get(biz=shop.biz)
        assert alerts == {
            f"sms.gateway_settings:{broken.pk}": 1, f"sms.account_settings:{mine.pk}": 1,
        }  # fmt: skip
        SmsAccount.objects.filter(biz=shop.biz).update(keywords=[])
        broken.delete()
        assert outcome(shop.biz) == "created"
        assert not Alert.objects.exclude(open_key=None).exists()


class TestRoutes:
    def test_the_longest_prefix_then_the_priority(self, shop: Caller) -> None:
        gateway("north", prefixes=["86138"])
        gateway("best", priority=9)
        gateway("exact", prefixes=["138000"])
        assert route(shop.biz) == ["exact", "north", "best", "unicom"]
        assert route(shop.biz, to=["13900000000"]) == ["best", "unicom"]
        gateway("abroad", prefixes=["001312"])
        assert route(shop.biz, to=["+1 312 555 1234"]) == ["abroad", "best", "unicom"]
        assert route(shop.biz, to=["13125551234"]) == ["best", "unicom"]

    def test_one_that_is_up_comes_first(self, shop: Caller) -> None:
        better, worse = gateway("better", priority=9), gateway("worse")
        up(worse)
        assert route(shop.biz)[0] == "worse"
        up(better)
        assert route(shop.biz)[0] == "better"
        up(better, problem="login refused")
        assert route(shop.biz)[0] == "worse"

    def test_those_of_the_account(self, shop: Caller) -> None:
        own = gateway("own")
        SmsAccount.objects.get().gateways.add(own)
        assert route(shop.biz) == ["own"]
        SmsGateway.objects.filter(pk=own.pk).update(enabled=False)
        assert ask(shop.biz).field == "to"

    def test_no_gateway_for_a_number(self, shop: Caller) -> None:
        SmsGateway.objects.update(prefixes=["86139"])
        verdict = ask(shop.biz)
        assert (verdict.field, "8613800000000" in verdict.reason) == ("to", True)


class TestLimits:
    def test_a_day_has_an_end(self, shop: Caller) -> None:
        SmsAccount.objects.update(daily_limit=5)
        numbers = [f"1380000000{n}" for n in range(6)]
        assert ask(shop.biz, to=numbers[:3]).outcome == "created"
        verdict = ask(shop.biz, to=numbers[:3])
        assert (verdict.outcome, verdict.code, verdict.field) == ("rejected", "limit", "account")
        # What was refused was not counted.
        assert ask(shop.biz, to=numbers[:2]).outcome == "created"
        assert ask(shop.biz).code == "limit"

    def test_repeats_during_an_outage_of_the_database_use_nothing_up(
        self, shop: Caller, sms_redis: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        SmsAccount.objects.update(daily_limit=2)
        request = Request(biz=shop.biz.pk, to=["13800000000"], text="x", idempotency_key="k")
        taking_in = Intake(directory.Directory(refresh_seconds=0.0))

        def hangs(_count: int) -> Any:
            raise Unavailable("the database does not answer")

        with monkeypatch.context() as outage:
            outage.setattr(ids, "reserve", hangs)
            for _ in range(5):
                with pytest.raises(Unavailable):
                    send_many(taking_in, [request])
        assert sms_redis.keys(f"{keys.PREFIX}spent:*") == []
        assert send_many(taking_in, [request])[0].outcome == "created"
        assert send_many(taking_in, [request])[0].outcome == "duplicate"
        (name,) = sms_redis.keys(f"{keys.PREFIX}spent:*")
        assert sms_redis.get(name) == b"1"

    def test_what_a_full_redis_refuses_uses_nothing_up(self, shop: Caller, sms_redis: Any) -> None:
        SmsAccount.objects.update(daily_limit=1)
        taking_in = Intake(directory.Directory(refresh_seconds=0.0))
        request = Request(biz=shop.biz.pk, to=["13800000000"], text="x")
        sms_redis.config_set("maxmemory", sms_redis.info("memory")["used_memory"] // 2)
        try:
            for _ in range(3):
                with pytest.raises(Unavailable, match=r"OOM.*nothing was stored"):
                    send_many(taking_in, [request])
        finally:
            sms_redis.config_set("maxmemory", 0)
        assert send_many(taking_in, [request])[0].outcome == "created"
        assert send_many(taking_in, [request])[0].code == "limit"

    def test_a_script_that_ran_twice_counts_once(self, shop: Caller, sms_redis: Any) -> None:
        SmsAccount.objects.update(daily_limit=3)
        taking_in = Intake(directory.Directory(refresh_seconds=0.0))
        to = ["13800000000", "13800000001"]
        prepared = taking_in.prepare([Request(biz=shop.biz.pk, to=to, text="x")])
        assert taking_in.commit(prepared) == taking_in.commit(prepared)
        (name,) = sms_redis.keys(f"{keys.PREFIX}spent:*")
        assert sms_redis.get(name) == b"2"

    def test_what_repeats_one_without_room_has_no_room(self, shop: Caller, sms_redis: Any) -> None:
        SmsAccount.objects.update(daily_limit=2)
        ask(shop.biz, to=["13800000000"])
        both = ["13800000000", "13800000001"]
        wanted = Request(biz=shop.biz.pk, to=both, text="x", idempotency_key="k")
        verdicts = send_many(accept.intake(), [wanted, wanted])
        assert [verdict.code for verdict in verdicts] == ["limit", "limit"]
        assert ask(shop.biz, idempotency_key="k").outcome == "created", "the key is not used up"

    def test_the_counter_goes_away(self, shop: Caller, sms_redis: Any) -> None:
        SmsAccount.objects.update(daily_limit=5)
        ask(shop.biz)
        (name,) = sms_redis.keys(f"{keys.PREFIX}spent:*")
        assert 86_400 < sms_redis.ttl(name) <= 2 * 86_400

    def test_the_day_is_the_platform_s(self, shop: Caller) -> None:
        """Also where somebody's own zone is active, as in the console."""
        SmsAccount.objects.update(daily_limit=1)
        assert ask(shop.biz).outcome == "created"
        for hours in (-12, 14):  # one of them has another day now
            with timezone.override(timezone.get_fixed_timezone(hours * 60)):
                assert ask(shop.biz).code == "limit"

    def test_no_limit_counts_nothing(self, shop: Caller, sms_redis: Any) -> None:
        ask(shop.biz)
        assert sms_redis.keys(f"{keys.PREFIX}spent:*") == []


class TestReferences:
    """A handset joins the parts of a long text by their sender and reference."""

    LONG = "长" * 100

    def references(self, *asked: Request) -> dict[str, list[int]]:
        """SP number → the references of its texts, as they are claimed."""
        taking_in = Intake(directory.Directory(refresh_seconds=0.0))
        assert {verdict.outcome for verdict in send_many(taking_in, asked)} == {"created"}
        found: dict[str, list[int]] = {}
        for claimed in store.claim(SmsGateway.objects.get().pk, "me", 1000, 30):
            found.setdefault(claimed.mt.sp_number, []).append(claimed.mt.udh_reference)
        return found

    def test_texts_that_follow_each_other_have_their_own(self, shop: Caller) -> None:
        asked = Request(biz=shop.biz.pk, to=["13800000000"], text=self.LONG)
        (found,) = self.references(*[asked] * 300).values()
        assert len(found) == 300
        assert min(found) == 1, "0 stands for none"
        assert all(len(set(found[n : n + 255])) == len(found[n : n + 255]) for n in range(46))

    def test_all_recipients_of_a_call_share_one(self, shop: Caller) -> None:
        to = [f"1380000000{n}" for n in range(5)]
        asked = Request(biz=shop.biz.pk, to=to, text=self.LONG)
        (found,) = self.references(asked, asked).values()
        assert found == [found[0]] * 5 + [found[5]] * 5
        assert found[0] != found[5]

    def test_whoever_sends_from_a_number_continues_its_references(self, shop: Caller) -> None:
        """Also where one account's number with an extension is another account's number."""
        SmsAccount.objects.update(sp_number="10655", extension_digits=2)
        stock = Caller("stock")
        account(stock.biz, "stock", sp_number="1065501")
        first = Request(biz=shop.biz.pk, to=["13800000000"], text=self.LONG, extension="01")
        second = Request(biz=stock.biz.pk, to=["13800000000"], text=self.LONG)
        third = replace(first, extension="")
        found = self.references(first, second, third, first)
        assert {number: len(set(some)) for number, some in found.items()} == {
            "1065501": 3, "10655": 1,
        }  # fmt: skip

    def test_a_short_text_has_none(self, shop: Caller, sms_redis: Any) -> None:
        asked = Request(biz=shop.biz.pk, to=["13800000000"], text="短")
        assert list(self.references(asked).values()) == [[0]]
        assert sms_redis.keys(f"{keys.PREFIX}udh:*") == []

    def test_a_text_that_only_a_packing_gateway_cuts_has_one(self, shop: Caller) -> None:
        asked = Request(biz=shop.biz.pk, to=["13800000000"], text="[" * 100)
        (found,) = self.references(asked, asked).values()
        assert 0 not in found
        assert len(set(found)) == 2


class TestRepeats:
    def test_the_same_request(self, shop: Caller, sms_redis: Any) -> None:
        first = ask(shop.biz, idempotency_key="k", to=["13800000000", "13800000001"])
        again = ask(shop.biz, idempotency_key="k", to=["13800000000", "13800000001"])
        assert (again.outcome, again.ids) == ("duplicate", first.ids)
        assert sms_redis.llen(keys.pending(SmsGateway.objects.get().pk)) == 2

    @pytest.mark.parametrize(
        "other", [{"text": "x"}, {"to": ["13800000001"]}, {"priority": 1}, {"extension": "1"}]
    )
    def test_another_request(self, shop: Caller, other: dict[str, Any]) -> None:
        SmsAccount.objects.update(extension_digits=1)
        ask(shop.biz, idempotency_key="k")
        verdict = ask(shop.biz, idempotency_key="k", **other)
        assert (verdict.code, verdict.field) == ("conflict", "idempotency_key")

    def test_another_system_has_keys_of_its_own(self, shop: Caller) -> None:
        stock = Caller("stock")
        account(stock.biz, "stock", sp_number="10657")
        assert ask(shop.biz, idempotency_key="k").outcome == "created"
        assert ask(stock.biz, idempotency_key="k").outcome == "created"

    def test_what_was_accepted_stays_accepted(self, shop: Caller) -> None:
        """A caller that repeats after a lost answer must not read that nothing was sent."""
        SmsAccount.objects.update(daily_limit=1)
        first = ask(shop.biz, idempotency_key="k")
        assert ask(shop.biz, idempotency_key="k").ids == first.ids
        SmsAccount.objects.update(enabled=False)
        SmsGateway.objects.update(enabled=False)
        again = ask(shop.biz, idempotency_key="k")
        assert (again.outcome, again.ids) == ("duplicate", first.ids)
        assert ask(shop.biz, idempotency_key="k", text="x").code == "conflict"

    def test_twice_in_one_call(self, shop: Caller) -> None:
        wanted = Request(biz=shop.biz.pk, to=["13800000000"], text="x", idempotency_key="k")
        first, second = send_many(accept.intake(), [wanted, wanted])
        assert (first.outcome, second.outcome) == ("created", "duplicate")
        assert first.ids == second.ids

    def test_what_comes_twice_in_one_call_is_counted_once(
        self, shop: Caller, sms_redis: Any
    ) -> None:
        SmsAccount.objects.update(daily_limit=2)
        wanted = Request(biz=shop.biz.pk, to=["13800000000"], text="x", idempotency_key="k")
        last = replace(wanted, idempotency_key="l")
        other = replace(wanted, text="y")
        verdicts = send_many(accept.intake(), [wanted, wanted, other, last, last])
        assert [verdict.outcome for verdict in verdicts] == [
            "created", "duplicate", "rejected", "created", "duplicate",
        ]  # fmt: skip
        assert verdicts[2].code == "conflict"
        (name,) = sms_redis.keys(f"{keys.PREFIX}spent:*")
        assert sms_redis.get(name) == b"2"
        assert sms_redis.llen(keys.pending(SmsGateway.objects.get().pk)) == 2

    def test_one_that_is_wrong_does_not_use_up_the_key(self, shop: Caller) -> None:
        wanted = Request(biz=shop.biz.pk, to=["13800000000"], text="x", idempotency_key="k")
        wrong = replace(wanted, to=["7"])
        verdicts = send_many(accept.intake(), [wrong, wanted, wrong])
        assert [(verdict.outcome, verdict.code) for verdict in verdicts] == [
            ("rejected", "invalid"), ("created", ""), ("rejected", "conflict"),
        ]  # fmt: skip

    def test_a_script_that_ran_twice_has_made_them(self, shop: Caller) -> None:
        """The client runs it again when its answer was lost."""
        taking_in = Intake(directory.Directory(refresh_seconds=0.0))
        request = Request(biz=shop.biz.pk, to=["13800000000"], text="a", idempotency_key="k")
        prepared = taking_in.prepare([request])
        (first,) = taking_in.commit(prepared)
        assert first.outcome == "created"
        assert taking_in.commit(prepared) == [first]
        assert taking_in.commit(taking_in.prepare([request]))[0].outcome == "duplicate"

    def test_two_that_share_a_group_commit(self, shop: Caller) -> None:
        SmsAccount.objects.update(daily_limit=2)
        groups: list[int] = []
        waiting, go = threading.Event(), threading.Event()

        def commit(asked: list[Request]) -> list[Verdict]:
            groups.append(len(asked))
            waiting.set()
            assert go.wait(180)
            return accept.accept(asked)

        committer = GroupCommit(commit)
        before = Request(biz=shop.biz.pk, to=["13800000000"], text="x")
        wanted = replace(before, idempotency_key="k")
        verdicts: list[Verdict | None] = []
        for request in (before, wanted, wanted):
            committer.submit_later(request, lambda verdict, _error: verdicts.append(verdict))
            assert waiting.wait(180)
        go.set()
        assert committer.close(180)
        assert groups == [1, 2]
        assert [verdict and verdict.outcome for verdict in verdicts] == [
            "created", "created", "duplicate",
        ]  # fmt: skip
