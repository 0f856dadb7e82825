"""Remembers for a while which API keys are good, so that a request needs no database.

A revoked key is refused after `TTL_SECONDS` at the latest, in every process. While the database
is away, a key that was good a short time ago stays good: an intake that needs no database goes on.
One request asks the database again a little earlier, and the others need not wait for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db.utils import InterfaceError, OperationalError

from msgplatform.core import logging
from msgplatform.core.daemons import beside
from msgplatform.core.errors import Unavailable

log = logging.get(__name__)

TTL_SECONDS = 30.0
REFRESH_SECONDS = 25.0
# A wrong key is asked for again soon, so that one created a moment ago works.
UNKNOWN_TTL_SECONDS = 5.0
# How long a key outlives its TTL while the database does not answer, and the pause between asking.
STALE_SECONDS = 600.0
RETRY_SECONDS = 5.0
# Threads that may ask again at the same time: while the database hangs, they wait for it.
MOST_ASKING = 2
MAX_KNOWN = 10_000
MAX_UNKNOWN = 1_000
# Ids of keys whose use is still to be noted in the database (`keys.write_last_used`).
used_keys: set[int] = set()


@dataclass(frozen=True, slots=True)
class ApiCaller:
    """Who calls the API: `request.user` of an authenticated request."""

    biz_id: int
    biz_name: str
    key_id: int
    scopes: frozenset[str]

    is_authenticated = True
    is_active = True
    is_anonymous = False

    def __str__(self) -> str:
        return f"{self.biz_name}/key {self.key_id}"


@dataclass(frozen=True, slots=True)
class Found:
    """A key that is good until `expires_at` (seconds since the epoch; None: no end)."""

    caller: ApiCaller
    expires_at: float | None

    def expired(self) -> bool:
        return self.expires_at is not None and time.time() >= self.expires_at


@dataclass(slots=True)
class _Entry:
    found: Found
    checked_at: float
    ask_again_at: float


class KeyCache:
    """Keyed by the key's hash; both sides bounded, so that a flood of wrong keys costs nothing."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._asking = threading.BoundedSemaphore(MOST_ASKING)
        self._known: dict[str, _Entry] = {}
        self._unknown: dict[str, float] = {}

    def get(
        self, digest: str, load: Callable[[], Found | None], admit: Callable[[], None]
    ) -> ApiCaller | None:
        """The key's owner, or None. `load` asks the database; `admit` may refuse (by raising)
        to ask it for a key that this process has never seen good."""
        now = self._clock()
        entry = self._known.get(digest)
        if entry is None:
            if self._unknown.get(digest, 0.0) > now:
                return None
            admit()
            found = self._remember(digest, load(), now)
        elif now >= entry.ask_again_at:
            found = self._refresh(digest, entry, load, now)
        else:
            found = entry.found
        return None if found is None or found.expired() else found.caller

    def peek(self, digest: str) -> ApiCaller | None:
        """The key's owner if that is known and need not be asked for now."""
        entry = self._known.get(digest)
        if entry is None or self._clock() >= entry.ask_again_at or entry.found.expired():
            return None
        return entry.found.caller

    def clear(self) -> None:
        """Forget everything (a key was changed in this process)."""
        with self._lock:
            self._known.clear()
            self._unknown.clear()

    def _refresh(
        self, digest: str, entry: _Entry, load: Callable[[], Found | None], now: float
    ) -> Found | None:
        is_stale = now >= entry.checked_at + TTL_SECONDS + STALE_SECONDS
        # While some ask, the others go on with what was known.
        if not self._asking.acquire(blocking=False):
            if is_stale:
                raise Unavailable("the database does not answer")
            return entry.found
        entry.ask_again_at = max(now, entry.checked_at + TTL_SECONDS)

        def ask() -> Found | None:
            try:
                return self._remember(digest, load(), now)
            finally:
                self._asking.release()

        try:
            return beside.ask(ask)
        except (OperationalError, InterfaceError, TimeoutError) as error:
            if is_stale:
                raise Unavailable("the database does not answer") from error
            log.warning("api_key_not_refreshed", key_id=entry.found.caller.key_id, why=str(error))
            entry.ask_again_at = now + RETRY_SECONDS
            return entry.found

    def _remember(self, digest: str, found: Found | None, now: float) -> Found | None:
        with self._lock:
            self._known.pop(digest, None)
            if found is None:
                _make_room(self._unknown, MAX_UNKNOWN)
                self._unknown[digest] = now + UNKNOWN_TTL_SECONDS
            else:
                _make_room(self._known, MAX_KNOWN)
                self._known[digest] = _Entry(found, now, now + REFRESH_SECONDS)
        return found


def _make_room(entries: dict[str, Any], size: int) -> None:
    while len(entries) >= size:
        del entries[next(iter(entries))]
