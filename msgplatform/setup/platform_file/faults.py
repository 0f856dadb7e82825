"""The faults of a platform file: all of them at once, with file, line and field."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rest_framework import serializers

_MAX_SHOWN = 50


@dataclass(frozen=True, order=True)
class Fault:
    """`line` is counted from 1, and 0 in a text without lines; `path` leads to the value from the
    root of the file, and `place` is the same as people read it."""

    file: str
    line: int
    place: str
    message: str
    path: tuple[str | int, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        position = ":".join(filter(None, (self.file, str(self.line or ""))))
        return ": ".join(filter(None, (position, self.place, self.message)))

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
            sentences.setdefault(each.place, []).append(each.sentence)
        super().__init__(sentences)

    @property
    def errors(self) -> list[dict[str, Any]]:
        """The `errors` of a problem: each with its line and its path."""
        return [
            {"field": each.place, "message": each.sentence, "line": each.line,
             "path": list(each.path)}
            for each in self.faults[:_MAX_SHOWN]
        ]  # fmt: skip

    def __str__(self) -> str:
        lines = [str(each) for each in self.faults[:_MAX_SHOWN]]
        if more := len(self.faults) - len(lines):
            lines.append(f"… and {more} more.")
        return "\n".join(lines)
