"""The demo's cast: business systems that publish, consumers that behave differently."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgplatform.api.access import keys
from msgplatform.models import Biz
from notify.demo.publisher import Accepted
from notify.models import BizReceive, Receive
from notify.subscriptions import signing

# Short, so that failing, recovering and giving up fit into a demo.
PATIENT = [1, 2, 3, 5, 8, 13]
SCHEDULE = [1, 1, 2, 2]


@dataclass(frozen=True)
class Consumer:
    """`sink` has the arguments of its process, `subscription` settings, `pattern` what it wants."""

    name: str
    behaviour: str
    sink: Sequence[str] = ()
    pattern: str = "*"
    schedule: Sequence[int] = tuple(SCHEDULE)
    subscription: Mapping[str, Any] = field(default_factory=dict)
    secret: str = ""

    @property
    def title(self) -> str:
        """In the console: whoever looks there sees that a failure is meant to be one."""
        title = self.name.replace("-", " ").capitalize()
        return f"{title} (demo: {self.behaviour})" if ON_PURPOSE in self.behaviour else title


def consumers() -> list[Consumer]:
    """The cast; each run with a fresh secret for the one that verifies."""
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
        Consumer(DEAD, f"always answers 500, {ON_PURPOSE}", ["--status", "500"]),
    ]  # fmt: skip


ON_PURPOSE = "on purpose"
DEAD = "retired-system"
VERIFYING = "auditors"
# name, which consumers subscribe
SYSTEMS: dict[str, list[str]] = {
    "orders": ["warehouse", "billing", "mailings", "auditors"],
    "customers": ["warehouse", "partner", "analytics"],
    "stock": ["warehouse", "auditors", DEAD],
}


def create(cast: Sequence[Consumer], urls: Mapping[str, str]) -> dict[str, str]:
    """Rows for business systems, consumers and subscriptions; an API key per business system."""
    rows = {}
    for consumer in cast:
        defaults = {"url": urls[consumer.name], "title": consumer.title}
        if consumer.secret:
            defaults["secret"] = consumer.secret
        rows[consumer.name], _ = Receive.objects.update_or_create(
            name=consumer.name, defaults=defaults
        )
    by_name = {consumer.name: consumer for consumer in cast}
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


def expected(cast: Sequence[Consumer], messages: Sequence[Accepted]) -> dict[str, set[str]]:
    """Which message ids each consumer must have, by what the client saw accepted."""
    ids_by_consumer: dict[str, set[str]] = {consumer.name: set() for consumer in cast}
    patterns = {consumer.name: consumer.pattern for consumer in cast}
    for message in messages:
        for name in SYSTEMS[message.system]:
            if fnmatch.fnmatchcase(message.event_type, patterns[name]):
                ids_by_consumer[name].add(message.id)
    return ids_by_consumer
