"""Pages of lists by keyset: no COUNT(*), no OFFSET, and nothing moves while rows are inserted.

A view may set `keyset_ordering`, for example ("-created_at", "-id"): fields without NULL, the last
one unique, with an index that begins with them. Rows are model instances or dicts of `.values()`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from django.core import signing
from django.db.models import Q
from rest_framework.pagination import BasePagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import remove_query_param, replace_query_param

from msgplatform.core.data import sql
from msgplatform.core.errors import InvalidInput

if TYPE_CHECKING:  # rest_framework.views imports this module
    from rest_framework.views import APIView


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
    cursor_help = "From `next` or `previous` of the page before"
    limit_param = "limit"

    def paginate_queryset(
        self, queryset: Any, request: Request, view: APIView | None = None
    ) -> list[Any]:
        self._request = request
        self._ordering = tuple(getattr(view, "keyset_ordering", self.ordering))
        limit = self._limit()
        cursor = self._cursor()
        order = self._ordering
        if cursor is not None:
            if cursor.backward:
                order = tuple(_flipped(name) for name in order)
            queryset = queryset.filter(_beyond(order, cursor.values))
        found = list(queryset.order_by(*order)[: limit + 1])
        page, more = found[:limit], len(found) > limit
        if cursor is not None and cursor.backward:
            page.reverse()
            self._next, self._previous = self._link(page, False), self._link(page, True, more)
        else:
            self._next, self._previous = (
                self._link(page, False, more),
                self._link(page, True, cursor is not None),
            )
        return page

    def get_paginated_response(self, data: Any) -> Response:
        return Response({"results": data, "next": self._next, "previous": self._previous})

    def _limit(self) -> int:
        raw = self._request.query_params.get(self.limit_param)
        if not raw:
            return self.default_limit
        if not re.fullmatch("[0-9]{1,9}", raw) or not 1 <= int(raw) <= self.max_limit:
            raise InvalidInput(f"Set it to a number from 1 to {self.max_limit}.", self.limit_param)
        return int(raw)

    def _cursor(self) -> Cursor | None:
        token = self._request.query_params.get(self.cursor_param)
        if not token:
            return None
        try:
            packed = self._signer().unsign(token)
            cursor = msgspec.json.decode(base64.urlsafe_b64decode(packed), type=Cursor)
        except (signing.BadSignature, binascii.Error, msgspec.DecodeError, ValueError):
            raise InvalidInput(
                "Take it unchanged from `next` or `previous` of this list, or leave it out.",
                self.cursor_param,
            ) from None
        return cursor

    def _link(self, page: Sequence[Any], backward: bool, there_is: bool = True) -> str | None:
        """The address of the page after the last row or before the first one."""
        url = self._request.build_absolute_uri()
        if not there_is:
            return None
        if not page:  # all rows beyond the cursor are gone: begin anew
            return remove_query_param(url, self.cursor_param)
        row = page[0] if backward else page[-1]
        values = [_value(row, name.lstrip("-")) for name in self._ordering]
        packed = base64.urlsafe_b64encode(msgspec.json.encode(Cursor(backward, values))).decode()
        return replace_query_param(url, self.cursor_param, self._signer().sign(packed))

    def _signer(self) -> signing.Signer:
        """Signed, so that a database never sees a value that did not come from a row."""
        return signing.Signer(sep=".", salt=f"cursor:{','.join(self._ordering)}")

    def get_schema_operation_parameters(self, view: APIView) -> list[dict[str, Any]]:
        return [
            {
                "name": self.cursor_param,
                "in": "query",
                "required": False,
                "description": self.cursor_help,
                "schema": {"type": "string"},
            },
            {
                "name": self.limit_param,
                "in": "query",
                "required": False,
                "description": "How many results a page has at most",
                "schema": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": self.max_limit,
                    "default": self.default_limit,
                },
            },
        ]

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        link = {"type": ["string", "null"], "format": "uri"}
        return {
            "type": "object",
            "required": ["results", "next", "previous"],
            "properties": {"results": schema, "next": link, "previous": link},
        }


class SincePagination(KeysetPagination):
    """A list that is followed: `?since_id=` names the last row that the caller has seen, and `next`
    does the same. The view's queryset begins behind that row; there is no way back."""

    cursor_param = "since_id"
    cursor_help = "Only what came after the one with this id"

    def paginate_queryset(
        self, queryset: Any, request: Request, view: APIView | None = None
    ) -> list[Any]:
        self._request = request
        limit = self._limit()
        order = getattr(view, "keyset_ordering", self.ordering)
        found = sql.first(queryset.order_by(*order), limit + 1)
        page = found[:limit]
        self._next, self._previous = None, None
        if len(found) > limit:
            url = request.build_absolute_uri()
            self._next = replace_query_param(url, self.cursor_param, str(page[-1].pk))
        return page


def _value(row: Any, name: str) -> Any:
    return row[name] if isinstance(row, Mapping) else getattr(row, name)


def _flipped(name: str) -> str:
    return name[1:] if name.startswith("-") else f"-{name}"


def _beyond(ordering: Sequence[str], values: Sequence[Any]) -> Q:
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
    bound = "lte" if first.startswith("-") else "gte"
    return Q((f"{first.lstrip('-')}__{bound}", values[0])) & condition
