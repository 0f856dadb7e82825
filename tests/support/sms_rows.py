"""What the tests of SMS share: a gateway, an account, a business system with a key, and the steps
of a message's life without a socket."""

import itertools
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from gateway.intake import accept
from gateway.intake.request import Request
from gateway.lifecycle import keys as sms_keys, store
from gateway.lifecycle.messages import Member, NewSubmit, ReportIn, Response
from gateway.models import SgipMo, SmsAccount, SmsGateway
from msgplatform.core.data import ids as id_numbers, sql
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
from tests.support.answers import Answer

NODE, TS = 3010099999, 1121131500
_seqnos = itertools.count(100)


def gateway(name: str = "unicom", **fields: Any) -> SmsGateway:
    given: dict[str, Any] = {
        "host": "127.0.0.1", "port": 8801, "login_name": "us", "login_password": "our-secret",
        "smg_login_name": "smg", "smg_login_password": "its-secret", "corp_id": "99999",
    }  # fmt: skip
    return SmsGateway.objects.create(name=name, **{**given, **fields})


def account(biz: Biz, name: str = "marketing", **fields: Any) -> SmsAccount:
    given: dict[str, Any] = {"sp_number": "10655", "corp_id": "99999", "is_default": True}
    return SmsAccount.objects.create(biz=biz, name=name, **{**given, **fields})


class Caller:
    """A business system with a key."""

    def __init__(self, name: str, *scopes: str) -> None:
        self.biz, _ = Biz.objects.get_or_create(name=name)
        self.key = keys.create(self.biz, "test", scopes or ["sms:write", "sms:read"])[1]
        self.client = Client()

    def post(self, path: str, body: Any, **headers: str) -> Answer:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.client.post(
            path, raw, content_type="application/json",
            headers={"Authorization": f"Bearer {self.key}", **headers},
        )  # fmt: skip

    def get(self, path: str, **query: str) -> Answer:
        return self.client.get(path, query, headers={"Authorization": f"Bearer {self.key}"})


@pytest.fixture
def shop(sms_redis: Any, work_redis: Any, db: None) -> Iterator[Caller]:
    """A system with an account on one gateway; the process knows nothing from tests before."""
    keys.forget()
    accept.intake.cache_clear()
    gateway()
    caller = Caller("shop")
    account(caller.biz)
    yield caller
    accept.intake.cache_clear()
    keys.forget()


def incoming(biz: Biz, count: int, seconds_ago: float = 3600.0) -> list[str]:
    """MOs of its account, archived a second after each other; their ids in the order in which they
    came, which is not that of the ids."""
    account = SmsAccount.objects.get(biz=biz)
    at = sql.now() - timedelta(seconds=seconds_ago)
    numbers = sorted((id_numbers.new(0) for _ in range(count)), reverse=True)
    rows = [
        SgipMo(
            id=pk, biz_id=biz.pk, account_id=account.pk, gateway_id=1,
            user_number="8613800000000", sp_number="10655", tp_pid=0, tp_udhi=0, message_coding=0,
            content=b"", text=f"text {n}", sequence="1:2:3", received_at=at,
            archived_at=at + timedelta(seconds=n),
        )
        for n, pk in enumerate(numbers)
    ]  # fmt: skip
    SgipMo.objects.bulk_create(rows)
    return [str(pk) for pk in numbers]


def send(biz: Biz, to: str = "13800000000", text: str = "你好", **fields: Any) -> str:
    """The id of a new message to one recipient."""
    intake = accept.intake()
    request = Request(biz=biz.pk, to=[to], text=text, **fields)
    (verdict,) = intake.commit(intake.prepare([request]))
    assert verdict.outcome == "created", verdict
    return verdict.ids[0]


def submit(gateway_id: int, parts: int = 1, wait: float = 3600.0) -> dict[str, list[int]]:
    """Claim all that is pending and put each into Submits of its own: id → seqnos by part.

    Reports are awaited for `wait` seconds."""
    made: dict[str, list[int]] = {}
    new = []
    for claimed in store.claim(gateway_id, "me", 500, 30):
        mt = claimed.mt
        for part in range(1, parts + 1):
            seqno = next(_seqnos)
            made.setdefault(mt.id, []).append(seqno)
            members = [Member(mt.id, mt.user_number)]
            new.append(NewSubmit(seqno, TS, NODE, part, parts, b"frame", members))
    assert store.submit(gateway_id, "me", new, 60.0, wait) == new
    return made


def respond(seqno: int, result: int = 0) -> None:
    verdict = "refused" if result else "accepted"
    store.respond([Response(f"{seqno}:{TS}", result, verdict)], 3)


def lasting_keys(client: Any) -> set[str]:
    """All keys, without those of runs of intake, which expire after a minute."""
    names = {key.decode() for key in client.keys("*")}
    return {name for name in names if not name.startswith(sms_keys.accepted(""))}


def report(seqno: int, number: str = "8613800000000", state: int = 0, error: int = 0) -> str:
    from time import time

    item = ReportIn(seqno, TS, NODE, number, state, error, time())
    return store.report([item])[0]
