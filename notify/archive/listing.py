"""Hot and archived messages as one list, for the API.

`Messages` is as much of a queryset as pagination and views ask of one: `filter`, `order_by`, a
slice, `get`. It gives `BizMsg` instances with their copies (and attempts) read; an archived one
is such an instance too, made from the archive's row, with `archived` set.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from django.db import models
from django.db.models import Model, Q
from django.utils import timezone

from msgplatform.core.archive.ages import horizon
from msgplatform.core.data import sql
from msgplatform.core.data.chunks import chunks
from msgplatform.core.errors import Unavailable
from notify.archive import ages, stores
from notify.archive.stores import Place, reading
from notify.models import Attempt, BizMsg, ReceiveMsg

_CHUNK = 500
_Row = TypeVar("_Row", bound=Model)


class Messages:
    """Messages of one business system, newest first unless `order_by` says otherwise."""

    model = BizMsg

    def __init__(
        self, biz_id: int, event_type: str = "", attempts: bool = False, payload: bool = False
    ) -> None:
        """Of one event type, or of all; without `payload` that is not read."""
        self._biz_id, self._event_type = biz_id, event_type
        self._conditions = list[Q]()
        self._attempts, self._payload = attempts, payload
        self._order: tuple[str, ...] = ("-id",)

    def filter(self, *conditions: Q, **named: Any) -> Messages:
        """On columns that both tables have."""
        other = copy.copy(self)
        other._conditions = [*self._conditions, *conditions, Q(**named)]
        return other

    def order_by(self, *names: str) -> Messages:
        """Only by id, up or down: rows of two tables are merged."""
        if names not in (("id",), ("-id",)):
            raise ValueError("messages are ordered by id")
        other = copy.copy(self)
        other._order = names
        return other

    def get(self, **named: Any) -> BizMsg:
        """The one message. Raises BizMsg.DoesNotExist, or Unavailable when it is not a hot one
        and the archive cannot be read."""
        for place in (stores.hot(), stores.cold()):
            with reading(place):
                if found := self.filter(**named)._read(place, 1):
                    return found[0]
        raise BizMsg.DoesNotExist

    def __getitem__(self, wanted: slice) -> list[BizMsg]:
        """The first n. Raises Unavailable when archived ones belong among them and cannot be
        read."""
        if not isinstance(wanted, slice) or wanted.start or wanted.step or wanted.stop is None:
            raise TypeError("only the first messages, [:n], can be read")
        found = {message.pk: message for message in self._read(stores.hot(), wanted.stop)}
        cold = stores.cold()
        try:
            with reading(cold):
                archived = self._read(cold, wanted.stop)
        except Unavailable:
            if not self._complete(sorted(found), wanted.stop):
                raise
            archived = []
        for message in archived:
            found.setdefault(message.pk, message)
        ordered = sorted(found.values(), key=lambda m: m.pk, reverse=self._order == ("-id",))
        return ordered[: wanted.stop]

    def _complete(self, hot: Sequence[int], size: int) -> bool:
        """Whether a page needs no archive: it is full, and too young for it."""
        if len(hot) < size or self._order != ("-id",):
            return False
        return hot[0] >= horizon(timezone.now(), ages.keep())

    def _read(self, place: Place, size: int) -> list[BizMsg]:
        sign = "-" if self._order == ("-id",) else ""
        rows = sql.of_one(place.messages, "biz_id", self._biz_id).filter(*self._conditions)
        rows = rows.order_by(f"{sign}biz_id", *self._order)
        if self._event_type:
            rows = sql.of_one(rows, "event_type", self._event_type)
            rows = rows.order_by(f"{sign}biz_id", f"{sign}event_type", *self._order)
        hidden = [] if self._payload else ["payload"]
        hidden += ["key", "archived_at"] if place.cold else []
        messages = [_message(row, place.cold) for row in rows.defer(*hidden)[:size]]
        _add_copies(place, messages, self._attempts)
        return messages


def _message(row: Any, archived: bool) -> BizMsg:
    message: BizMsg = row
    if archived:
        message = _instance(
            BizMsg,
            row,
            ("id", "biz_id", "event_type", "channel", "created_at"),
            payload=row.__dict__.get("payload", models.DEFERRED),
            state=BizMsg.State.SPLIT,
        )
    message.archived = archived
    return message


def _add_copies(place: Place, messages: Sequence[BizMsg], attempts: bool) -> None:
    """Read the copies of all of them at once."""
    copies: dict[int, list[ReceiveMsg]] = defaultdict(list)
    message_ids = [message.pk for message in messages]
    for row in place.copies_of(message_ids).order_by("id") if message_ids else ():
        copies[row.msg_id].append(_copy(row) if place.cold else row)
    if attempts:
        _add_attempts(place, [copy for of_message in copies.values() for copy in of_message])
    for message in messages:
        message.listed_copies = copies[message.pk]


def _add_attempts(place: Place, copies: Sequence[ReceiveMsg]) -> None:
    attempts: dict[int, list[Attempt]] = defaultdict(list)
    copy_ids = sorted(copy.pk for copy in copies)
    for some in chunks(copy_ids, _CHUNK):
        for row in place.attempts_of(some).order_by("id"):
            attempts[row.copy_id].append(row if not place.cold else _attempt(row))
    for copy_row in copies:
        copy_row.listed_attempts = attempts[copy_row.pk]


def _copy(row: Any) -> ReceiveMsg:
    return _instance(ReceiveMsg, row, _names(row), next_at=row.updated_at)


def _attempt(row: Any) -> Attempt:
    return _instance(Attempt, row, _names(row))


def _names(row: Any) -> Iterable[str]:
    return [field.attname for field in row._meta.concrete_fields]


def _instance(model: type[_Row], row: Any, names: Iterable[str], **others: Any) -> _Row:
    values: Mapping[str, Any] = {name: getattr(row, name) for name in names}
    return model(**values, **others)
