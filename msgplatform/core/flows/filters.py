"""The fields of a flow's filter, so that a form can offer what may be entered.

A filter is a mapping of names to texts, as they stand in an address; the flow reads the texts. What
is said here is only how people enter them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from msgplatform.core.flows.text import Text

MAX_OPTIONS = 20  # that one answer to a few typed letters has


@dataclass(frozen=True)
class Option:
    """What a field may hold, such as orders/warehouse, and what people call it."""

    value: str
    label: Text = ""


@dataclass(frozen=True)
class FilterField:
    """One field: a text, one of a few choices, a time, a list of ids, or the name of something.

    `choices` are (value, label). `options` gives up to MAX_OPTIONS things that have the typed text
    in their name, read by an index or from a small table.
    """

    help: Text = ""
    kind: Literal["text", "choice", "time", "ids", "name"] = "text"
    choices: Sequence[tuple[str, Text]] = ()
    nothing: Text = ""  # what no choice means; '': any of them
    options: Callable[[str], Sequence[Option]] | None = None
    # What it asks for is masked for people who may not see personal data: they could guess it, so
    # it is not for them.
    personal: bool = False

    @classmethod
    def of(cls, given: FilterField | Text) -> FilterField:
        """A help text alone means a field for a text."""
        return given if isinstance(given, cls) else cls(given)  # type: ignore[arg-type]


def personal_names(fields: Mapping[str, FilterField | Text]) -> set[str]:
    """The fields that are only for people who may see personal data."""
    return {name for name, given in fields.items() if FilterField.of(given).personal}
