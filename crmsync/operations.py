"""Counts of how the records of operations ended, for all programs.

    open ── each of its records is confirmed, replaced by a newer version, or dead ──> ended
    ended ── a record is sent again, dead or confirmed ──> open, until that record ends anew

A record ends once each time that it is sent; it is counted in the transaction that ends it.
"""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime

from django.db import models
from django.db.models import Case, F, Value, When

from crmsync.models import Operation
from msgplatform.core.data import chunks, claims

Endings = Mapping[tuple[int, str], int]  # (operation, "confirmed", "replaced" or "dead") → how many


def add_endings(counts: Endings, now: datetime) -> None:
    """Add to the counts, and end operations of which every record has ended."""
    # Operations with equal counts share a statement: usually all.
    by_change: dict[tuple[tuple[str, int], ...], list[int]] = defaultdict(list)
    of_operation: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for (operation, name), count in sorted(counts.items()):
        if operation and count:
            of_operation[operation].append((name, count))
    for operation, changes in of_operation.items():
        by_change[tuple(changes)].append(operation)
    for change, operations in by_change.items():
        for page in chunks(operations, claims.CHUNK):
            rows = Operation.objects.filter(id__in=page)
            rows.update(**{name: F(name) + count for name, count in change})
    total = F("confirmed") + F("replaced") + F("dead")
    for page in chunks(sorted(of_operation), claims.CHUNK):
        rows = Operation.objects.filter(id__in=page, end_at__isnull=True, records__lte=total)
        rows.update(
            end_at=int(now.timestamp() * 1000),
            result=Case(
                When(dead=0, then=Value(1)), default=Value(0),
                output_field=models.PositiveSmallIntegerField(),
            ),
        )  # fmt: skip


def take_back_endings(counts: Endings) -> None:
    """Take records that are sent again out of the counts. Their operations are open until these
    records end again. An operation with a smaller count stays as it is."""
    of_change: dict[tuple[str, int], list[int]] = defaultdict(list)
    for (operation, name), count in sorted(counts.items()):
        if operation and count:
            of_change[name, count].append(operation)
    for (name, count), operations in of_change.items():
        for page in chunks(operations, claims.CHUNK):
            rows = Operation.objects.filter(id__in=page, **{f"{name}__gte": count})
            rows.update(**{name: F(name) - count}, end_at=None, result=None)
