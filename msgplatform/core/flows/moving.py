"""The settings and idempotency keys that move with a business system to another cell."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from django.db.models import Model, QuerySet


def _hold_nothing(row: Any) -> bool:
    return False


def _resume_none(rows: Sequence[Any]) -> None:
    """Rows that were never held."""


@dataclass(frozen=True, kw_only=True)
class MovedTable:
    """Rows that move with a system.

    `rows` are those of a system by its id. `identity` names a row in every cell: numbers differ.
    With `is_shared` a row may be there already, if its content is the same. `left_out` are fields
    that say something about the old cell. `hold` changes a row so that its work waits, and returns
    True if it did not wait before; `resume` gets these rows, as they are stored, in the end.
    """

    model: type[Model]
    rows: Callable[[int], QuerySet[Any]]
    identity: tuple[str, ...]
    is_shared: bool = False
    left_out: frozenset[str] = frozenset()
    hold: Callable[[Any], bool] = _hold_nothing
    resume: Callable[[Sequence[Any]], None] = _resume_none
    # The text before a field, and the field, by whose value a proxy finds the system's cell.
    proxy_name: tuple[str, str] | None = None

    @property
    def name(self) -> str:
        return str(self.model._meta.label_lower)


class KeyStore(Protocol):
    """Idempotency keys of a flow. A row is a list of values that JSON can hold."""

    @property
    def name(self) -> str: ...

    def read(self, biz: int) -> Iterator[list[Any]]:
        """Every key of a system, a few at a time in memory."""

    def write(self, biz: int, rows: Sequence[list[Any]]) -> None:
        """Store keys for the system; a key that is stored already stays. Raises InvalidInput for
        rows of another form, Conflict for a key that names another message here."""


@dataclass(frozen=True)
class Moving:
    """The tables, each after those that it refers to, and the stores of keys."""

    tables: Sequence[MovedTable] = ()
    keys: Sequence[KeyStore] = ()
