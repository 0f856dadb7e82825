"""Transfers that wait for their next job."""

from __future__ import annotations

from msgplatform.core.http.transfer import Transfer

# From this many idle handles on (about a megabyte) those of other destinations are reused.
_SPARE = 256


class IdleTransfers:
    """Idle handles by destination: a handle that served it has most of its options already."""

    def __init__(self) -> None:
        self._by_url: dict[str, list[Transfer]] = {}  # no list is empty
        self._count = 0

    def take(self, url: str) -> Transfer | None:
        """The handle last used for `url`; if there is none, one of another destination or None."""
        kept = self._by_url.get(url)
        if kept is None:
            if self._count < _SPARE:
                return None
            url = next(iter(self._by_url))
            kept = self._by_url[url]
        transfer = kept.pop()
        if not kept:
            del self._by_url[url]
        self._count -= 1
        return transfer

    def put(self, transfer: Transfer) -> None:
        self._count += 1
        url = transfer.job.destination.url
        if kept := self._by_url.get(url):
            kept.append(transfer)
        else:
            self._by_url[url] = [transfer]

    def clear(self) -> list[Transfer]:
        """Remove and return all, for the caller to close."""
        transfers = [transfer for kept in self._by_url.values() for transfer in kept]
        self._by_url.clear()
        self._count = 0
        return transfers
