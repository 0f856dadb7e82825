"""The scenario of Notify: business systems that publish, consumers that behave differently."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgplatform.api.access import keys
from msgplatform.models import Biz
from notify.demo.traffic import Accepted
from notify.models import BizReceive, Receive
from notify.subscriptions import signing

# Short, so that failing, recovering and giving up fit into a demo.
PATIENT = [1, 2, 3, 5, 8, 13]
SCHEDULE = [1, 1, 2, 2]
# Short: each probe of an open breaker is an attempt, and the last deliveries end by these alone.
DEAD_SCHEDULE = [1]


@dataclass(frozen=True)
class Consumer:
    """`sink` are arguments of its process, `subscription` settings, `pattern` event types."""

    name: str
    behaviour: str
    sink: Sequence[str] = ()
    pattern: str = "*"
    schedule: Sequence[int] = tuple(SCHEDULE)
    subscription: Mapping[str, Any] = field(default_factory=dict)
    secret: str = ""

    @property
    def title(self) -> str:
        """Its title in the console, which tells that a failure is on purpose."""
        title = self.name.replace("-", " ").capitalize()
        return f"{title} (demo: {self.behaviour})" if ON_PURPOSE in self.behaviour else title


def consumers() -> list[Consumer]:
    """The consumers, with a fresh secret for the one that verifies."""
    secret = signing.new_secret()
    return [
        Consumer("warehouse", "answers at once"),
        Consumer("billing", "is slow: 0.2 s an answer", ["--delay", "0.2"], "*.rare"),
        Consumer("mailings", f"refuses one in ten once, {ON_PURPOSE}", ["--fail-every", "10"]),
        Consumer(
            "analytics", f"is down for its first 4 s, {ON_PURPOSE}", ["--down-for", "4"],
            schedule=PATIENT,
        ),
        Consumer(
            "auditors", "verifies every signature", ["--secret", secret], secret=secret
        ),
        Consumer(
            "partner", "takes 400 a second", subscription={"rate_limit": 400.0}, pattern="*.rare"
        ),
        Consumer(
            DEAD, f"always answers 500, {ON_PURPOSE}", ["--status", "500"], schedule=DEAD_SCHEDULE
        ),
    ]  # fmt: skip


ON_PURPOSE = "on purpose"
DEAD = "retired-system"
VERIFYING = "auditors"
# Business system → the consumers that subscribe to it.
SYSTEMS: dict[str, list[str]] = {
    "orders": ["warehouse", "billing", "mailings", "auditors"],
    "customers": ["warehouse", "partner", "analytics"],
    "stock": ["warehouse", "auditors", DEAD],
}


def create(consumers: Sequence[Consumer], urls: Mapping[str, str]) -> dict[str, str]:
    """Rows for business systems, consumers and subscriptions; an API key per business system."""
    rows = {}
    for consumer in consumers:
        defaults = {"url": urls[consumer.name], "title": consumer.title}
        if consumer.secret:
            defaults["secret"] = consumer.secret
        rows[consumer.name], _ = Receive.objects.update_or_create(
            name=consumer.name, defaults=defaults
        )
    by_name = {consumer.name: consumer for consumer in consumers}
    tokens = {}
    for name, subscribers in SYSTEMS.items():
        biz, _ = Biz.objects.get_or_create(name=name, defaults={"title": name.title()})
        _, tokens[name] = keys.create(biz, "demo", ["events:write", "events:read"])
        for subscriber in subscribers:
            consumer = by_name[subscriber]
            BizReceive.objects.update_or_create(
                biz=biz,
                receive=rows[subscriber],
                defaults={
                    "schedule": list(consumer.schedule),
                    "event_types": [] if consumer.pattern == "*" else [consumer.pattern],
                    **consumer.subscription,
                },
            )
    return tokens


def expected(consumers: Sequence[Consumer], messages: Sequence[Accepted]) -> dict[str, set[str]]:
    """The ids of the messages that each consumer must get, of those that were accepted."""
    ids: dict[str, set[str]] = {consumer.name: set() for consumer in consumers}
    patterns = {consumer.name: consumer.pattern for consumer in consumers}
    for message in messages:
        for name in SYSTEMS[message.system]:
            if fnmatch.fnmatchcase(message.event_type, patterns[name]):
                ids[name].add(message.id)
    return ids
