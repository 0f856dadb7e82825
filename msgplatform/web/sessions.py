"""Sessions of the console: in the database, with a copy in Redis that saves its question.

A copy that is gone, that cannot be read, or that this platform did not write for this very session
is as good as none. And nothing that can be read in Redis lets anybody in: the session's key is
stored as a digest, and the copy is signed together with it.
"""

from __future__ import annotations

import hashlib
from typing import Any

from django.contrib.sessions.backends import cached_db
from django.core import signing
from django.core.cache import caches

# A session that ended while Redis was away may live in its copy for so long.
COPY_SECONDS = 300


class SessionStore(cached_db.SessionStore):
    """Named by SESSION_ENGINE."""

    cache_key_prefix = "session:"

    def __init__(self, session_key: str | None = None) -> None:
        super().__init__(session_key)
        self._cache = _SignedCopies()


class _SignedCopies:
    """As much of a cache as a session store asks of one."""

    def __init__(self) -> None:
        self._cache = caches["default"]

    def get(self, key: str) -> dict[str, Any] | None:
        """Raises BadSignature, and what a serializer raises; a session store reads the database
        then."""
        text = self._cache.get(_digest(key))
        return None if text is None else signing.loads(text, salt=key, max_age=COPY_SECONDS)

    def set(self, key: str, data: dict[str, Any], timeout: int) -> None:
        signed = signing.dumps(data, salt=key)
        self._cache.set(_digest(key), signed, min(timeout, COPY_SECONDS))

    def delete(self, key: str) -> None:
        self._cache.delete(_digest(key))

    def __contains__(self, key: str) -> bool:
        return False  # the database knows


def _digest(key: str) -> str:
    return f"session:{hashlib.sha256(key.encode()).hexdigest()}"
