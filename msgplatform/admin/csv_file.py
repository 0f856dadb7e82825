"""A report as a file that spreadsheets open."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator

from django.http import StreamingHttpResponse


def csv_response(name: str, rows: Iterable[list[str]]) -> StreamingHttpResponse:
    """Row by row while it is read. `name` is the file's, without `.csv`."""
    return StreamingHttpResponse(
        _lines(rows),
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}.csv"'},
    )


class _Echo:
    """A file that hands back what is written to it."""

    def write(self, text: str) -> str:
        return text


def _lines(rows: Iterable[list[str]]) -> Iterator[str]:
    writer = csv.writer(_Echo())
    yield "\ufeff"  # by which spreadsheets know that it is UTF-8
    for row in rows:
        yield writer.writerow([_safe(cell) for cell in row])


def _safe(cell: str) -> str:
    """A cell that a spreadsheet would run as a formula is kept a text."""
    return f"'{cell}" if cell[:1] in ("=", "+", "-", "@", "\t") else cell
