"""Posts of an author and relations of a user, page by page from an index."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from django.db import connection
from django.db.models import Model, Q, QuerySet

from msgplatform.core.data import sql
from notify.feed.models import Feed, Friend
from notify.feed.models.posts import Topic

# Rows that a page looks at, and at once after the first ones: deleted posts stay in the table, and
# a filter may fit hardly any.
MOST, _AT_ONCE = 5_000, 1_000


class Merged:
    """Rows of one business system that lie in several places of an index, in one order. It has as
    much of a queryset's interface as pagination needs.

    All places are read by one statement, so that a row that another process moves from one place to
    another meanwhile is found once.
    """

    def __init__(self, parts: Sequence[QuerySet[Any]]) -> None:
        self.model: type[Model] = parts[0].model
        self._parts = list(parts)
        self._order: tuple[str, ...] = ()

    def filter(self, *conditions: Q) -> Merged:
        other = copy.copy(self)
        other._parts = [part.filter(*conditions) for part in self._parts]
        return other

    def order_by(self, *names: str) -> Merged:
        other = copy.copy(self)
        other._order = names
        return other

    def __getitem__(self, wanted: slice) -> list[Any]:
        return self._first(wanted.stop)

    def _first(self, count: int) -> list[Any]:
        names = [field.attname for field in self.model._meta.concrete_fields if field.column]
        statements: list[str] = []
        given: list[Any] = []
        # All rows are one system's, and their indexes begin with it (see `sql.of_one`).
        first = "-biz_id" if self._order[0].startswith("-") else "biz_id"
        for number, part in enumerate(self._parts):
            rows = part.order_by(first, *self._order).values(*names)[:count]
            statement, parameters = rows.query.sql_with_params()
            statements.append(f"SELECT * FROM ({statement}) AS part{number}")  # noqa: S608
            given += parameters
        with connection.cursor() as cursor:
            cursor.execute(" UNION ALL ".join(statements), given)
            rows_read = cursor.fetchall()
        found = [self.model(**dict(zip(names, map(_aware, row), strict=True))) for row in rows_read]
        # Stable, so the least significant name comes first.
        for name in reversed(self._order):
            column = name.lstrip("-")
            found.sort(key=lambda row: getattr(row, column), reverse=name.startswith("-"))
        return found[:count]


class Rows(list[Any]):
    """Rows of a page; `reached` is the last one that was looked at, when the page ends there
    because it has looked at enough."""

    reached: Any = None


class Fitting(Merged):
    """Of all rows those that fit, which may be hardly any. Ordered by one unique column."""

    def __init__(self, parts: Sequence[QuerySet[Any]], fits: Callable[[Any], bool]) -> None:
        super().__init__(parts)
        self._fits = fits

    def __getitem__(self, wanted: slice) -> Rows:
        rest: Merged = self
        found, seen, count = Rows(), 0, wanted.stop
        (name,) = self._order
        beyond = f"{name.lstrip('-')}__{'lt' if name.startswith('-') else 'gt'}"
        while True:
            some = rest._first(count)
            found += filter(self._fits, some)
            if len(found) >= wanted.stop or len(some) < count:
                del found[wanted.stop :]
                return found
            last, seen = some[-1], seen + count
            if seen >= MOST:
                found.reached = last
                return found
            rest = rest.filter(Q((beyond, getattr(last, name.lstrip("-")))))
            count = max(count, min(8 * count, _AT_ONCE))


def _aware(value: Any) -> Any:
    # A raw cursor gives times as they are stored: UTC, without a zone.
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) else value


def posts(
    biz: int, uid: str, topic: str | None = None, app_id: str = "", src_type: str = ""
) -> Fitting:
    """Posts of an author that are not deleted, to be ordered by id."""
    rows = _of(Feed, biz).filter(uid=uid)
    parts = [rows.filter(topic=each) for each in ([topic] if topic else Topic.values)]
    return Fitting(
        parts,
        lambda post: (
            post.delete_date is None
            and app_id in ("", post.app_id)
            and src_type in ("", post.src_type)
        ),
    )


def recipients(biz: int, uid: str, relation: str) -> Merged:
    """Users who receive posts of `uid` (or have blocked this user), to be ordered by `fri_uid`."""
    return Merged([_of(Friend, biz).filter(uid=uid, relation=relation)])


def authors(biz: int, uid: str, relation: str) -> Merged:
    """Users whose posts `uid` receives (or whom this user has blocked), to be ordered by `uid`."""
    rows = _of(Friend, biz).filter(fri_uid=uid, relation=relation)
    return Merged([rows.filter(delivery=delivery) for delivery in Friend.Delivery.values])


def _of(model: type[Model], biz: int) -> QuerySet[Any]:
    return sql.of_one(model._default_manager.all(), "biz_id", biz)
