"""CSV files that are sent while they are written."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator

from django.http import StreamingHttpResponse

_FORMULA = ("=", "+", "-", "@", "\t")  # how a cell begins that spreadsheets run


def response(name: str, rows: Iterable[list[str]]) -> StreamingHttpResponse:
    """A file with this name, without `.csv`."""
    return StreamingHttpResponse(
        _lines(rows),
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}.csv"'},
    )


class _Echo:
    """A file that returns what is written to it, so that `csv` makes lines and keeps none."""

    def write(self, text: str) -> str:
        return text


def _lines(rows: Iterable[list[str]]) -> Iterator[str]:
    writer = csv.writer(_Echo())
    yield "\ufeff"  # by which spreadsheets recognise UTF-8
    for row in rows:
        # A spreadsheet would run a cell that begins like a formula; with ' it is a text.
        yield writer.writerow([f"'{cell}" if cell[:1] in _FORMULA else cell for cell in row])
