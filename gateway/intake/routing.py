"""Which gateways a message may take, the best one first."""

from __future__ import annotations

from django.utils.translation import gettext_noop

from gateway import presence
from gateway.directory import Account, Directory, Gateway
from msgplatform.core.daemons.timer import Every
from msgplatform.core.errors import InvalidInput
from msgplatform.core.lazy_text import lazy_message

_LOOK_SECONDS = 1.0  # processes report at once what changes with their links


class Router:
    """Asks for the links at most once a second, whatever the number of messages."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._bound: frozenset[int] = frozenset()
        self._next = Every(_LOOK_SECONDS)

    def route(self, account: Account, user_number: str) -> list[int]:
        """Gateway ids in the order in which they are tried. Raises InvalidInput."""
        fitting: list[tuple[Gateway, int]] = []  # with the length of the longest prefix that fits
        for gateway in self._directory.gateways.values():
            if account.gateways and gateway.id not in account.gateways:
                continue
            lengths = [len(p) for p in gateway.prefixes if user_number.startswith(p)]
            if lengths or not gateway.prefixes:  # without prefixes it takes every number
                fitting.append((gateway, max(lengths, default=0)))
        if not fitting:
            words = gettext_noop("no gateway takes %(number)s for this account")
            raise InvalidInput(lazy_message(words, number=user_number), "to")
        if self._next.take():
            self._bound = presence.bound(presence.live())
        bound_ids = self._bound  # another thread may replace it meanwhile
        # A link that is up, then the longest prefix, then the priority. All are in the list: when a
        # gateway is down, a sender moves its messages to the next one.
        by_rank = [
            (gateway.id not in bound_ids, -length, -gateway.row.priority, gateway.id)
            for gateway, length in fitting
        ]
        return [id for *_, id in sorted(by_rank)]
