"""Messages per day, from the daily counters: by day, gateway, account and error code.

The pump counts each message once, with the ending that it had when it was archived. Counters of an
account have its id as their subject, those of a gateway its negative id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from django.db.models import Sum

from gateway import sgip
from gateway.models import SgipMt, SmsAccount, SmsGateway
from gateway.pump.rows import FLOW
from msgplatform.models import DayCounter

FINALS: tuple[str, ...] = tuple(SgipMt.Final.values)
_ERROR = "error "


@dataclass
class Line:
    """Counts under one heading: a day, a gateway or an account."""

    title: Any
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def sent(self) -> int:
        return sum(self.counts[final] for final in FINALS)

    @property
    def received(self) -> int:
        return self.counts["mo"]

    @property
    def success(self) -> float | None:
        """Of those whose ending is known, None without any."""
        known = self.counts["delivered"] + self.counts["failed"] + self.counts["expired"]
        return self.counts["delivered"] / known if known else None

    @property
    def finals(self) -> list[int]:
        return [self.counts[final] for final in FINALS]


@dataclass
class Statistics:
    days: list[Line]
    gateways: list[Line]
    accounts: list[Line]
    errors: list[tuple[int, str, int]]
    total: Line


def of(since: date, account: int | None = None, gateway: int | None = None) -> Statistics:
    """From this day on, of everything, of one account or of one gateway."""
    rows = list(_rows(since, account, gateway))
    days: dict[date, Line] = {}
    by_subject: dict[int, Line] = {}
    errors: Counter[str] = Counter()
    total = Line("")
    for day, subject, name, value in rows:
        by_subject.setdefault(subject, Line(subject)).counts[name] += value
        # Every message is counted for its account and for its gateway: one of them is enough.
        if (subject < 0) != (gateway is not None):
            continue
        days.setdefault(day, Line(day)).counts[name] += value
        total.counts[name] += value
        if name.startswith(_ERROR):
            errors[name.removeprefix(_ERROR)] += value
    return Statistics(
        days=[days[day] for day in sorted(days, reverse=True)],
        gateways=_named(SmsGateway, {-s: line for s, line in by_subject.items() if s < 0}),
        accounts=_named(SmsAccount, {s: line for s, line in by_subject.items() if s >= 0}),
        errors=[(int(c) if c.isdigit() else 0, _meaning(c), n) for c, n in errors.most_common()],
        total=total,
    )


def _rows(since: date, account: int | None, gateway: int | None) -> Any:
    rows = DayCounter.objects.filter(flow=FLOW, day__gte=since)
    if account is not None:
        rows = rows.filter(subject=account)
    if gateway is not None:
        rows = rows.filter(subject=-gateway)
    summed = rows.order_by().values("day", "subject", "name").annotate(total=Sum("value"))
    return summed.values_list("day", "subject", "name", "total")


def _named(model: Any, lines: dict[int, Line]) -> list[Line]:
    names = {row.pk: str(row) for row in model.objects.filter(pk__in=lines)}
    found = [Line(names.get(pk, str(pk)), line.counts) for pk, line in lines.items()]
    return sorted(found, key=lambda line: (-line.sent, line.title))


def _meaning(code: str) -> str:
    return sgip.result_text(int(code)) if code.isdigit() else code


def csv_rows(
    since: date, account: int | None = None, gateway: int | None = None
) -> Iterator[list[str]]:
    """Day, gateway or account, its name, counter, value; the header first."""
    yield ["day", "of", "name", "counter", "value"]
    rows = sorted(_rows(since, account, gateway), key=lambda row: row[:3])
    gateways = dict(SmsGateway.objects.values_list("pk", "name"))
    accounts = dict(SmsAccount.objects.values_list("pk", "name"))
    for day, subject, name, value in rows:
        names, pk = (gateways, -subject) if subject < 0 else (accounts, subject)
        kind = "gateway" if subject < 0 else "account"
        yield [day.isoformat(), kind, names.get(pk, str(pk)), name, str(value)]
