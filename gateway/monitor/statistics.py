"""Messages per day, from the daily counters: by day, gateway, account, business system, SP number
and error code.

The pump counts each message once, with the ending that it had when it was archived, and its
segments: the short messages that the operator bills. Counters of an account have its id as their
subject, those of a gateway its negative id. An account's SP number is the one that it has now.
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
from gateway.pump.rows import FLOW, SEGMENTS
from msgplatform.models import Biz, DayCounter

FINALS: tuple[str, ...] = tuple(SgipMt.Final.values)
_ERROR = "error "


@dataclass
class Line:
    """Counts under one heading: a day, a gateway, an account, a system or an SP number."""

    title: Any
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def sent(self) -> int:
        return sum(self.counts[final] for final in FINALS)

    @property
    def segments(self) -> int:
        return self.counts[SEGMENTS]

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
    systems: list[Line]
    sp_numbers: list[Line]
    errors: list[tuple[int, str, int]]
    total: Line


def of(since: date, account: int | None = None, gateway: int | None = None) -> Statistics:
    """From this day on, of everything, of one account or of one gateway."""
    rows = list(_rows(since, account, gateway))
    days: dict[date, Line] = {}
    by_subject: dict[int, Line] = {}
    by_system: dict[int, Line] = {}
    errors: Counter[str] = Counter()
    total = Line("")
    for day, biz, subject, name, value in rows:
        by_subject.setdefault(subject, Line(subject)).counts[name] += value
        # Every message is counted for its account and for its gateway: one of them is enough.
        if (subject < 0) != (gateway is not None):
            continue
        days.setdefault(day, Line(day)).counts[name] += value
        by_system.setdefault(biz, Line(biz)).counts[name] += value
        total.counts[name] += value
        if name.startswith(_ERROR):
            errors[name.removeprefix(_ERROR)] += value
    # A negative subject is a gateway.
    by_account = {s: line for s, line in by_subject.items() if s >= 0}
    return Statistics(
        days=[days[day] for day in sorted(days, reverse=True)],
        gateways=_named(SmsGateway, {-s: line for s, line in by_subject.items() if s < 0}),
        accounts=_named(SmsAccount, by_account),
        systems=_named(Biz, by_system),
        sp_numbers=_by_sp_number(by_account),
        # (code, what it means, count); 0 for the platform's own reasons.
        errors=[
            (int(code), sgip.result_text(int(code)), n) if code.isdigit() else (0, code, n)
            for code, n in errors.most_common()
        ],
        total=total,
    )


def _rows(since: date, account: int | None, gateway: int | None) -> Any:
    rows = DayCounter.objects.filter(flow=FLOW, day__gte=since)
    if account is not None:
        rows = rows.filter(subject=account)
    if gateway is not None:
        rows = rows.filter(subject=-gateway)
    summed = rows.order_by().values("day", "biz_id", "subject", "name")
    return summed.annotate(total=Sum("value")).values_list(
        "day", "biz_id", "subject", "name", "total"
    )


def _named(model: Any, lines: dict[int, Line]) -> list[Line]:
    # One that was deleted keeps its counts, under its id.
    names = {row.pk: str(row) for row in model.objects.filter(pk__in=lines)}
    found = [Line(names.get(pk, str(pk)), line.counts) for pk, line in lines.items()]
    return sorted(found, key=lambda line: (-line.sent, line.title))


def _by_sp_number(accounts: dict[int, Line]) -> list[Line]:
    """Accounts that share a number, together; an account that was deleted has none."""
    numbers = dict(SmsAccount.objects.filter(pk__in=accounts).values_list("pk", "sp_number"))
    lines: dict[str, Line] = {}
    for pk, line in accounts.items():
        number = numbers.get(pk, "")
        lines.setdefault(number, Line(number)).counts.update(line.counts)
    return sorted(lines.values(), key=lambda line: (-line.sent, line.title))


def csv_rows(
    since: date, account: int | None = None, gateway: int | None = None
) -> Iterator[list[str]]:
    """Day, of what (gateway, account, system or SP number), its name, counter, value; the header
    first. Each message is in it once for each of these kinds."""
    yield ["day", "of", "name", "counter", "value"]
    gateways = dict(SmsGateway.objects.values_list("pk", "name"))
    accounts = dict(SmsAccount.objects.values_list("pk", "name"))
    numbers = dict(SmsAccount.objects.values_list("pk", "sp_number"))
    systems = dict(Biz.objects.values_list("pk", "name"))
    # Accounts of one number or system are added up.
    counts: Counter[tuple[str, ...]] = Counter()
    for day, biz, subject, name, value in _rows(since, account, gateway):
        if subject < 0:
            of = [("gateway", gateways.get(-subject, str(-subject)))]
        else:
            of = [
                ("account", accounts.get(subject, str(subject))),
                ("system", systems.get(biz, str(biz))),
                ("sp_number", numbers.get(subject, "")),
            ]
        for kind, title in of:
            counts[day.isoformat(), kind, title, name] += value
    for row, value in sorted(counts.items()):
        yield [*row, str(value)]
