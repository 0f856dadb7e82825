"""Tell a person that something needs them.

`raise_alert` never raises: an alert that cannot be stored must not stop the work that noticed it.
The database store registers itself first; a flow may register as a further way out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from msgplatform.core import logging

log = logging.get(__name__)


@dataclass(frozen=True)
class AlertEvent:
    """`key` names the condition: the same key while open counts up instead of repeating."""

    kind: str
    subject: str
    text: str
    key: str
    resolved: bool = False


Handler = Callable[[AlertEvent], None]
_handlers: dict[str, Handler] = {}


def register(name: str, handler: Handler) -> None:
    """Hand every alert to `handler` too; the same name replaces."""
    _handlers[name] = handler


def raise_alert(kind: str, subject: str, text: str, key: str) -> None:
    """Raise, or count again, the alert `key`."""
    log.warning("alert_raised", kind=kind, subject=subject, key=key)
    _hand_out(AlertEvent(kind, subject, text, key))


def resolve(key: str) -> None:
    """The condition is over; nothing happens when no such alert is open."""
    _hand_out(AlertEvent("", "", "", key, resolved=True))


def _hand_out(event: AlertEvent) -> None:
    for name, handler in _handlers.items():
        try:
            handler(event)
        except Exception:
            log.exception("alert_not_delivered", handler=name, key=event.key)
