"""Alerts report problems to people.

    none ── raise_alert ──▶ open ── resolve ──▶ resolved
                            open ── raise_alert with the same key ──▶ open, counted up

`raise_alert` never raises an error: an alert that cannot be stored must not stop the work that
noticed it. While the database is unavailable, the process keeps its alerts for `hand_out_waiting`.
Registered handlers get only changes: opened, resolved.

Inside a transaction of the caller, `raise_alert` and `resolve` wait for its commit: an alert
neither breaks the transaction nor reports what was rolled back. To report work that is rolled back,
raise the alert outside.

`raise_alert` and `resolve` are for events. `reconcile` is for conditions that hold for a while and
can be looked up: even if a process dies, no alert stays open after its condition.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Protocol, Self

import msgspec
from django.db import DatabaseError, transaction
from django.utils import timezone

from msgplatform.core import logging
from msgplatform.core.data import transactions
from msgplatform.core.errors import UNAVAILABLE
from msgplatform.core.lazy_text import lazy_message

log = logging.get(__name__)


def moment(at: datetime) -> str:
    """A time in the texts of alerts."""
    return timezone.localtime(at).strftime("%Y-%m-%d %H:%M %Z")


def _text(message: str, values: Mapping[str, object]) -> str:
    parameters = {name: value for name, value in values.items() if f"%({name})" in message}
    return lazy_message(message, **parameters)


class AlertEvent(msgspec.Struct, frozen=True):
    """`key` names the condition: raising the same key again increases the count of the open
    alert."""

    kind: str
    subject: str
    text: str
    key: str
    resolved: bool = False
    # Set by the store:
    id: int = 0
    count: int = 1

    @classmethod
    def of(cls, key: str, subject: str, text: str, /, **values: object) -> Self:
        """An event whose kind begins the key. The two messages share the values."""
        kind = key.partition(":")[0]
        return cls(kind, _text(subject, values), _text(text, values), key)


class Condition(msgspec.Struct, frozen=True):
    """A state that needs a person while it holds; `key` is `kind:which`."""

    key: str
    subject: str
    text: str

    @classmethod
    def of(cls, key: str, subject: str, text: str, /, **values: object) -> Self:
        """A condition with two messages (see `lazy_message`), which share the values."""
        return cls(key, _text(subject, values), _text(text, values))

    @property
    def kind(self) -> str:
        return self.key.partition(":")[0]


class Store(Protocol):
    """Keeps alerts."""

    def store(self, event: AlertEvent) -> AlertEvent | None:
        """The stored event if this call opened or resolved the alert, else None."""

    def open_keys(self, kind: str) -> Collection[str]:
        """The keys `kind:…`, or the kind itself, of the open alerts."""

    def renew(self, conditions: Collection[Condition]) -> None:
        """Update the texts and times of these open alerts, without reporting a change."""

    def open_kinds(self) -> Mapping[str, int]:
        """Kind → number of open alerts."""


class Sender(Protocol):
    """Carries alerts to people."""

    def turn(self, may_start: bool) -> None:
        """Begin the sends that are due, without waiting for them. With `may_start` off only store
        the results of sends that this process has begun."""


Handler = Callable[[AlertEvent], None]
_handlers: dict[str, Handler] = {}
stores: list[Store] = []  # one; without it every alert counts as a change
# Makes the sender of a program's watch; without it alerts stay in the console.
sender_makers: list[Callable[[], Sender]] = []
# Alerts of this process that came while the database was away; the oldest are dropped.
_waiting: deque[AlertEvent] = deque(maxlen=100)


def register(name: str, handler: Handler) -> None:
    """Call `handler` for each change, outside of transactions; the same name replaces a handler.

    Another process that noticed the same change may call its handler for the same `id` again.
    """
    _handlers[name] = handler


def raise_alert(kind: str, subject: str, text: str, key: str) -> None:
    """Raise, or count again, the alert `key`."""
    raise_event(AlertEvent(kind, subject, text, key))


def raise_event(event: AlertEvent, comes_again: bool = False) -> None:
    """`raise_alert` for an event. `comes_again`: the caller raises the event again while no alert
    is open."""
    log.warning("alert_raised", kind=event.kind, subject=event.subject, key=event.key)
    _when_committed(event, comes_again)


def resolve(key: str, comes_again: bool = False) -> None:
    """Resolve the open alert of this key, if there is one. `comes_again`: the caller looks at the
    condition again."""
    _when_committed(_resolution(key), comes_again)


def reconcile(
    kinds: Collection[str],
    holding: Iterable[Condition],
    is_undecided: Callable[[str], bool] = lambda key: False,
) -> bool:
    """Make the open alerts of these kinds match what holds now; it can be repeated at any time.

    A condition without an open alert raises one; a condition with one renews its text. Open alerts
    whose condition does not hold are resolved, except for keys that are undecided: this process
    does not know their condition. Raises only what iterating `holding` raises; returns False if the
    open alerts could not be read, and nothing was done.
    """
    try:
        # Read open alerts first, so that an alert which is raised meanwhile is not resolved.
        open_keys = {key for store in stores for kind in kinds for key in store.open_keys(kind)}
    except Exception as error:  # noqa: BLE001 - whatever it is, the caller goes on
        _log_error("open_alerts_not_read", error, kinds=sorted(kinds))
        return False
    conditions = {condition.key: condition for condition in holding}
    for key, condition in conditions.items():
        if key not in open_keys:
            event = AlertEvent(condition.kind, condition.subject, condition.text, key)
            raise_event(event, comes_again=True)
    try:
        for store in stores:
            store.renew([condition for key, condition in conditions.items() if key in open_keys])
    except Exception as error:  # noqa: BLE001 - whatever it is, the caller goes on
        _log_error("alerts_not_renewed", error, keys=len(open_keys & conditions.keys()))
    for key in sorted(open_keys - conditions.keys()):
        if not is_undecided(key):
            _when_committed(_resolution(key), comes_again=True)
    return True


def hand_out_waiting() -> None:
    """Store the alerts that came while the database was away."""
    for _ in range(len(_waiting)):
        _hand_out(_waiting.popleft(), comes_again=False)


def open_kinds() -> dict[str, int]:
    """Kind → number of open alerts. Raises the errors of the store."""
    return {kind: count for store in stores for kind, count in store.open_kinds().items()}


def _resolution(key: str) -> AlertEvent:
    return AlertEvent("", "", "", key, resolved=True)


def _when_committed(event: AlertEvent, comes_again: bool = False) -> None:
    if transactions.is_in_transaction():
        # robust: an error here must not keep the caller's other hooks from running.
        transaction.on_commit(partial(_hand_out, event, comes_again), robust=True)
    else:
        _hand_out(event, comes_again)


def _log_error(event: str, error: Exception, **facts: object) -> None:
    """Log an error of the store; a warning if a server is unavailable: the work is repeated."""
    if isinstance(error, UNAVAILABLE):
        log.warning(event, why=str(error)[:200], **facts)
    else:
        log.error(event, exc_info=error, **facts)


def _hand_out(event: AlertEvent, comes_again: bool) -> None:
    change: AlertEvent | None = event
    try:
        for store in stores:
            change = store.store(event)
    except Exception as error:
        is_away = isinstance(error, DatabaseError) and transactions.is_away(error)
        if is_away and not comes_again:
            _waiting.append(event)
        if is_away or comes_again:
            _log_error("alert_not_stored", error, key=event.key)
        else:
            log.error("alert_not_stored", exc_info=error, key=event.key)
        return
    if change is None:
        return
    for name, handler in _handlers.items():
        try:
            handler(change)
        except Exception:
            # The alert is stored and in the console; a broken handler must not stop other handlers.
            log.exception("alert_not_delivered", handler=name, key=event.key)
