"""Sandboxes: stand-ins for an external system. A sandbox shows its calls for an hour, and its
answers can be set to fail, be slow or be down.

The store is the work Redis, under `sandbox:<name>:`. If Redis is emptied, sandboxes lose their
calls, and no message is lost. All functions raise RedisError.
"""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

import msgspec
from django.conf import settings
from django.utils.translation import gettext_noop as _

from msgplatform.core.connections import work_redis

KEEP_SECONDS = 3600
# Calls kept by one sandbox. With the longest bodies they take about 7 MiB of Redis.
MAX_CALLS = 100
MAX_BODY_BYTES = 64 * 1024
MAX_DELAY_SECONDS = 60.0
MAX_MINUTES = 60
MAX_RETRY_AFTER = 86_400
MAX_COUNT = 10_000
# Seconds that the web server waits before it sends the answer. A view sets this header; the web
# server removes it.
DELAY_HEADER = "X-Sandbox-Delay"
OFF = _("The sandbox is switched off on this platform: SANDBOX is no.")
_PREFIX = "sandbox"
C = TypeVar("C", bound=msgspec.Struct)


def is_on() -> bool:
    """True if this platform has sandboxes (SANDBOX)."""
    return bool(settings.SANDBOX)


class Behaviour(msgspec.Struct, frozen=True):
    """How a sandbox answers. `answer` is a word of the sandbox's kind, '' for the usual answer.
    `delay` and `retry_after` are seconds, 0 for none. `until` is in unix seconds. `count` is the
    number of calls still to be answered so; None: no limit."""

    answer: str = ""
    delay: float = 0.0
    retry_after: int = 0
    until: float = 0.0
    count: int | None = None

    @classmethod
    def of(
        cls, answer: str, delay: float | None, retry_after: int | None, count: int | None
    ) -> Behaviour:
        """The behaviour with these values; USUAL if all are empty."""
        if not (answer or delay or retry_after):
            return USUAL
        return cls(answer, delay or 0.0, retry_after or 0, count=count)

    @property
    def until_time(self) -> datetime | None:
        """The end of the behaviour; None: it has no end."""
        return datetime.fromtimestamp(self.until, UTC) if self.until else None


class KeptCall(msgspec.Struct, Generic[C], frozen=True):
    """A call that was kept, and when it came."""

    at: datetime
    call: C

    @property
    def id(self) -> str:
        """The call's name on a page."""
        return f"{self.at.timestamp():.6f}".replace(".", "-")


USUAL = Behaviour()


def _recent_call(content: Any) -> tuple[float, msgspec.Raw] | None:
    """Time and content of a call of the last hour; None for an older one, or another form."""
    with suppress(msgspec.DecodeError):
        at, call = msgspec.json.decode(content, type=tuple[float, msgspec.Raw])
        if at >= time.time() - KEEP_SECONDS:
            return at, call
    return None


class Sandbox:
    """One sandbox, by its name."""

    def __init__(self, name: str) -> None:
        self._calls = f"{_PREFIX}:{name}:calls"
        self._behaviour = f"{_PREFIX}:{name}:behaviour"
        self._count = f"{_PREFIX}:{name}:count"

    def keep(self, call: msgspec.Struct) -> None:
        """Keep a call for an hour, or until the next one. Only the newest MAX_CALLS calls are
        kept."""
        client: Any = work_redis()
        pipeline = client.pipeline()
        pipeline.lpush(self._calls, msgspec.json.encode((time.time(), call)))
        pipeline.ltrim(self._calls, 0, MAX_CALLS - 1)
        pipeline.expire(self._calls, KEEP_SECONDS)
        pipeline.lindex(self._calls, -1)
        last_content = pipeline.execute()[-1]
        # The list lives as long as calls come.
        while last_content and _recent_call(last_content) is None:
            client.lrem(self._calls, -1, last_content)
            last_content = client.lindex(self._calls, -1)

    def calls(self, kind: type[C]) -> list[KeptCall[C]]:
        """The calls of the last hour, newest first. Content that cannot be read, such as another
        release's, is left out."""
        calls: list[KeptCall[C]] = []
        contents = work_redis().lrange(self._calls, 0, MAX_CALLS - 1)
        for at, raw in filter(None, map(_recent_call, contents)):
            with suppress(msgspec.DecodeError):
                call = msgspec.json.decode(raw, type=kind)
                calls.append(KeptCall(datetime.fromtimestamp(at, UTC), call))
        return calls

    def empty(self) -> int:
        """Drop the kept calls; returns their number."""
        pipeline = work_redis().pipeline()
        pipeline.llen(self._calls)
        pipeline.delete(self._calls)
        return int(pipeline.execute()[0])

    def behaviour(self) -> Behaviour:
        """The behaviour that the next call meets."""
        content, count = work_redis().mget(self._behaviour, self._count)
        if not content or (count is not None and int(count) <= 0):
            return USUAL
        behaviour = msgspec.json.decode(content, type=Behaviour)
        return msgspec.structs.replace(behaviour, count=None if count is None else int(count))

    def take_behaviour(self) -> Behaviour:
        """The behaviour for one call, which is counted."""
        behaviour = self.behaviour()
        if behaviour.count is None:
            return behaviour
        # DECR gives each of several concurrent calls its own number.
        return behaviour if int(work_redis().decr(self._count)) >= 0 else USUAL

    def behave(self, behaviour: Behaviour, minutes: int) -> None:
        """Set the behaviour for `minutes`, or for `behaviour.count` calls. USUAL ends any other
        behaviour."""
        pipeline = work_redis().pipeline()
        pipeline.delete(self._behaviour, self._count)
        if behaviour != USUAL:
            timed_behaviour = msgspec.structs.replace(behaviour, until=time.time() + minutes * 60)
            pipeline.set(self._behaviour, msgspec.json.encode(timed_behaviour), ex=minutes * 60)
            if behaviour.count is not None:
                pipeline.set(self._count, behaviour.count, ex=minutes * 60)
        pipeline.execute()
