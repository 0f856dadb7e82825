"""Encrypts the payloads of systems whose setting asks for encryption at rest.

A change of the setting reaches a process within seconds. Stored payloads do not change.
"""

from __future__ import annotations

from functools import lru_cache

from msgplatform.core.daemons.snapshot import Snapshot
from msgplatform.core.secrets import encryption
from msgplatform.models import Biz


class _Systems(Snapshot[frozenset[int]]):
    def load(self) -> frozenset[int]:
        systems = Biz.objects.filter(encrypts_payloads=True)
        return frozenset(systems.values_list("id", flat=True))


@lru_cache(maxsize=1)
def _systems() -> _Systems:
    return _Systems(frozenset())


def forget() -> None:
    """Read the setting again at the next publish. Call it after a change in this process."""
    _systems.cache_clear()


def refresh() -> None:
    """Read the setting if the cached value is old. Call it outside of transactions."""
    _systems().refresh()


def stored(biz: int, payload: bytes) -> bytes:
    """The payload in the form in which it is stored."""
    return encryption.seal(payload) if biz in _systems().known else payload
