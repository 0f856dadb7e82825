"""Tell a person that something needs them.

`raise_alert` never raises: an alert that cannot be stored must not stop the work that noticed it.
The store says whether an alert is news; only news, opened or resolved, goes to the ways out.

Inside a transaction of the caller both wait for its commit, so that an alert neither breaks it nor
tells of what was rolled back. What must be told although the work is undone is raised outside.

`raise_alert` and `resolve` are for what happens; for what holds for a while, and can be looked up,
there is `reconcile`: a process that dies between the two leaves nothing open that is over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

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


@dataclass(frozen=True)
class Condition:
    """Something that needs a person as long as it holds; `key` is `kind:which`."""

    key: str
    subject: str
    text: str

    @property
    def kind(self) -> str:
        return self.key.partition(":")[0]


class Store(Protocol):
    """Where alerts are kept."""

    def store(self, event: AlertEvent) -> AlertEvent | None:
        """Returns what it is now when it was opened or resolved, None when it is no news."""

    def open_keys(self, kind: str) -> Collection[str]:
        """The keys `kind:…` of the alerts that are open."""

    def renew(self, conditions: Collection[Condition]) -> None:
        """Make those that are open say what holds now, and that it does; that is no news."""

    def open_kinds(self) -> Mapping[str, int]:
        """How many alerts of each kind are open."""


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
    raise_event(AlertEvent(kind, subject, text, key))


def raise_event(event: AlertEvent) -> None:
    """`raise_alert` for what was made before."""
    log.warning("alert_raised", kind=event.kind, subject=event.subject, key=event.key)
    _when_committed(event)


def resolve(key: str) -> None:
    """The condition is over; nothing happens when no such alert is open."""
    _when_committed(AlertEvent("", "", "", key, resolved=True))


def reconcile(
    kinds: Collection[str], holding: Iterable[Condition], undecided: Container[str] = ()
) -> bool:
    """Make the open alerts of these kinds say what holds now; it can be repeated at any time.

    Conditions that have no open alert are raised, those that have one renew what it says. Open
    alerts whose condition does not hold are resolved, but for the keys in `undecided`, of which
    this process cannot say whether it does. Raises nothing but what `holding` does; False when the
    open alerts could not be read, and nothing was done.
    """
    try:
        opened = {key for store in _stores for kind in kinds for key in store.open_keys(kind)}
    except Exception:
        log.exception("open_alerts_not_read", kinds=sorted(kinds))
        return False
    wanted = {condition.key: condition for condition in holding}
    for key, condition in wanted.items():
        if key not in opened:
            raise_alert(condition.kind, condition.subject, condition.text, key)
    _renew([condition for key, condition in wanted.items() if key in opened])
    for key in sorted(opened - wanted.keys()):
        if key not in undecided:
            resolve(key)
    return True


def open_kinds() -> dict[str, int]:
    """How many alerts of each kind are open; raises what its store does."""
    return {kind: count for store in _stores for kind, count in store.open_kinds().items()}


def _renew(conditions: Collection[Condition]) -> None:
    try:
        for store in _stores:
            store.renew(conditions)
    except Exception:
        log.exception("alerts_not_renewed", keys=len(conditions))


def _when_committed(event: AlertEvent) -> None:
    if sql.in_transaction():
        transaction.on_commit(partial(_hand_out, event), robust=True)
    else:
        _hand_out(event)


def _hand_out(event: AlertEvent) -> None:
    news: AlertEvent | None = event
    try:
        for store in _stores:
            news = store.store(event)
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
