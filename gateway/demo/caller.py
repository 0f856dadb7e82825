"""Sends as a business system would, over XML-RPC and REST, and remembers what was accepted."""

from __future__ import annotations

import threading
import uuid
import xmlrpc.client
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gateway.demo import scenario
from msgplatform.core.api_connection import Connection
from msgplatform.core.data.chunks import chunks

# Recipients of one text now and then, as a reminder to many.
_MANY = 50
_BATCH = 100
# Every so many calls one is repeated with the same key, as after a lost answer.
_REPEAT_EVERY = 10

# After so many messages of the trickle a user sends one.
_MO_EVERY = 5

Call = tuple[list[str], str, dict[str, Any]]


class Caller(threading.Thread):
    """One system with its key: the first half over XML-RPC, the second over REST."""

    def __init__(self, base_url: str, system: str, token: str, indexes: range) -> None:
        super().__init__(daemon=True)
        self.system = system
        self.accepted: dict[str, str] = {}  # message id → recipient
        self.error: Exception | None = None  # read when the thread has ended
        self._base_url, self._token, self._indexes = base_url, token, indexes

    def run(self) -> None:
        half = self._indexes.start + len(self._indexes) // 2
        try:
            self._over_xml_rpc(list(self._calls(range(self._indexes.start, half))))
            self._over_rest(list(self._calls(range(half, self._indexes.stop))))
        except Exception as error:  # noqa: BLE001 - handed to the main thread
            self.error = error

    def _calls(self, indexes: range) -> Iterator[Call]:
        """One text to one recipient, or to many; each index is one recipient."""
        at = indexes.start
        while at < indexes.stop:
            many = _MANY if at % 7 == 0 else 1
            numbers = [scenario.number(index) for index in range(at, min(at + many, indexes.stop))]
            options = {
                "idempotency_key": f"{self.system}-{at}", "reference": f"demo-{at}",
                "priority": at % 10, "extension": f"{at % 100:02d}",
            }  # fmt: skip
            yield numbers, scenario.text(at), options
            at += len(numbers)

    def _over_xml_rpc(self, calls: Sequence[Call]) -> None:
        with xmlrpc.client.ServerProxy(f"{self._base_url}/rpc/") as proxy:
            sms: Any = proxy.sms
            for count, (numbers, text, options) in enumerate(calls):
                to = numbers if len(numbers) > 1 else numbers[0]
                answer = sms.send(self._token, to, text, options)
                if count % _REPEAT_EVERY == 0:
                    repeat_answer = sms.send(self._token, to, text, options)
                    self._require(repeat_answer["ids"] == answer["ids"], "a repeat got other ids")
                self.accepted.update(zip(answer["ids"], numbers, strict=True))

    def _over_rest(self, calls: Sequence[Call]) -> None:
        connection = Connection(self._base_url)
        headers = {"Authorization": f"Bearer {self._token}"}
        for batch in chunks(calls, _BATCH):
            items = [{"to": numbers, "text": text, **more} for numbers, text, more in batch]
            answer = connection.json("POST", "/api/v1/sms/batch", {"messages": items}, headers)
            verdicts = answer.require(200).json()["results"]
            for (numbers, _text, _more), verdict in zip(batch, verdicts, strict=True):
                # A duplicate: the connection broke after the first request was accepted.
                self._require(verdict["outcome"] in ("created", "duplicate"), str(verdict))
                self.accepted.update(zip(verdict["ids"], numbers, strict=True))
        connection.close()

    def _require(self, good: bool, text: str) -> None:
        if not good:
            raise RuntimeError(text)

    def asked(self, ids: Sequence[str]) -> list[str]:
        """States by XML-RPC, in order."""
        with xmlrpc.client.ServerProxy(f"{self._base_url}/rpc/") as proxy:
            rows: Any = proxy.sms.query(self._token, list(ids))
        return [row.get("state", "") for row in rows]


class Trickle:
    """A short message now and then, after the accounting, and an MO after some. For one thread.

    `begin` is the first index that is free; `deliver` lets users send.
    """

    def __init__(
        self,
        base_url: str,
        tokens: Mapping[str, str],
        begin: int,
        deliver: Callable[[Sequence[tuple[str, str, str]]], None],
    ) -> None:
        self._connection = Connection(base_url)
        self._tokens, self._begin, self._deliver = list(tokens.values()), begin, deliver
        self._key = f"trickle-{uuid.uuid4().hex[:12]}"

    def send(self, number: int) -> None:
        """Raises RuntimeError; a repeat of the same number is the same message."""
        index = self._begin + number
        headers = {"Authorization": f"Bearer {self._tokens[number % len(self._tokens)]}"}
        body = {
            "to": scenario.number(index), "text": scenario.text(index),
            "idempotency_key": f"{self._key}-{number}",
        }  # fmt: skip
        self._connection.json("POST", "/api/v1/sms", body, headers).require(200, 202)
        if number % _MO_EVERY == 0:
            self._deliver([mo[1:] for mo in scenario.mos(1)])
