"""Tell a person that something needs them.

`raise_alert` never raises: an alert that cannot be stored must not stop the work that noticed it.
The store says whether an alert is news; only news, opened or resolved, goes to the ways out.

Inside a transaction of the caller both wait for its commit, so that an alert neither breaks it nor
tells of what was rolled back. What must be told although the work is undone is raised outside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from django.db import transaction

from msgplatform.core import logging
from msgplatform.core.data import sql

log = logging.get(__name__)


@dataclass(frozen=True)
class AlertEvent:
    """`key` names the condition: the same key while open counts up instead of repeating."""

    kind: str
    subject: str
    text: str
    key: str
    resolved: bool = False
    # As it was stored:
    id: int = 0
    count: int = 1


# Stores the event; returns what it is now when it was opened or resolved, None when it is no news.
Store = Callable[[AlertEvent], AlertEvent | None]
Handler = Callable[[AlertEvent], None]
_handlers: dict[str, Handler] = {}
_stores: list[Store] = []


def set_store(store: Store) -> None:
    """Keep alerts here; without a store every alert is news."""
    _stores[:] = [store]


def register(name: str, handler: Handler) -> None:
    """A way out: hand what is news to `handler`, outside of transactions; the same name replaces.

    It may be called again for the same `id`, by another process that noticed it at the same time.
    """
    _handlers[name] = handler


def raise_alert(kind: str, subject: str, text: str, key: str) -> None:
    """Raise, or count again, the alert `key`."""
    log.warning("alert_raised", kind=kind, subject=subject, key=key)
    _when_committed(AlertEvent(kind, subject, text, key))


def resolve(key: str) -> None:
    """The condition is over; nothing happens when no such alert is open."""
    _when_committed(AlertEvent("", "", "", key, resolved=True))


def _when_committed(event: AlertEvent) -> None:
    if sql.in_transaction():
        transaction.on_commit(partial(_hand_out, event), robust=True)
    else:
        _hand_out(event)


def _hand_out(event: AlertEvent) -> None:
    news: AlertEvent | None = event
    try:
        for store in _stores:
            news = store(event)
    except Exception:
        log.exception("alert_not_stored", key=event.key)
        return
    if news is None:
        return
    for name, handler in _handlers.items():
        try:
            handler(news)
        except Exception:
            log.exception("alert_not_delivered", handler=name, key=event.key)
