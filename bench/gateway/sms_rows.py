"""Rows and keys of SMS that its bench starts from, and what must be there afterwards."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from django.apps import apps
from django.db import connection

from bench.gateway import sms_messages
from bench.harness.processes import BenchFailed
from bench.notify import notify_rows
from bench.notify.notify_rows import same
from gateway.connections import sms_redis
from gateway.lifecycle import keys as names
from gateway.models import SgipMt, SmsAccount, SmsGateway
from gateway.simulator.journal import read_users
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
from notify.models import BizReceive, Receive

SMG_LOGIN, CORP = "operator", "12345"
SMG_CONNECTIONS = 8
SP_NUMBER = "10655001"
_PAGE = 20_000
# The columns of the archive that are checked, whoever wrote them.
_COLUMNS = ("id", "user_number", "text", "reference", "final", "result")


@dataclass(frozen=True)
class Cast:
    """A business system with an API key, its account and its subscription, and one gateway."""

    account: SmsAccount
    gateway: SmsGateway
    token: str


@lru_cache(maxsize=1)
def cast(url: str, smg_port: int) -> Cast:
    """Make them once for a bench; all else has the platform's defaults."""
    gateway = SmsGateway.objects.create(
        name=SMG_LOGIN, host="127.0.0.1", port=smg_port, login_name="sp", login_password="secret",
        connections=SMG_CONNECTIONS,
        smg_login_name=SMG_LOGIN, smg_login_password="secret", corp_id=CORP,
    )  # fmt: skip
    biz = Biz.objects.create(name="clinic")
    _, token = keys.create(biz, "bench", ["sms:write"])
    account = SmsAccount.objects.create(
        biz=biz, name="clinic", sp_number=SP_NUMBER, corp_id=CORP, is_default=True
    )
    receive = Receive.objects.create(name="clinic-listener", url=url)
    BizReceive.objects.create(biz=biz, receive=receive, event_types=["sms.report", "sms.reports"])
    return Cast(account, gateway, token)


def empty() -> None:
    """Delete all messages; gateways, accounts and keys stay."""
    notify_rows.empty()
    with connection.cursor() as cursor:
        for model in apps.get_app_config("gateway").get_models():
            table = model._meta.db_table
            if table.startswith("sgip_"):
                verb = "TRUNCATE TABLE" if connection.vendor == "mysql" else "DELETE FROM"
                cursor.execute(f"{verb} {connection.ops.quote_name(table)}")
    sms_redis().flushall()


def read_accepted(file: Path) -> dict[int, int]:
    """The number of each message that the load generator saw accepted, by its id."""
    pairs = (line.split() for line in file.read_text().splitlines())
    return {int(id): int(number) for id, number in pairs}


# -- checks --------------------------------------------------------------------------------------
def check_archive(accepted: Mapping[int, int], prefix: str) -> None:
    """Check that each accepted message has a row with its text and ending, and that there is no
    other row."""
    found = 0
    for row in _archived():
        found += 1
        number = accepted.get(row[0], -1)
        wanted = (
            f"86{sms_messages.recipient(number)}", sms_messages.text(number),
            sms_messages.key(prefix, number), "delivered", 0,
        )  # fmt: skip
        if number < 0 or row[1:] != wanted:
            raise BenchFailed(f"the archive's {row} is not what was sent")
    same(found, len(accepted), "archived messages")


def _archived() -> Iterator[tuple[Any, ...]]:
    last = -1
    while True:
        rows = SgipMt.objects.filter(id__gt=last).order_by("id").values_list(*_COLUMNS)[:_PAGE]
        yield from rows
        if len(rows) < _PAGE:
            return
        last = rows[len(rows) - 1][0]


def check_heard(bodies: Path, accepted: Mapping[int, int], prefix: str) -> None:
    """Check that the business system heard of each message once: delivered, and to whom."""
    heard = 0
    for data in _reports(bodies):
        heard += 1
        number = accepted.get(int(data["id"]), -1)
        found = (data["to"], data["reference"], data["state"], data["error_code"], data["parts"])
        reference = sms_messages.key(prefix, number)
        if found != (f"86{sms_messages.recipient(number)}", reference, "delivered", 0, 1):
            raise BenchFailed(f"the event of message {data['id']} is not its ending: {data}")
    same(heard, len(accepted), "endings heard of")


def _reports(bodies: Path) -> Iterator[dict[str, Any]]:
    for line in bodies.read_bytes().splitlines():
        data = json.loads(line)["data"]
        yield from data.get("reports", [data])


def check_submitted(log: Path, accepted: Mapping[int, int]) -> None:
    """Check that the gateway took one Submit for each message, each with its own sequence."""
    lines = list(read_users(log))
    users = Counter(user for _, user, result in lines if not result)
    wanted = Counter(f"86{sms_messages.recipient(number)}" for number in accepted.values())
    if users != wanted:
        same(users.total(), wanted.total(), "Submits")
        raise BenchFailed("a Submit went to a number that was not asked for")
    same(len({sequence for sequence, _, _ in lines}), len(lines), "sequences")


def check_no_keys() -> None:
    """Check that nothing is left in Redis of messages that are archived."""
    left = list(sms_redis().scan_iter(match=f"{names.PREFIX}mt:*", count=1000))
    same(len(left), 0, "messages left in Redis")
