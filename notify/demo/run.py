"""The demo of Notify: publish, rotate a secret, forge, wait, account for every delivery."""

from __future__ import annotations

import contextlib
import http.client
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgplatform.core.flows import DemoRun
from msgplatform.demo.account import compare, wait_for_none
from msgplatform.demo.sink_process import SinkProcess
from notify import operations
from notify.demo import scenario, traffic
from notify.models import Receive, ReceiveMsg
from notify.subscriptions import signing

# A run with fewer messages shows too little, and says so.
MIN_MESSAGES = 10_000
_TRICKLE_SECONDS = 0.5  # between two messages, after the accounting
# For so long both secrets sign, a week: the consumer changes over at no time of the demo.
_OVERLAP_HOURS = 168
_FORGED = b'{"type": "demo.forged", "timestamp": "2026-01-01T00:00:00Z", "data": {}}'


def run_demo(run: DemoRun) -> Mapping[str, Any]:
    """Publish over HTTP, wait for the consumers' files, account for every delivery."""
    consumers = scenario.consumers()
    sinks = {}
    for consumer in consumers:
        sink = SinkProcess(Path(run.folder) / f"{consumer.name}.log", consumer.sink)
        sinks[consumer.name] = run.until_end.enter_context(sink)
    tokens = scenario.create(consumers, {name: sink.url for name, sink in sinks.items()})
    lines = [f"notify: {run.messages} messages from {len(tokens)} business systems to"]
    run.say("\n".join([*lines, *(f"  {c.name:<15} {c.behaviour}" for c in consumers)]))
    run.start_together()
    messages = traffic.publish_all(run.base_url, tokens, run.messages // 2)
    # In the middle of the traffic the verifying consumer's secret is rotated. It goes on with its
    # old one, as consumers do until a person has changed their settings.
    verifying = Receive.objects.get(name=scenario.VERIFYING)
    operations.rotate_secret(verifying.pk, operations.secret_mark(verifying), hours=_OVERLAP_HOURS)
    count = run.messages - len(messages)
    messages += traffic.publish_batches(run.base_url, tokens, count)
    refusals, attempts = _forge(sinks[scenario.VERIFYING].url, verifying.secret)
    expected_ids = scenario.expected(consumers, messages)

    def count_missing() -> int:
        missing = sum(len(ids - sinks[name].ids()) for name, ids in expected_ids.items())
        return missing - len(_exhausted()) if missing else 0

    wait_for_none(run, "notify", count_missing, "deliveries to come")
    run.trickle("notify", traffic.trickle(run.base_url, tokens), _TRICKLE_SECONDS)
    expected_ids[scenario.DEAD] -= (exhausted_ids := expected_ids[scenario.DEAD] & _exhausted())
    differences = compare(
        {name: [(id, None) for id in sorted(ids)] for name, ids in expected_ids.items()},
        {name: [(id, None) for id in sink.lines()] for name, sink in sinks.items()},
    )
    copies = sum(map(len, expected_ids.values()))
    return {
        "accepted": len({message.id for message in messages}),
        "at_least": MIN_MESSAGES,
        "systems": len(scenario.SYSTEMS),
        "subscribers": len(sinks),
        "copies": copies + len(exhausted_ids),
        "delivered": copies - differences.lost,
        "exhausted": len(exhausted_ids),
        "lost": differences.lost,
        "duplicates": len(differences.extra),
        "forgeries_refused": f"{refusals} of {attempts}",
        "problem": "" if refusals == attempts else "a forged message was believed",
    }


def _exhausted() -> set[str]:
    """Messages that were given up at the consumer that is meant to be dead: anywhere else they
    would be lost."""
    rows = ReceiveMsg.objects.filter(
        biz_receive__receive__name=scenario.DEAD, status=ReceiveMsg.Status.EXHAUSTED
    )
    return set(map(str, rows.values_list("msg_id", flat=True)))


def _forge(url: str, secret: str) -> tuple[int, int]:
    """Send forged messages straight to the consumer that verifies signatures; the number of answers
    401, and of messages."""
    keys = [signing.decode_secret(secret)]
    now, message_id = int(time.time()), f"forged-{uuid.uuid4().hex}"
    signed_headers = dict(signing.headers(keys, message_id, now, _FORGED))
    old = dict(signing.headers(keys, message_id, now - 3600, _FORGED))
    attempts: list[tuple[dict[str, str], bytes]] = [
        ({}, _FORGED),  # not signed at all
        (signed_headers, _FORGED + b" "),  # another body
        (signed_headers | {"webhook-id": message_id + "x"}, _FORGED),
        (signed_headers | {"webhook-timestamp": str(now + 1)}, _FORGED),
        (old, _FORGED),  # signed well, an hour ago
    ]
    statuses = []
    for headers, body in attempts:
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        with contextlib.closing(connection):
            headers = {**headers, "content-type": "application/json"}
            connection.request("POST", "/hook", body, headers)
            statuses.append(connection.getresponse().status)
    return statuses.count(401), len(statuses)
