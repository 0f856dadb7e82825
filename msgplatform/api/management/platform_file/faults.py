"""The faults of a platform file: all of them at once, with file, line and field."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rest_framework import serializers

_MAX_SHOWN = 50


@dataclass(frozen=True, order=True)
class Fault:
    """`line` is counted from 1, and 0 in a text without lines; `field` is a path of names."""

    file: str
    line: int
    field: str
    message: str

    def __str__(self) -> str:
        place = ":".join(filter(None, (self.file, str(self.line or ""))))
        return ": ".join(filter(None, (place, self.field, self.message)))

    @property
    def sentence(self) -> str:
        """The message with its line, where a text has lines."""
        return f"Line {self.line}: {self.message}" if self.line else self.message


class FileFaults(serializers.ValidationError):
    """Nothing was changed, because of these faults."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = sorted(set(faults))
        sentences: dict[str, list[str]] = {}
        for each in self.faults[:_MAX_SHOWN]:
            sentences.setdefault(each.field, []).append(each.sentence)
        super().__init__(sentences)

    def __str__(self) -> str:
        lines = [str(each) for each in self.faults[:_MAX_SHOWN]]
        if more := len(self.faults) - len(lines):
            lines.append(f"… and {more} more.")
        return "\n".join(lines)
