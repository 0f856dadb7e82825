"""Signatures, judged by the official libraries from what a consumer got on the wire."""

import base64
import json
import os
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import standardwebhooks
from django.conf import LazySettings
from django.utils import timezone

from msgplatform.core.queues import jobs
from msgplatform.models import Biz
from notify import orders
from notify.models import BizReceive, Receive
from notify.orders import Item, Order
from notify.sender.sender import Sender
from notify.subscriptions import signing
from tests.support.http_sinks import Seen, Sink, answering

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]

PAYLOADS = {"plain": b'{"test": 2432232314}', "utf-8": '{"名": "小米 ✓ 😀"}'.encode()}
NAMES = ("webhook-id", "webhook-timestamp", "webhook-signature")


@pytest.fixture(params=sorted(PAYLOADS))
def captured(
    request: pytest.FixtureRequest, settings: LazySettings
) -> tuple[Seen, dict[str, str], list[str]]:
    """One delivery during a rotation: the request, its headers, and both secrets."""
    settings.OUTBOUND_ALLOW = ["127.0.0.0/8"]
    secrets = [signing.new_secret(), signing.new_secret()]
    with Sink(answering()) as sink:
        receive = Receive.objects.create(
            name="one", url=sink.url(), secret=secrets[0], previous_secret=secrets[1],
            previous_secret_until=timezone.now() + timedelta(hours=1),
        )  # fmt: skip
        row = BizReceive.objects.create(biz=Biz.objects.create(name="b"), receive=receive)
        body = orders.body("order.paid", "2026-11-20T08:00:00Z", PAYLOADS[request.param])
        order = Order(row.pk, "c" * 32, time.time() + 120, [Item(1, 2**60, 1, body)])
        jobs.put(orders.queue_name(row.biz_id, row.receive_id), [order], ttl=240)
        sender = Sender()
        sender.start()
        try:
            deadline = time.monotonic() + 180
            while not sink.requests:
                assert time.monotonic() < deadline
                sender.turn()
        finally:
            sender.drain(time.monotonic() + 1)
            sender.stop()
        (seen,) = sink.requests
        return seen, {name: seen.headers[name] for name in NAMES}, secrets


def altered(seen: Seen, headers: dict[str, str]) -> list[tuple[bytes, dict[str, str]]]:
    """The same delivery with another body, another id, another time, another signature."""
    later = str(int(headers["webhook-timestamp"]) + 1)
    swapped = seen.body.replace(b'"data":', b'"Data":')
    assert swapped != seen.body
    return [
        (swapped, headers),
        (seen.body, headers | {"webhook-id": headers["webhook-id"] + "0"}),
        (seen.body, headers | {"webhook-timestamp": later}),
        (seen.body, headers | {"webhook-signature": "v1," + "A" * 43 + "="}),
    ]


def in_python(secret: str, body: bytes, headers: dict[str, str]) -> str:
    try:
        standardwebhooks.Webhook(secret).verify(body, headers)
    except standardwebhooks.WebhookVerificationError as error:
        return type(error).__name__
    return "verified"


def in_javascript(cases: list[tuple[str, bytes, dict[str, str]]]) -> list[str]:
    given = [
        {"secret": secret, "body": base64.b64encode(body).decode(), "headers": headers}
        for secret, body, headers in cases
    ]
    modules = Path(sys.prefix) / "npm" / "node_modules"
    done = subprocess.run(
        ["node", str(Path(__file__).parents[2] / "support" / "verify.cjs")],
        input=json.dumps(given), capture_output=True, text=True, check=True, timeout=60,
        env={**os.environ, "NODE_PATH": str(modules)},
    )  # fmt: skip
    return list(json.loads(done.stdout))


def test_both_secrets_verify_while_one_is_rotated(captured: Any) -> None:
    seen, headers, secrets = captured
    cases = [(secret, seen.body, headers) for secret in secrets]
    assert [in_python(*case) for case in cases] == ["verified", "verified"]
    assert in_javascript(cases) == ["verified", "verified"]


def test_what_was_altered_is_refused(captured: Any) -> None:
    seen, headers, secrets = captured
    cases = [(secrets[0], *change) for change in altered(seen, headers)]
    cases.append((signing.new_secret(), seen.body, headers))
    refusal = ["WebhookVerificationError"] * len(cases)
    assert [in_python(*case) for case in cases] == refusal
    assert in_javascript(cases) == refusal
