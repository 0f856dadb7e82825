"""Transfers that wait for their next job."""

from __future__ import annotations

from msgplatform.core.http.transfer import Transfer

_SPARE = 256  # about a megabyte; from then on those of another destination are used


class IdleTransfers:
    """Gives a destination the handle that it had before: most of its options are set already."""

    def __init__(self) -> None:
        self._by_url: dict[str, list[Transfer]] = {}  # no list is empty
        self._count = 0

    def take(self, url: str) -> Transfer | None:
        """The one last used for `url`; another one, or None, when there is none."""
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
        """All of them, to be closed."""
        transfers = [transfer for kept in self._by_url.values() for transfer in kept]
        self._by_url.clear()
        self._count = 0
        return transfers
