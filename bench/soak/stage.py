"""What a soak plays on: business systems with their keys, three subscriptions, a gateway, a CRM,
readers and authors; and the programs of the whole platform."""

import json
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from django.db import connection

from bench.harness.ground import ROOT, Ground
from bench.harness.processes import Program
from bench.soak import calls
from crmsync.models import Crm, LandingPage, Policy, Source
from gateway.models import SgipMt, SmsAccount, SmsGateway
from msgplatform.core import flows
from msgplatform.core.archive import partitions
from msgplatform.core.data import ids, sql
from msgplatform.core.flows.programs import BULK
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
from notify.models import BizReceive, ColdBizMsg, Receive

SUBSCRIBERS = ("fast", "slow", "dead")
# A third of a second each: the slow one keeps up with 750 messages a second. One that did not would
# have a backlog that grows for as long as the run.
_IN_FLIGHT = 250
OLD_BIZ, OLD_ROWS, OLD_DAYS = "closed-shop", 500, 400
_LOGIN, _CORP = "operator", "12345"
_SCOPES = {
    "notify": ["events:write"], "sms": ["sms:write"], "crmsync": ["leads:write"],
    "feed": ["feed:write", "feed:read"],
}  # fmt: skip
_DAY = 86_400
_MAX_TRIES, _AGAIN_SECONDS = 5, 1.0  # of a request with the answer 429 or 5xx


def settings(seconds: float) -> dict[str, str]:
    """The environment in which archive, retention and cleaner act within a run of so many
    seconds."""
    keep = max(1.0, seconds / 12)
    return {
        "NOTIFY_KEEP_DAYS": f"{keep / _DAY:.8f}",
        "NOTIFY_KEEP_FAILED_DAYS": f"{2 * keep / _DAY:.8f}",
        "NOTIFY_BREAKER_SECONDS": "5",
        "NOTIFY_BREAKER_KEEP_HOURS": f"{keep / 4 / 3600:.8f}",
        "NOTIFY_DISABLE_AFTER_HOURS": "0",
        "CRM_OPERATION_DAYS": f"{keep / _DAY:.8f}",
        # Copies of what is archived: for an hour, or not at all where an hour is the whole run.
        "SMS_KEEP_ARCHIVED_HOURS": "1" if seconds > 3 * 3600 else "0",
        "SMS_IDEMPOTENCY_SECONDS": str(max(60, int(keep))),
        "FEED_KEEP_EVENT_HOURS": "1",
        # More than is posted between two samples, each of which looks at all that is written.
        "FEED_TIMELINE_LENGTH": "2000",
        # Every 24th round goes through all timelines.
        "FEED_CLEAN_SECONDS": f"{max(0.1, min(60.0, keep / 24)):.2f}",
        "API_RATE_READ": "1000000/min",
    }


@dataclass(frozen=True)
class Cast:
    """Business systems and their API keys, by flow; the subscriptions of Notify's system by
    name."""

    systems: Mapping[str, Biz]
    tokens: Mapping[str, str]
    subscriptions: Mapping[str, int]


def create(ground: Ground) -> Cast:
    """Make the rows of all flows, and old archives for retention to delete."""
    systems = {flow: Biz.objects.create(name=f"soak-{flow}") for flow in _SCOPES}
    tokens = {
        flow: keys.create(systems[flow], "soak", scopes)[1] for flow, scopes in _SCOPES.items()
    }
    url = f"http://127.0.0.1:{ground.sink_port}"
    subscriptions = {
        name: BizReceive.objects.create(
            biz=systems["notify"],
            receive=Receive.objects.create(name=name, url=f"{url}/{name}"),
            schedule=[1, 1],
            in_flight_limit=_IN_FLIGHT,
        ).pk
        for name in SUBSCRIBERS
    }
    _create_sms(ground, systems["sms"], f"{url}/sms")
    _create_crm(systems["crmsync"], f"{url}/crm")
    _create_old_archives()
    return Cast(systems, tokens, subscriptions)


def _create_sms(ground: Ground, biz: Biz, url: str) -> None:
    SmsGateway.objects.create(
        name=_LOGIN, host="127.0.0.1", port=ground.smg_port, login_name="sp",
        login_password="secret", connections=2, smg_login_name=_LOGIN,
        smg_login_password="secret", corp_id=_CORP,
    )  # fmt: skip
    SmsAccount.objects.create(
        biz=biz, name="soak", sp_number="10655001", corp_id=_CORP, is_default=True
    )
    receive = Receive.objects.create(name="sms-listener", url=url)
    BizReceive.objects.create(
        biz=biz, receive=receive, event_types=["sms.report"], schedule=[1] * 9
    )


def _create_crm(biz: Biz, url: str) -> None:
    fields = [{"name": "name"}, {"name": "phone", "required": True}]
    fields += [{"name": name, "label": name.title()} for name in ("number", "due", "wish")]
    page = LandingPage(
        biz=biz, appkey=calls.APPKEY, title="Soak", text="A load.", form_fields=fields
    )
    page.full_clean()
    page.save()
    names = ("number", "due", "wish", "phone")
    crm = Crm(
        name="soak-crm", adapter="http", retry_seconds=[1, 1, 1, 2, 2, 5], settings={
            "url": url, "is_upsert": True, "records_per_call": 50, "concurrency": 2,
            "body": {"leads": "{records}"},
            "record": {"id": "{key}", **{name: f"{{field.{name}}}" for name in names}},
            "fields": list(names),
            "answer": {
                "results": "results",
                "result": {"code": "status", "ok": ["stored"], "remote_id": "id"},
            },
        },
    )  # fmt: skip
    crm.full_clean()
    crm.save()
    mapping = "number = extra.number\ndue = extra.due\nwish = extra.wish\nphone = phone"
    policy = Policy(source=Source.hive(), crm=crm, mapping=mapping, interval_seconds=1)
    policy.full_clean()
    policy.save()


def _create_old_archives() -> None:
    """Messages of more than a year ago, in partitions of their months, which retention drops."""
    biz = Biz.objects.create(name=OLD_BIZ)
    now = sql.now()
    then = now - timedelta(days=OLD_DAYS)
    rows = [ids.first_id_at(then + timedelta(seconds=number)) for number in range(OLD_ROWS)]
    ColdBizMsg.objects.bulk_create(
        ColdBizMsg(id=row, biz_id=biz.pk, event_type="order.paid", payload=b"{}", created_at=then,
                   archived_at=then)
        for row in rows
    )  # fmt: skip
    SgipMt.objects.bulk_create(
        SgipMt(id=row, biz_id=biz.pk, account_id=1, gateway_id=1, fee_type=1, agent_flag=0,
               morelateto_mt_flag=2, priority=0, report_flag=1, accepted_at=then,
               archived_at=then, user_number="8613800000000", final="delivered", text="old")
        for row in rows
    )  # fmt: skip
    # The tables were empty when they were made, and a table without months gets those of its rows.
    partitions.partition(connection, ColdBizMsg._meta.db_table, SgipMt._meta.db_table)


def make_friends(ground: Ground, token: str) -> None:
    """Every reader becomes a friend of every author, through the API."""
    changes = [
        {"action": "befriend", "uid": calls.reader(one), "other": calls.author(other)}
        for one in range(calls.READERS)
        for other in range(calls.AUTHORS)
    ]
    results = request(ground, "/api/v1/feed/relations/batch", token, {"changes": changes})
    assert all(each["outcome"] != "rejected" for each in results["results"]), results
    for one in range(calls.READERS):
        request(ground, f"/api/v1/feed/timelines/{calls.reader(one)}", token)


def request(ground: Ground, path: str, token: str, body: object = None) -> dict[str, Any]:
    """The answer of a GET, or of a POST where there is a body. A request that the platform cannot
    take now is repeated: the result of hours must not be lost with one answer."""
    url = f"http://127.0.0.1:{ground.web_port}{path}"
    call = urllib.request.Request(
        url,
        None if body is None else json.dumps(body).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    tries = 1
    while True:
        try:
            with urllib.request.urlopen(call, timeout=120) as answer:
                content: dict[str, Any] = json.load(answer)
            return content
        except HTTPError as error:
            if tries == _MAX_TRIES or not (error.code == 429 or error.code >= 500):
                raise
        tries += 1
        time.sleep(_AGAIN_SECONDS)


# -- programs ------------------------------------------------------------------------------------
def programs(ground: Ground) -> Sequence[Program]:
    """The consumers and the simulated operator, then the whole platform, the web server last."""
    folder = ground.folder
    consumer = ground.module(
        "consumer", "bench.soak.consumer", *("--port", ground.sink_port),
        *("--book", folder / "arrived.book", "--folder", folder), load=True,
    )  # fmt: skip
    argv = [
        *(sys.executable, str(ROOT / "manage.py"), "run_smg_simulator"),
        *("--port", str(ground.smg_port), "--log", str(operator_log(ground))),
        *("--sp-port", str(ground.sms_port), "--smg-login-name", _LOGIN),
    ]
    simulator = Program("smg", argv, ground.environment, load=True)
    commands = [daemon.command for flow in flows.all() for daemon in flow.daemons]
    daemons = [ground.daemon(command) for command in [*commands, BULK.command]]
    return [consumer, simulator, *daemons, ground.web()]


def operator_log(ground: Ground) -> Path:
    """Where the simulated operator writes down each Submit."""
    return ground.folder / "smg.log"


def is_ready(ground: Ground) -> bool:
    """True if the web server says that the platform is ready."""
    try:
        url = f"http://127.0.0.1:{ground.web_port}/readyz"
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def caller(
    ground: Ground, flow: str, token: str, rate: float = 0.0, first: int = 0, at_most: int = 0,
    label: str = "",
) -> Program:  # fmt: skip
    """The load of one flow, ready with its first answer; without a rate it keeps `at_most` messages
    in flight."""
    folder = ground.folder
    book = folder / f"{flow}.book"
    size = book.stat().st_size if book.exists() else 0

    def has_answer() -> bool:
        return book.exists() and book.stat().st_size > size

    arguments: list[object] = ["--flow", flow, "--port", ground.web_port, "--token", token]
    arguments += ["--book", book, "--first", first]
    arguments += ["--rate", rate] if rate else ["--at-most", at_most]
    if not rate:
        arguments += ["--behind", folder / f"{WAYS[flow]}.progress"]
    if flow == "reads":
        arguments += ["--seen", folder / "seen.book", "--seen-progress", folder / "feed.progress"]
    name = label or flow
    return ground.module(name, "bench.soak.caller", *arguments, load=True, ready=has_answer)


# The place whose count says how many messages of a flow are through.
WAYS = {"notify": "fast", "sms": "sms", "crmsync": "crm", "feed": "feed"}
