"""Remembers for a while which API keys are valid, so that a request needs no database.

    unknown ── load: not valid ──▶ refused for INVALID_TTL_SECONDS, then unknown
    unknown ── load: valid ──▶ valid
    valid ── after REFRESH_SECONDS one request loads it again ──▶ valid, or refused
    valid ── the database does not answer ──▶ valid for STALE_SECONDS more, then Unavailable

A revoked key is refused after `TTL_SECONDS` at the latest, in every process. While the database is
unavailable, an intake that needs no database goes on with the keys that it knows. One request loads
a key again a little before its time is over, so that the others need not wait for it.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from django.db.utils import InterfaceError, OperationalError

from msgplatform.core import logging
from msgplatform.core.daemons import bounded_call
from msgplatform.core.errors import Unavailable

log = logging.get(__name__)

TTL_SECONDS = 30.0
REFRESH_SECONDS = 25.0
# Seconds. Short, so that a key created a moment ago soon works.
INVALID_TTL_SECONDS = 5.0
# Seconds for which a key stays known after its TTL while the database does not answer, and seconds
# between two attempts to load it.
STALE_SECONDS = 600.0
RETRY_SECONDS = 5.0
# Maximum of threads that load valid keys again at a time: while the database hangs, they wait.
MAX_LOADING = 2
MAX_VALID = 10_000
MAX_INVALID = 1_000
# Ids of keys whose use has not been written to the database yet (`keys.write_last_used`).
used_keys: set[int] = set()


@dataclass(frozen=True, slots=True)
class ApiCaller:
    """The caller of the API: `request.user` of an authenticated request.

    A management key belongs to no system: its `biz_id` is 0, its `biz_name` is ''. `systems` are
    the names of the business systems to which it is limited; empty: no limit.
    """

    biz_id: int
    biz_name: str
    key_id: int
    scopes: frozenset[str]
    key_name: str = field(default="", compare=False)
    systems: frozenset[str] = frozenset()

    is_authenticated = True

    def __str__(self) -> str:
        return f"{self.biz_name or 'management'}/key {self.key_id}"


class ValidKey(msgspec.Struct, frozen=True):
    """A key that is valid until `expires_at` (seconds since the epoch; None: for ever)."""

    caller: ApiCaller
    expires_at: float | None

    def is_expired(self) -> bool:
        return self.expires_at is not None and time.time() >= self.expires_at


class _Entry(msgspec.Struct):
    valid_key: ValidKey
    checked_at: float
    reload_at: float


class KeyCache:
    """Keys by their hash. The numbers of valid and of wrong keys are bounded, so that a flood of
    wrong keys neither uses up memory nor displaces valid ones. `_lock` guards both."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._loading = threading.BoundedSemaphore(MAX_LOADING)
        self._valid: dict[str, _Entry] = {}
        self._invalid_until: dict[str, float] = {}

    def get(
        self, digest: str, load: Callable[[], ValidKey | None], admit: Callable[[], None]
    ) -> ApiCaller | None:
        """The key's owner, or None. `load` asks the database. `admit` may raise to refuse loading a
        key that this process does not know."""
        now = self._clock()
        entry = self._valid.get(digest)
        if entry is None:
            if self._invalid_until.get(digest, 0.0) > now:
                return None
            admit()
            valid_key = self._remember(digest, load(), now)
        elif now >= entry.reload_at:
            valid_key = self._refresh(digest, entry, load, now)
        else:
            valid_key = entry.valid_key
        return None if valid_key is None or valid_key.is_expired() else valid_key.caller

    def peek(self, digest: str) -> ApiCaller | None:
        """The key's owner, if the key is known and does not have to be loaded."""
        entry = self._valid.get(digest)
        if entry is None or self._clock() >= entry.reload_at or entry.valid_key.is_expired():
            return None
        return entry.valid_key.caller

    def clear(self) -> None:
        """Forget everything (a key was changed in this process)."""
        with self._lock:
            self._valid.clear()
            self._invalid_until.clear()

    def _refresh(
        self, digest: str, entry: _Entry, load: Callable[[], ValidKey | None], now: float
    ) -> ValidKey | None:
        is_stale = now >= entry.checked_at + TTL_SECONDS + STALE_SECONDS
        # While some threads load the key, the others use the known value.
        if not self._loading.acquire(blocking=False):
            if is_stale:
                raise Unavailable("the database does not answer")
            return entry.valid_key
        # Until the TTL is over other requests use the known value.
        entry.reload_at = max(now, entry.checked_at + TTL_SECONDS)

        def ask() -> ValidKey | None:
            try:
                return self._remember(digest, load(), now)
            finally:
                self._loading.release()

        try:
            return bounded_call.ask(ask)
        except (OperationalError, InterfaceError, TimeoutError) as error:
            if is_stale:
                raise Unavailable("the database does not answer") from error
            log.warning(
                "api_key_not_refreshed", key_id=entry.valid_key.caller.key_id, why=str(error)
            )
            entry.reload_at = now + RETRY_SECONDS
            return entry.valid_key

    def _remember(self, digest: str, valid_key: ValidKey | None, now: float) -> ValidKey | None:
        with self._lock:
            self._valid.pop(digest, None)
            if valid_key is None:
                _evict_oldest(self._invalid_until, MAX_INVALID)
                self._invalid_until[digest] = now + INVALID_TTL_SECONDS
            else:
                _evict_oldest(self._valid, MAX_VALID)
                self._valid[digest] = _Entry(valid_key, now, now + REFRESH_SECONDS)
        return valid_key


def _evict_oldest(entries: dict[str, Any], size: int) -> None:
    while len(entries) >= size:
        del entries[next(iter(entries))]
