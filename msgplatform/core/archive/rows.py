"""Rows of an archive with all that belongs to them."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction

from msgplatform.core.archive.description import Table
from msgplatform.core.data.chunks import chunks
from msgplatform.core.failpoints import failpoint

CHUNK = 500  # ids in one statement


def delete_whole(table: Table, row_ids: Sequence[int]) -> None:
    """Delete rows with all that belongs to them, in one transaction."""
    with transaction.atomic(using=table.using, savepoint=False):
        for some in chunks(row_ids, CHUNK):
            for part in table.parts:
                delete_whole(part, list(part.of_these(some).values_list("id", flat=True)))
            failpoint("archive_half_gone")
            table.rows().filter(**{f"{table.column}__in": some}).delete()
