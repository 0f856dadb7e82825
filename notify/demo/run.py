"""The demo of Notify: publish, rotate a secret, forge, wait, account for every delivery."""

from __future__ import annotations

import contextlib
import http.client
import math
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgplatform.core.daemons.timer import Every
from msgplatform.core.data import sql
from msgplatform.core.flows import DemoRun
from notify import operations, presence
from notify.demo import scenario
from notify.demo.publisher import Accepted, BatchPublisher, Trickle, publish_all
from notify.demo.sink_process import SinkProcess
from notify.models import Receive, ReceiveMsg
from notify.subscriptions import signing

# A run with fewer messages shows too little, and says so.
MIN_MESSAGES = 10_000
# The same number is said again after so long.
_SAME_SECONDS = 10.0
_TRICKLE_SECONDS = 0.5  # between two messages, after the accounting
# For so long both secrets sign, a week: the consumer changes over at no time of the demo.
_OVERLAP_HOURS = 168
_FORGED = b'{"type": "demo.forged", "timestamp": "2026-01-01T00:00:00Z", "data": {}}'


@dataclass
class Account:
    """What must have arrived, per consumer, and what its own file says."""

    expected: dict[str, set[str]]
    sinks: dict[str, SinkProcess]

    def missing(self) -> dict[str, set[str]]:
        return {name: ids - self.sinks[name].ids() for name, ids in self.expected.items()}

    def duplicates(self) -> int:
        return sum(len(sink.lines()) - len(sink.ids()) for sink in self.sinks.values())


def run_demo(run: DemoRun) -> Mapping[str, Any]:
    """Publish over HTTP, wait for the consumers' files, account for every delivery."""
    consumers = scenario.consumers()
    sinks = {}
    for consumer in consumers:
        sink = SinkProcess(Path(run.folder) / f"{consumer.name}.log", list(consumer.sink))
        sinks[consumer.name] = run.until_end.enter_context(sink)
    tokens = scenario.create(consumers, {name: sink.url for name, sink in sinks.items()})
    run.say(f"notify: {run.messages} messages from {len(tokens)} business systems to")
    for consumer in consumers:
        run.say(f"notify:   {consumer.name:<15} {consumer.behaviour}")
    messages = publish_all(run.base_url, tokens, run.messages // 2)
    # In the middle of the traffic the verifying consumer's secret is rotated. It goes on with its
    # old one, as consumers do until somebody has changed their settings.
    verifying = Receive.objects.get(name=scenario.VERIFYING)
    operations.rotate_secret(verifying.pk, operations.secret_mark(verifying), hours=_OVERLAP_HOURS)
    rest = run.messages - len(messages)
    messages += publish_all(run.base_url, tokens, rest, kind=BatchPublisher)
    forgeries = _forge(sinks[scenario.VERIFYING].url, verifying.secret)
    account = Account(scenario.expected(consumers, messages), sinks)
    exhausted_ids = _await(run, account)
    run.trickle("notify", Trickle(run.base_url, tokens).publish, _TRICKLE_SECONDS)
    return _report(messages, account, exhausted_ids, forgeries)


def _forge(url: str, secret: str) -> tuple[int, int]:
    """Send messages that nobody may believe straight to the consumer that verifies signatures; how
    many were answered with 401, and how many were sent."""
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


def _await(run: DemoRun, account: Account) -> set[str]:
    """Until nothing is missing or the time is up; the ids that ended exhausted at the dead sink."""
    deadline = time.monotonic() + run.timeout
    progress, patience, last_count = Every(2.0), Every(_SAME_SECONDS), 0
    # Only at the consumer that is meant to be dead: anywhere else it would be a loss.
    exhausted_rows = ReceiveMsg.objects.filter(
        biz_receive__receive__name=scenario.DEAD, status=ReceiveMsg.Status.EXHAUSTED
    ).values_list("msg_id", flat=True)
    while True:
        missing = account.missing()
        exhausted_ids = {str(message_id) for message_id in exhausted_rows.all()} & missing[
            scenario.DEAD
        ]
        open_count = sum(map(len, missing.values())) - len(exhausted_ids)
        if not open_count or time.monotonic() > deadline:
            return exhausted_ids
        if progress.take() and (open_count != last_count or patience.take()):
            last_count = open_count
            patience.restart()
            missing[scenario.DEAD] -= exhausted_ids
            run.say(f"notify: {open_count} deliveries to come: {_waiting(missing)}")
        time.sleep(0.2)


def _waiting(missing: Mapping[str, set[str]]) -> str:
    """For which consumers they wait, and until when: most of them first."""
    sentences = [
        f"{len(ids)} wait for {name}{_until(name)}"
        for name, ids in sorted(missing.items(), key=lambda pair: -len(pair[1]))
        if ids
    ]
    return "; ".join(sentences[:3])


def _until(consumer: str) -> str:
    """When the consumer is tried again; '' when that is now, or nobody knows."""
    waiting = ReceiveMsg.objects.filter(
        status=ReceiveMsg.Status.PENDING, biz_receive__receive__name=consumer
    )
    first = waiting.order_by("next_at").values_list("biz_receive_id", "next_at").first()
    if first is None:
        return ""
    subscription, due = first
    live = presence.read().get(subscription)
    if live is not None and live.is_open:
        return f": its breaker is open, next probe in {math.ceil(live.retry_in)} s"
    seconds = math.ceil((due - sql.now()).total_seconds())
    return f", next attempt in {seconds} s" if seconds > 0 else ""


def _report(
    messages: list[Accepted],
    account: Account,
    exhausted_ids: set[str],
    forgeries: tuple[int, int],
) -> Mapping[str, Any]:
    missing = account.missing()
    missing[scenario.DEAD] -= exhausted_ids
    arrivals = [ids & account.sinks[name].ids() for name, ids in account.expected.items()]
    refused_count, forged_count = forgeries
    return {
        "accepted": len({message.id for message in messages}),
        "at_least": MIN_MESSAGES,
        "systems": len(scenario.SYSTEMS),
        "subscribers": len(account.sinks),
        "copies": sum(map(len, account.expected.values())),
        "delivered": sum(map(len, arrivals)),
        "exhausted": len(exhausted_ids),
        "lost": sum(map(len, missing.values())),
        "duplicates": account.duplicates(),
        "forgeries_refused": f"{refused_count} of {forged_count}",
        "problem": "" if refused_count == forged_count else "a forged message was believed",
    }
