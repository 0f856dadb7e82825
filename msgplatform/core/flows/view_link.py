"""A page of the console, named as data: programs have no URLs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ViewLink:
    """The page of a view. Only the console makes its address (`templatetags/view_links.py`)."""

    view: str  # name of its URL
    args: Sequence[str | int] = ()
    query: Mapping[str, str] = field(default_factory=dict)
