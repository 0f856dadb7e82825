"""Pages of lists by keyset: no COUNT(*), no OFFSET, and inserted rows do not shift the pages.

A view may set `keyset_ordering`, for example ("-created_at", "-id"): fields without NULL, the last
one unique, with an index that begins with them. Rows are model instances or dicts of `.values()`.
It may also set `keyset_within`: columns that all rows of the list have in common, as `sql.of_one`
selects them, when the index begins with these.
"""

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from django.core import signing
from django.db.models import Q
from rest_framework.pagination import BasePagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import remove_query_param, replace_query_param

from msgplatform.core.data import sql
from msgplatform.core.errors import InvalidInput
from msgplatform.doors.api.converters import ID


class Cursor(NamedTuple):
    """The row next to which a page begins, and whether the page lies before it."""

    backward: bool
    values: list[Any]


class KeysetPagination(BasePagination):
    """`{"results": […], "next": url or null, "previous": url or null}`; `?limit=`, `?cursor=`."""

    ordering: tuple[str, ...] = ("-id",)
    default_limit = 50
    max_limit = 200
    cursor_param = "cursor"
    cursor_help = "From `next` or `previous` of another page"
    cursor_schema: Mapping[str, Any] = {"type": "string"}
    limit_param = "limit"

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> list[Any]:
        self._request = request
        self._ordering = tuple(getattr(view, "keyset_ordering", self.ordering))
        limit = self._limit()
        cursor = None
        if token := request.query_params.get(self.cursor_param):
            try:
                token_text = self._signer().unsign(token)
                cursor = msgspec.json.decode(base64.urlsafe_b64decode(token_text), type=Cursor)
            except (signing.BadSignature, binascii.Error, msgspec.DecodeError, ValueError):
                raise InvalidInput(
                    "Use the cursor of `next` or `previous` of this list unchanged, or none.",
                    self.cursor_param,
                ) from None
        is_backward = cursor is not None and cursor.backward
        order = self._ordering
        if is_backward:
            order = tuple(name[1:] if name.startswith("-") else f"-{name}" for name in order)
        if cursor is not None:
            queryset = queryset.filter(_condition_beyond(order, cursor.values))
        sign = "-" if order[0].startswith("-") else ""
        prefix = [f"{sign}{name}" for name in getattr(view, "keyset_within", ())]
        # One row more than the page tells whether there is a next page, without a COUNT.
        page_and_next = list(queryset.order_by(*prefix, *order)[: limit + 1])
        page = page_and_next[:limit]
        has_more = len(page_and_next) > limit
        if is_backward:
            page.reverse()  # read upwards from the cursor, and shown in the list's order
        # The neighbours of the page begin beside these rows.
        first, last = page[:1], page[-1:]
        has_next = is_backward or has_more
        has_previous = has_more if is_backward else cursor is not None
        self._next = self._link(last, backward=False) if has_next else None
        self._previous = self._link(first, backward=True) if has_previous else None
        return page

    def get_paginated_response(self, data: Any) -> Response:
        return Response({"results": data, "next": self._next, "previous": self._previous})

    def _limit(self) -> int:
        raw = self._request.query_params.get(self.limit_param)
        if not raw:
            return self.default_limit
        if not re.fullmatch("[0-9]{1,9}", raw) or not 1 <= int(raw) <= self.max_limit:
            raise InvalidInput(f"Use a number from 1 to {self.max_limit}.", self.limit_param)
        return int(raw)

    def _link(self, rows: Sequence[Any], backward: bool) -> str:
        """The address of the page after this row, or before it with `backward`; of the first page
        without a row, because all rows beyond the cursor have been deleted."""
        url = self._request.build_absolute_uri()
        if not rows:
            return remove_query_param(url, self.cursor_param)
        (row,) = rows
        names = [name.lstrip("-") for name in self._ordering]
        values = [row[name] if isinstance(row, Mapping) else getattr(row, name) for name in names]
        cursor_text = base64.urlsafe_b64encode(
            msgspec.json.encode(Cursor(backward, values))
        ).decode()
        return replace_query_param(url, self.cursor_param, self._signer().sign(cursor_text))

    def _signer(self) -> signing.Signer:
        """Cursors are signed, so that the database gets only values that came from a row."""
        # The salt has the ordering: a cursor of another list has values of other columns.
        return signing.Signer(sep=".", salt=f"cursor:{','.join(self._ordering)}")

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        limits = {"minimum": 1, "maximum": self.max_limit, "default": self.default_limit}
        parameters = (
            (self.cursor_param, self.cursor_help, dict(self.cursor_schema)),
            (self.limit_param, "The most results of a page", {"type": "integer", **limits}),
        )
        return [
            {"name": name, "in": "query", "required": False, "description": text, "schema": schema}
            for name, text, schema in parameters
        ]

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        link = {"type": ["string", "null"], "format": "uri"}
        return {
            "type": "object",
            "required": ["results", "next", "previous"],
            "properties": {"results": schema, "next": link, "previous": link},
        }


class SincePagination(KeysetPagination):
    """A list that a caller follows: `?since_id=` is the id of the last row it has seen, as in
    `next`. The view's queryset begins after that row; there is no `previous`."""

    cursor_param = "since_id"
    cursor_help = "Only results after the one with this id"
    cursor_schema = ID

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> list[Any]:
        self._request = request
        limit = self._limit()
        order = getattr(view, "keyset_ordering", self.ordering)
        rows = sql.first(queryset.order_by(*order), limit + 1)
        page = rows[:limit]
        self._next, self._previous = None, None
        if len(rows) > limit:
            url = request.build_absolute_uri()
            self._next = replace_query_param(url, self.cursor_param, str(page[-1].pk))
        return page


def _condition_beyond(ordering: Sequence[str], values: Sequence[Any]) -> Q:
    """(a, b) beyond (1, 2) as `a >= 1 AND (a > 1 OR a = 1 AND b > 2)`: the first term lets the
    database enter the index at the right place."""
    condition, equal = Q(), Q()
    for name, value in zip(ordering, values, strict=True):
        field = name.lstrip("-")
        direction = "lt" if name.startswith("-") else "gt"
        condition |= equal & Q((f"{field}__{direction}", value))
        equal &= Q((field, value))
    if len(ordering) == 1:
        return condition
    first = ordering[0]
    first_bound = "lte" if first.startswith("-") else "gte"
    return Q((f"{first.lstrip('-')}__{first_bound}", values[0])) & condition
