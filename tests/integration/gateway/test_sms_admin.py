"""SMS in the console: gateways, accounts, the archive's lists and the statistics."""

import csv
import io
import random
import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.db.models import F
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from bench.harness.plans import read_plan
from gateway import presence, sgip
from gateway.models import SgipMo, SgipMt, SgipReport, SgipUserRpt, SmsAccount, SmsGateway
from gateway.presence import LinkState
from msgplatform.core.data import ids
from msgplatform.models import AuditLog, Biz, DayCounter
from tests.support import sms_rows, table_rows
from tests.support.api_support import problem
from tests.support.management import Manager
from tests.support.sms_rows import Caller, account, gateway, send

shop = sms_rows.shop
pytestmark = pytest.mark.django_db(transaction=True)
GATEWAYS, ACCOUNTS = "/admin/gateway/smsgateway/", "/admin/gateway/smsaccount/"
SENT, RECEIVED = "/console/search/sms", "/admin/gateway/sgipmo/"
REPORTS, USERS = "/admin/gateway/sgipreport/", "/admin/gateway/sgipuserrpt/"
PAGE, FILE = "/console/statistics?flow=sms", "/console/statistics.csv?flow=sms"
ROWS = 20_000


def page(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, (address, answer.status_code)
    return answer.content.decode()


def rows_of(client: Client, address: str) -> list[int]:
    answer = client.get(address)
    assert answer.status_code == 200, (address, answer.status_code)
    return [row.pk for row in answer.context["cl"].result_list]


def form_of(client: Client, address: str) -> dict[str, Any]:
    """What the browser would send back unchanged."""
    form = client.get(address).context["adminform"].form
    values = {name: form[name].value() for name in form.fields}
    return {
        name: ("on" if value is True else value)
        for name, value in values.items()
        if value is not None and value is not False
    }


# -- gateways ------------------------------------------------------------------------------------
class TestGateways:
    def test_how_each_does_right_now(self, admin_client: Client, shop: Caller) -> None:
        up = SmsGateway.objects.get()
        gateway("telecom")
        presence.report("a", [LinkState(up.pk, "submit", "p", 1.0)])
        presence.report("b", [LinkState(up.pk, "report", "p", 1.0)])
        presence.report("c", [LinkState(up.pk, "submit", "p", 1.0, problem="login <refused>")])
        send(shop.biz)
        answer = admin_client.get(GATEWAYS)
        shown = {row.name: row for row in answer.context["cl"].result_list}
        assert shown["unicom"].queue.pending == 1
        text = answer.content.decode()
        assert "1 out, 1 in" in text
        assert "login &lt;refused&gt;" in text
        assert "down" in text

    def test_the_list_without_redis(
        self, admin_client: Client, shop: Caller, settings: Any
    ) -> None:
        settings.SMS_REDIS_URL = "unix:///nowhere/sms.sock"
        assert "unknown" in page(admin_client, GATEWAYS)

    def test_passwords_are_never_shown_and_kept_when_empty(
        self, admin_client: Client, shop: Caller
    ) -> None:
        row = SmsGateway.objects.get()
        address = f"{GATEWAYS}{row.pk}/change/"
        text = page(admin_client, address)
        assert "our-secret" not in text
        assert "its-secret" not in text
        given = form_of(admin_client, address)
        assert admin_client.post(address, {**given, "priority": 7}).status_code == 302
        row.refresh_from_db()
        assert (row.priority, row.login_password) == (7, "our-secret")
        given |= {"login_password": "fresh", "prefixes": "130\n86131\n"}
        given |= {"networks": "203.0.113.0/28\n2001:db8::7", "operator": "unicom"}
        assert admin_client.post(address, given).status_code == 302
        row.refresh_from_db()
        assert (row.login_password, row.smg_login_password) == ("fresh", "its-secret")
        assert row.prefixes == ["130", "86131"]
        assert (row.networks, row.operator) == (["203.0.113.0/28", "2001:db8::7"], "unicom")
        entry = AuditLog.objects.latest("id")
        assert entry.action == "sms_gateway_changed"
        assert {"login_password", "prefixes"} <= set(entry.detail["changes"])
        assert "fresh" not in str(entry.detail)

    def test_the_password_goes_to_no_other_smg(self, admin_client: Client, shop: Caller) -> None:
        row = SmsGateway.objects.get()
        address = f"{GATEWAYS}{row.pk}/change/"
        given = form_of(admin_client, address)
        for elsewhere in ({"host": "203.0.113.66"}, {"port": row.port + 1}):
            answer = admin_client.post(address, {**given, **elsewhere})
            assert list(answer.context["adminform"].form.errors) == ["login_password"]
            anew = {**given, **elsewhere, "login_password": "fresh"}
            assert admin_client.post(address, anew).status_code == 302
            row.refresh_from_db()
            assert row.login_password == "fresh"
            given = form_of(admin_client, address)

    @pytest.mark.parametrize(
        ("wrong", "field"),
        [({"login_password": ""}, "login_password"), ({"prefixes": "13x"}, "prefixes"),
         ({"login_password": "x" * 17}, "login_password"), ({"port": "0"}, "port"),
         ({"login_password": "密码"}, "login_password"), ({"networks": "10.0.0.1/8"}, "networks"),
         ({"networks": "gw.example.com"}, "networks"), ({"operator": "China Unicom"}, "operator"),
         ({"area_code": "755"}, "area_code"), ({"area_code": "0"}, "area_code"),
         ({"response_timeout": "4.9"}, "response_timeout"),
         ({"response_timeout": "601"}, "response_timeout"),
         ({"report_hours": "721"}, "report_hours")],
    )  # fmt: skip
    def test_a_wrong_one_is_not_made(
        self, admin_client: Client, shop: Caller, wrong: dict[str, str], field: str
    ) -> None:
        good = form_of(admin_client, f"{GATEWAYS}add/") | {
            "name": "telecom", "host": "10.0.0.1", "login_name": "us", "login_password": "a",
            "smg_login_name": "smg", "smg_login_password": "b", "corp_id": "99999",
        }  # fmt: skip
        answer = admin_client.post(f"{GATEWAYS}add/", {**good, **wrong})
        assert answer.status_code == 200
        assert field in answer.context["adminform"].form.errors
        assert admin_client.post(f"{GATEWAYS}add/", good).status_code == 302
        assert SmsGateway.objects.filter(name="telecom").exists()

    def test_nobody_deletes_one(self, admin_client: Client, shop: Caller) -> None:
        row = SmsGateway.objects.get()
        assert admin_client.post(f"{GATEWAYS}{row.pk}/delete/", {"post": "yes"}).status_code == 403


# -- accounts ------------------------------------------------------------------------------------
class TestAccounts:
    def test_what_was_sent_today(self, admin_client: Client, shop: Caller) -> None:
        SmsAccount.objects.update(daily_limit=5)
        send(shop.biz)
        assert "1 / 5" in page(admin_client, ACCOUNTS)

    def test_one_default_and_a_number_that_fits(self, admin_client: Client, shop: Caller) -> None:
        row = account(shop.biz, "notices", is_default=False)
        address = f"{ACCOUNTS}{row.pk}/change/"
        given = form_of(admin_client, address)
        for wrong, field in (
            ({"is_default": "on"}, "is_default"),
            ({"extension_digits": 20}, "extension_digits"),
            ({"sp_number": "12a"}, "sp_number"),
            ({"keywords": "TD\n\u200b"}, "keywords"),
        ):
            answer = admin_client.post(address, {**given, **wrong})
            assert answer.status_code == 200
            assert field in answer.context["adminform"].form.errors
        given |= {"extension_digits": 4, "keywords": "TD\n退订"}
        assert admin_client.post(address, given).status_code == 302
        row.refresh_from_db()
        assert (row.extension_digits, row.keywords) == (4, ["TD", "退订"])
        assert AuditLog.objects.latest("id").action == "sms_account_changed"

    def test_the_account_that_a_setting_names_is_renamed(
        self, admin_client: Client, shop: Caller, settings: Any
    ) -> None:
        settings.SMS_DEFAULT_ACCOUNT = "marketing"
        address = f"{ACCOUNTS}{SmsAccount.objects.get().pk}/change/"
        values = form_of(admin_client, address)
        for change, is_warned in (({}, False), ({"name": "sales"}, True)):
            answer = admin_client.post(address, values | change, follow=True)
            assert ("SMS_DEFAULT_ACCOUNT names marketing" in answer.content.decode()) is is_warned

    def test_messages_keep_it_with_its_system(self, admin_client: Client, shop: Caller) -> None:
        """People of another one could read them in a preview."""
        row = SmsAccount.objects.get()
        address = f"{ACCOUNTS}{row.pk}/change/"
        moved = {**form_of(admin_client, address), "biz": Biz.objects.create(name="other").pk}
        fill(shop, 1)
        assert admin_client.post(address, moved).status_code == 302
        row.refresh_from_db()
        assert row.biz == shop.biz
        manager = Manager("manage:accounts")
        body = manager.send("GET", "sms/accounts/marketing").json()
        answer = manager.send("PUT", "sms/accounts/marketing", {**body, "system": "other"})
        assert problem(answer, 400, "invalid-input")["errors"][0]["field"] == "system"
        SgipMt.objects.all().delete()
        assert admin_client.post(address, moved).status_code == 302
        row.refresh_from_db()
        assert row.biz.name == "other"


# -- the archive ---------------------------------------------------------------------------------
def fill(shop: Caller, rows: int = ROWS) -> dict[str, Any]:
    """Skewed: most of the messages are of one account and delivered."""
    rng = random.Random(7)
    stock = Caller("stock")
    rare = account(stock.biz, "rare", sp_number="10657")
    usual = SmsAccount.objects.get(name="marketing")
    now = timezone.now()
    numbers = ids.reserve(3 * rows).ids([rng.randrange(256) for _ in range(3 * rows)])
    owners = rng.choices([usual, rare], [9999, 1], k=rows)
    finals = rng.choices(SgipMt.Final.values, [9000, 900, 50, 49, 1], k=rows)
    table_rows.insert_like(
        SgipMt(
            gateway_id=1,
            sp_number="10655",
            corp_id="1",
            fee_type=1,
            fee_value="0",
            given_value="0",
            agent_flag=0,
            morelateto_mt_flag=2,
            priority=0,
            report_flag=1,
            text="你好" * 40,
            accepted_at=now,
            archived_at=now,
        ),
        ("id", "biz_id", "account_id", "user_number", "final"),
        (
            (pk, owner.biz_id, owner.pk, f"86138{rng.randrange(10**8):08d}", final)
            for pk, owner, final in zip(numbers[:rows], owners, finals, strict=True)
        ),
    )
    table_rows.insert_like(
        SgipMo(
            gateway_id=1,
            sp_number="10655",
            tp_pid=0,
            tp_udhi=0,
            message_coding=8,
            content=b"TD",
            text="TD",
            sequence="1:2:3",
            received_at=now,
            archived_at=now,
        ),
        ("id", "biz_id", "user_number"),
        (
            (pk, rng.choices([usual.biz_id, 0], [999, 1])[0], f"86138{rng.randrange(10**8):08d}")
            for pk in numbers[rows : 2 * rows]
        ),
    )
    table_rows.insert_like(
        SgipReport(
            node=1, ts=2, seqno=3, user_number="8613800000000", state=0, error_code=0,
            received_at=now, archived_at=now,
        ),
        ("id", "mt_id"),
        (
            (pk, rng.choices([mt, 0], [999, 1])[0])
            for pk, mt in zip(numbers[2 * rows :], numbers[:rows], strict=True)
        ),
    )  # fmt: skip
    with connection.cursor() as cursor:
        for table in ("sgip_mt", "sgip_mo", "sgip_report"):
            cursor.execute(
                f"ANALYZE TABLE {table}" if connection.vendor == "mysql" else f"ANALYZE {table}"
            )
            cursor.fetchall()
    return {"rare": rare, "usual": usual, "ids": numbers}


def wrong_steps(statement: str) -> list[str]:
    """Steps of a plan that read a whole table."""
    with connection.cursor() as cursor:
        plan = read_plan(cursor, statement)
    if connection.vendor == "sqlite":
        details = [step["detail"] for step in plan]
        return [d for d in details if d.startswith("SCAN sgip") and " USING " not in d]
    return [str(s) for s in plan if s["type"] == "ALL" and str(s["table"]).startswith("sgip")]


def test_whatever_is_chosen_is_read_from_an_index(admin_client: Client, shop: Caller) -> None:
    fill(shop)
    since = (timezone.localtime() - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M")
    mt = SgipMt.objects.first()
    mo = SgipMo.objects.first()
    assert mt is not None
    assert mo is not None
    found: dict[str, list[str]] = {}
    for address in [
        SENT, f"{SENT}?cursor={mt.pk - 2**30}", f"{SENT}?state=accepted", f"{SENT}?state=delivered",
        f"{SENT}?account=rare", f"{SENT}?account=marketing&cursor={mt.pk}",
        f"{SENT}?account=rare&state=failed", f"{SENT}?since={since}", f"{SENT}?id={mt.pk}",
        f"{SENT}?number={mt.user_number}", f"{SENT}?number={mt.user_number[2:]}",
        f"{SENT}?biz=shop&state=failed",
        f"{SENT}?state=failed&answer=failed&gateway=1&since={since}&failed_since={since}",
        RECEIVED, f"{RECEIVED}?owner=0", f"{RECEIVED}?owner={shop.biz.pk}&p=2",
        f"{RECEIVED}?id_since={since}", f"{RECEIVED}?q={mo.user_number}", f"{RECEIVED}?q={mo.pk}",
        f"{RECEIVED}?q={mo.user_number[2:]}",
        REPORTS, f"{REPORTS}?matched=no", f"{REPORTS}?q={mt.pk}", USERS,
    ]:  # fmt: skip
        with CaptureQueriesContext(connection) as captured:
            page(admin_client, address)
        asked = [
            q["sql"] for q in captured if "sgip_" in q["sql"] and q["sql"].startswith("SELECT")
        ]
        assert asked
        for statement in asked:
            assert "JOIN" not in statement
            if wrong := wrong_steps(statement):
                found[address] = [*wrong, statement[:300]]
    assert found == {}


class TestLists:
    def test_messages(self, admin_client: Client, shop: Caller) -> None:
        made = fill(shop, 300)
        message = made["ids"][0]
        SgipMt.objects.filter(pk=message).update(
            final="failed", error_code=25, user_number="8613911111111", idempotency_key="key-7",
            gateway_id=SmsGateway.objects.get().pk,
            ended_at=F("accepted_at") + timedelta(seconds=3),
        )  # fmt: skip
        text = page(admin_client, f"{SENT}?number=13911111111")
        assert f"/console/sms/{message}" in text
        assert '<span class="mark wide bad">failed (archived)</span>' in text
        for words in (sgip.result_text(25), "marketing · unicom", "ended after 3.0 s"):
            assert words in text

        def ids_of(**filter: str) -> list[int]:
            answer = admin_client.get(SENT, filter)
            return [int(hit.id) for _flow, hit in answer.context["hits"]]

        for filter in ({"number": "13911111111"}, {"number": "8613911111111"}, {"key": "key-7"},
                       {"id": str(message)}):  # fmt: skip
            assert ids_of(**filter) == [message]
        failed = set(SgipMt.objects.filter(final="failed").values_list("pk", flat=True))
        assert set(ids_of(state="failed")) <= failed
        assert ids_of(reference="nothing") == []
        assert ids_of() == list(SgipMt.objects.values_list("pk", flat=True)[:50])

    def test_the_side_bar_leads_to_them(self, shop: Caller) -> None:
        user = User.objects.create_user("looker", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename="view_sgipmt"))
        client = Client()
        client.force_login(user)
        assert re.search(rf'href="{SENT}"[^<]*<span[^>]*>\s*sms\s*<', page(client, "/console/"))
        user.user_permissions.clear()
        assert SENT not in page(client, "/console/")

    def test_messages_from_handsets(self, admin_client: Client, shop: Caller) -> None:
        fill(shop, 300)
        orphan = SgipMo.objects.first()
        assert orphan is not None
        SgipMo.objects.exclude(pk=orphan.pk).update(biz_id=shop.biz.pk)
        SgipMo.objects.filter(pk=orphan.pk).update(biz_id=0, text="<b>who?</b>", missing=1)
        assert rows_of(admin_client, f"{RECEIVED}?owner=0") == [orphan.pk]
        foreign, chinese = SgipMo.objects.exclude(pk=orphan.pk)[:2]
        SgipMo.objects.filter(pk=foreign.pk).update(user_number="13125551234")
        SgipMo.objects.filter(pk=chinese.pk).update(user_number="8613125551234")
        both = rows_of(admin_client, f"{RECEIVED}?q=13125551234")
        assert both == sorted([foreign.pk, chinese.pk], reverse=True)
        assert rows_of(admin_client, f"{RECEIVED}?q=%2B13125551234") == [foreign.pk]
        text = page(admin_client, f"{RECEIVED}?owner=0")
        assert "&lt;b&gt;who?" in text
        assert "1 missing" in text
        assert orphan.pk not in rows_of(admin_client, f"{RECEIVED}?owner={shop.biz.pk}")

    def test_reports_and_users(self, admin_client: Client, shop: Caller) -> None:
        made = fill(shop, 300)
        stranger = SgipReport.objects.first()
        assert stranger is not None
        SgipReport.objects.update(mt_id=made["ids"][0])
        SgipReport.objects.filter(pk=stranger.pk).update(mt_id=0, state=2, error_code=25)
        assert rows_of(admin_client, f"{REPORTS}?matched=no") == [stranger.pk]
        assert "matched nothing" in page(admin_client, f"{REPORTS}?matched=no")
        assert len(rows_of(admin_client, f"{REPORTS}?q={made['ids'][0]}")) == 50
        now = timezone.now()
        for number, condition in enumerate((0, 1, 2, 9)):
            SgipUserRpt.objects.create(
                id=number + 1, gateway_id=SmsGateway.objects.get().pk, sp_number="10655",
                user_number="8613800000000", user_condition=condition, sequence="1:2:3",
                received_at=now, archived_at=now,
            )  # fmt: skip
        text = page(admin_client, USERS)
        for word in ("deregistered", "suspended", "back to normal", "unicom"):
            assert word in text

    @pytest.mark.parametrize(
        "query",
        ["account=x", "account=-1", "account=" + "9" * 40, "q=%00", "q=%25", "q=" + "9" * 40,
         "id_since=never", "final__exact=none", "p=x"],
    )  # fmt: skip
    def test_any_address_is_answered(self, admin_client: Client, shop: Caller, query: str) -> None:
        assert admin_client.get(f"{SENT}?{query}", follow=True).status_code == 200

    def test_who_may_not_look(self, client: Client, shop: Caller) -> None:
        client.force_login(User.objects.create_user("guest", is_staff=True))
        for address in (GATEWAYS, ACCOUNTS, SENT, RECEIVED, REPORTS, USERS, PAGE, FILE):
            assert client.get(address).status_code == 403

    def test_nobody_changes_the_archive(self, admin_client: Client, shop: Caller) -> None:
        for address in (RECEIVED, REPORTS, USERS):
            assert admin_client.get(f"{address}add/").status_code == 403


# -- statistics ----------------------------------------------------------------------------------
class TestStatistics:
    @pytest.fixture
    def counted(self, shop: Caller) -> dict[str, int]:
        """Two days; each message is counted for its account and for its gateway."""
        pk, gate = SmsAccount.objects.get().pk, SmsGateway.objects.get().pk
        other = account(shop.biz, "notices", is_default=False).pk
        today = timezone.localdate()
        for days, subject, name, value in (
            (0, pk, "delivered", 90), (0, other, "failed", 10), (0, -gate, "delivered", 90),
            (0, -gate, "failed", 10), (0, other, "error 25", 7), (0, other, "error tries", 3),
            (0, -gate, "error 25", 7), (0, -gate, "error tries", 3), (0, pk, "mo", 5),
            (0, -gate, "mo", 5),
            (20, pk, "delivered", 1000), (20, -gate, "delivered", 1000),
            (0, pk, "segments", 120), (0, other, "segments", 9), (0, -gate, "segments", 129),
        ):  # fmt: skip
            DayCounter.objects.create(
                day=today - timedelta(days=days), flow="sms", biz_id=shop.biz.pk,
                subject=subject, name=name, value=value,
            )  # fmt: skip
        return {"marketing": pk, "notices": other, "unicom": gate}

    def test_everything_once(self, admin_client: Client, counted: dict[str, int]) -> None:
        answer = admin_client.get(f"{PAGE}&period=7d")
        assert totals(answer)["sent and ended"] == 100
        assert (totals(answer)["received"], totals(answer)["segments"]) == (5, 129)
        assert totals(answer)["success"] == "90 %"
        # First what lost most; sent, then received.
        assert sent(answer, "Account") == [("notices", 10, 0), ("marketing", 90, 5)]
        assert sent(answer, "Gateway") == [("unicom", 100, 5)]
        assert sent(answer, "System") == [("shop", 100, 5)]
        assert [count for _text, count in answer.context["answers"]] == [7, 3]
        assert "cannot be reached" in answer.content.decode()

    def test_by_number(self, admin_client: Client, counted: dict[str, int]) -> None:
        SmsAccount.objects.filter(name="notices").update(sp_number="1065507")
        answer = admin_client.get(f"{PAGE}&period=7d")
        assert sent(answer, "SP number") == [("1065507", 10, 0), ("10655", 90, 5)]
        answer = admin_client.get(f"{PAGE}&period=7d&sp_number=10655")
        assert totals(answer)["sent and ended"] == 90

    def test_the_address_says_what_is_shown(
        self, admin_client: Client, counted: dict[str, int]
    ) -> None:
        answer = admin_client.get(f"{PAGE}&period=30d")
        assert totals(answer)["sent and ended"] == 1100
        assert len(answer.context["steps"].rows) == 2
        answer = admin_client.get(f"{PAGE}&period=7d&account={counted['notices']}")
        assert (totals(answer)["sent and ended"], totals(answer)["success"]) == (10, "0 %")
        answer = admin_client.get(f"{PAGE}&period=7d&gateway={counted['unicom']}")
        assert (totals(answer)["sent and ended"], totals(answer)["received"]) == (100, 5)
        assert answer.context["answers"][0][1] == 7
        assert sent(answer, "System") == [("shop", 100, 5)]

    def test_the_file(self, admin_client: Client, counted: dict[str, int]) -> None:
        answer: Any = admin_client.get(f"{FILE}&period=7d&by=account")
        text = b"".join(answer.streaming_content).decode()
        rows = list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"))))
        today = DayCounter.objects.latest("day").day.isoformat()
        found = [(r["time"], r["account_title"], r["sent"], r["undelivered"]) for r in rows]
        assert found == [(today, "marketing", "90", "0"), (today, "notices", "10", "10")]

    def test_both_at_once_are_not_counted(
        self, admin_client: Client, counted: dict[str, int]
    ) -> None:
        query = f"&account={counted['notices']}&gateway={counted['unicom']}"
        answer = admin_client.get(PAGE + query)
        assert "choose one" in str(answer.context["form"].errors)
        assert "numbers" not in answer.context
        assert admin_client.get(FILE + query).status_code == 400

    def test_what_is_accepted_is_seen_before_it_has_ended(
        self, admin_client: Client, shop: Caller
    ) -> None:
        send(shop.biz)
        send(shop.biz, "13800000002")
        (card,) = (
            card
            for card in admin_client.get("/console/").context["cards"]
            if card.flow.name == "sms"
        )
        accepted = next(line for line in card.charts[0].lines if line.tone == "accepted")
        assert sum(value or 0 for value in accepted.values) == 2
        assert [value for title, value, *_ in card.numbers if title == "accepted"] == [2]


def totals(answer: Any) -> dict[str, Any]:
    return {str(title): value for title, value in answer.context["numbers"]}


def sent(answer: Any, heading: str) -> list[tuple[str, int, int]]:
    """(title, sent, received) of each row of a table."""
    (table,) = (t for t in answer.context["tables"] if str(t.heading) == heading)
    return [(row.title, row.values[0], row.values[-2]) for row in table.rows]
