"""Bulk actions whose filter is read by the fields of the action."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgplatform.core.flows import BulkAction, Fields, Selection
from msgplatform.core.flows.messages import Values
from msgplatform.messages.engine import read_filter

Select = Callable[[Values, datetime], Selection]


def bulk_action(
    select: Select, *, fields: Fields, required: Sequence[str] = (), **parts: Any
) -> BulkAction:
    """The action that selects messages by the values of its fields; `parts` are those of
    `BulkAction`. Starting it raises InvalidInput for an unknown or a wrong value, and where one of
    the `required` fields is empty."""

    def select_messages(filter: Mapping[str, Any], started_at: datetime) -> Selection:
        return select(read_filter(fields, filter, required), started_at)

    return BulkAction(fields=fields, required=required, select=select_messages, **parts)
