"""Business systems that send over XML-RPC and REST, and that listen to Reports and MOs."""

from __future__ import annotations

import json
import uuid
import xmlrpc.client
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from demo.connection import Connection
from demo.script import BATCH, Script, spread
from demo.sink_process import SinkProcess
from demo.sms import plan
from msgplatform.core.data import chunks

# Recipients of one text now and then, as a reminder to many.
_MANY = 50
# Every so many calls one is repeated with the same key, as after a lost answer.
_REPEAT_EVERY = 10
# After so many messages of the trickle a user sends one.
_MO_EVERY = 5
_SMS = "/api/v1/sms"

Call = tuple[list[str], str, dict[str, Any]]  # recipients, text, options


class Listener:
    """A running sink of a business system, and the events that it got."""

    def __init__(self, file: Path) -> None:
        self._sink = SinkProcess(file, ["--bodies"])
        self.url = self._sink.url
        self.reports: dict[str, list[str]] = defaultdict(list)  # message id → its states
        self.mos: list[str] = []  # their texts
        self.repeated = 0  # events that came once more under the same webhook-id
        self._events: set[str] = set()
        self._count = 0  # of the sink's lines, as far as they were read

    def listen(self) -> None:
        """Read the events that came since the last time."""
        ids, bodies = self._sink.lines(), self._sink.bodies()
        for id, body in zip(ids[self._count :], bodies[self._count : len(ids)], strict=True):
            if id in self._events:
                self.repeated += 1
                continue
            self._events.add(id)
            event = json.loads(body)
            if event["type"] == "sms.report":
                self.reports[event["data"]["id"]].append(event["data"]["state"])
            else:
                self.mos.append(event["data"]["text"])
        self._count = len(ids)

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self._sink.close()


def send_all(base_url: str, tokens: Mapping[str, str], count: int) -> dict[str, dict[str, str]]:
    """Send to `count` recipients, each system its share: half over XML-RPC, half over REST. System
    → the accepted messages' ids → their recipients. Raises RuntimeError."""
    messages: dict[str, dict[str, str]] = {system: {} for system in tokens}
    share = -(-count // len(tokens))
    tasks = []
    for place, system in enumerate(tokens):
        start, stop = place * share, min(count, (place + 1) * share)
        half = start + (stop - start) // 2
        tasks += [
            (_send_by_xml_rpc, system, range(start, half)),
            (_send_by_rest, system, range(half, stop)),
        ]

    def send(connection: Connection, task: tuple[Any, str, range]) -> None:
        way, system, indexes = task
        for numbers, ids in way(connection, tokens[system], _calls(system, indexes)):
            messages[system].update(zip(ids, numbers, strict=True))

    spread(base_url, send, tasks, len(tasks))
    return messages


def trickle(
    base_url: str,
    tokens: Mapping[str, str],
    start: int,
    deliver: Callable[[Sequence[tuple[str, str, str]]], None],
) -> Callable[[int], None]:
    """A short message now and then, and an MO after some; `start` is the first index that is free,
    `deliver` lets users send. For one thread; a repeat of a number is the same message."""
    connection, prefix = Connection(base_url), f"trickle-{uuid.uuid4().hex[:12]}"
    scripts = [Script(connection, token) for token in tokens.values()]

    def send(number: int) -> None:
        to, text = plan.number(start + number), plan.text(start + number)
        body = {"to": to, "text": text, "idempotency_key": f"{prefix}-{number}"}
        scripts[number % len(scripts)].send(_SMS, body)
        if number % _MO_EVERY == 0:
            deliver([mo[1:] for mo in plan.mos(1)])

    return send


def _calls(system: str, indexes: range) -> Iterator[Call]:
    """One text to one recipient, or to many; each index is one recipient."""
    at = indexes.start
    while at < indexes.stop:
        count = _MANY if at % 7 == 0 else 1
        numbers = [plan.number(index) for index in range(at, min(at + count, indexes.stop))]
        options = {
            "idempotency_key": f"{system}-{at}", "reference": f"demo-{at}",
            "priority": at % 10, "extension": f"{at % 100:02d}",
        }  # fmt: skip
        yield numbers, plan.text(at), options
        at += len(numbers)


def _send_by_xml_rpc(
    connection: Connection, token: str, calls: Iterator[Call]
) -> Iterator[tuple[list[str], list[str]]]:
    with xmlrpc.client.ServerProxy(f"{connection.base_url}/rpc/") as proxy:
        sms: Any = proxy.sms
        for count, (numbers, text, options) in enumerate(calls):
            to = numbers if len(numbers) > 1 else numbers[0]
            ids = sms.send(token, to, text, options)["ids"]
            if count % _REPEAT_EVERY == 0 and sms.send(token, to, text, options)["ids"] != ids:
                raise RuntimeError("a repeat got other ids")
            yield numbers, ids


def _send_by_rest(
    connection: Connection, token: str, calls: Iterator[Call]
) -> Iterator[tuple[list[str], list[str]]]:
    script = Script(connection, token)
    for batch in chunks(list(calls), BATCH):
        items = [{"to": numbers, "text": text, **options} for numbers, text, options in batch]
        verdicts = script.send_many(f"{_SMS}/batch", "messages", items)
        for (numbers, _text, _options), verdict in zip(batch, verdicts, strict=True):
            yield numbers, list(verdict["ids"])
