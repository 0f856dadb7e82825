"""The outcome of applying platform files: the changes that were made, or would be, as values and as
lines for people; or all faults at once, with file, line and field."""

import difflib
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec
from rest_framework import serializers

from msgplatform.setup.platform_file import text

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
        for fault in self.faults[:_MAX_SHOWN]:
            sentences.setdefault(fault.place, []).append(fault.sentence)
        super().__init__(sentences)

    @property
    def errors(self) -> list[dict[str, Any]]:
        """The `errors` of a problem: each with its line and its path."""
        return [
            {"field": fault.place, "message": fault.sentence, "line": fault.line,
             "path": list(fault.path)}
            for fault in self.faults[:_MAX_SHOWN]
        ]  # fmt: skip

    def __str__(self) -> str:
        lines = [str(fault) for fault in self.faults[:_MAX_SHOWN]]
        if more := len(self.faults) - len(lines):
            lines.append(f"… and {more} more.")
        return "\n".join(lines)


class Action(StrEnum):
    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"
    UNCHANGED = "unchanged"
    UNLISTED = "unlisted"  # missing in the files, and left alone


class Change(msgspec.Struct, frozen=True):
    """The change of one object.

    `body`, and `differences`: field → {"stored": before, "sent": after}, are without secrets and
    mask those of a URL; `changed_secrets` are names of fields. `note` is a sentence: why the object
    stays, or who had changed it.
    """

    action: Action
    section: str
    name: str
    body: Mapping[str, Any] = msgspec.field(default_factory=dict)
    differences: Mapping[str, Mapping[str, Any]] = msgspec.field(default_factory=dict)
    changed_secrets: Sequence[str] = ()
    note: str = ""
    shown_once: Mapping[str, Any] = msgspec.field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"{self.section} {self.name}"


class Outcome(msgspec.Struct):
    """All changes, in the order in which they were made."""

    changes: list[Change] = msgspec.field(default_factory=list)

    def of(self, *actions: Action) -> list[Change]:
        return [change for change in self.changes if change.action in actions]

    @property
    def plan(self) -> str:
        """A text that differs when what is added, changed or removed differs, but for the values of
        secrets."""
        changes = [
            (change.action, change.title, change.body, change.differences, change.changed_secrets)
            for change in self.of(Action.ADDED, Action.CHANGED, Action.REMOVED)
        ]
        content = msgspec.json.encode(changes, enc_hook=str, order="deterministic")
        return hashlib.sha256(content).hexdigest()[:20]

    @property
    def counts(self) -> dict[str, int]:
        """Action → number of objects."""
        numbers = Counter(change.action for change in self.changes)
        return {action.value: numbers[action] for action in Action}


_SIGNS = {Action.ADDED: "+", Action.CHANGED: "~", Action.REMOVED: "-", Action.UNLISTED: "."}
_SECRET = "(secret)"  # noqa: S105 - takes the place of one
_WIDTH = 100  # maximum characters of a value in a line


def lines(outcome: Outcome, is_verbose: bool = False) -> Iterator[str]:
    """A line for each object that was added, changed or removed, and for each of its fields; with
    `is_verbose` also for each object that the files do not have."""
    for change in outcome.changes:
        is_left = change.action == Action.UNLISTED and not (is_verbose or change.note)
        if change.action == Action.UNCHANGED or is_left:
            continue
        note = f"  ({change.note})" if change.note else ""
        yield f"{_SIGNS[change.action]} {change.title}{note}"
        for name, value in change.body.items():
            if len(inline := text.write_inline(value)) <= _WIDTH:
                yield f"    + {name}: {inline}"
                continue
            yield f"    + {name}:"
            yield from (f"        {line}" for line in _long(value).splitlines())
        for name, sides in change.differences.items():
            before, after = sides["stored"], sides["sent"]
            inline, inline_after = text.write_inline(before), text.write_inline(after)
            if len(inline) + len(inline_after) <= _WIDTH:
                yield f"    ~ {name}: {inline} → {inline_after}"
                continue
            yield f"    ~ {name}:"
            old, new = _long(before).splitlines(), _long(after).splitlines()
            for line in difflib.unified_diff(old, new, n=1, lineterm=""):
                if not line.startswith(("---", "+++", "@@")):
                    yield f"        {line}"
        for name in change.changed_secrets:
            yield f"    {'+' if change.action == Action.ADDED else '~'} {name}: {_SECRET}"
    counts = outcome.counts
    words = [f"{counts[action]} {action}" for action in ("added", "changed", "removed")]
    yield (
        f"{', '.join(words)}, {counts['unchanged']} unchanged, "
        f"{counts['unlisted']} left alone that the files do not have."
    )


def _long(value: Any) -> str:
    return value if isinstance(value, str) else text.write(value)
