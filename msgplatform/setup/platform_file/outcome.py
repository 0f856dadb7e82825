"""The changes that an application of platform files has made, or would make."""

from __future__ import annotations

import difflib
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from msgplatform.setup.platform_file import text


class Action(StrEnum):
    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"
    UNCHANGED = "unchanged"
    UNLISTED = "unlisted"  # the files do not have it, and it is left alone


@dataclass(frozen=True)
class Change:
    """The change of one object.

    `body`, and `differences`: field → {"stored": before, "sent": after}, are without secrets and
    mask those of a URL; `changed_secrets` are names of fields. `note` is a sentence: why the object
    stays, or who had changed it.
    """

    action: Action
    section: str
    name: str
    body: Mapping[str, Any] = field(default_factory=dict)  # of one that is added, without secrets
    differences: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    changed_secrets: Sequence[str] = ()
    note: str = ""
    shown_once: Mapping[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"{self.section} {self.name}"


@dataclass
class Outcome:
    """All changes, in the order in which they were made."""

    changes: list[Change] = field(default_factory=list)

    def of(self, *actions: Action) -> list[Change]:
        return [change for change in self.changes if change.action in actions]

    @property
    def plan(self) -> str:
        """A text that differs when what is added, changed or removed differs, but for the values of
        secrets."""
        changes = [
            (each.action, each.title, each.body, each.differences, each.changed_secrets)
            for each in self.of(Action.ADDED, Action.CHANGED, Action.REMOVED)
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
_WIDTH = 100  # characters of a value in a line


def lines(outcome: Outcome, is_verbose: bool = False) -> Iterator[str]:
    """A line for each object that was added, changed or removed, and one for each of its fields;
    with `is_verbose` for each object that the files do not have, too."""
    for change in outcome.changes:
        is_left = change.action == Action.UNLISTED and not (is_verbose or change.note)
        if change.action == Action.UNCHANGED or is_left:
            continue
        note = f"  ({change.note})" if change.note else ""
        yield f"{_SIGNS[change.action]} {change.title}{note}"
        for name, value in change.body.items():
            yield from _value_lines("+", name, value)
        for name, each in change.differences.items():
            yield from _difference(name, each["stored"], each["sent"])
        for name in change.changed_secrets:
            yield f"    {'+' if change.action == Action.ADDED else '~'} {name}: {_SECRET}"
    yield summary(outcome)


def summary(outcome: Outcome) -> str:
    counts = outcome.counts
    words = [f"{counts[action]} {action}" for action in ("added", "changed", "removed")]
    return (
        f"{', '.join(words)}, {counts['unchanged']} unchanged, "
        f"{counts['unlisted']} left alone that the files do not have."
    )


def _difference(name: str, before: Any, after: Any) -> Iterator[str]:
    """A short value in one line, a long one line by line."""
    one, other = text.write_inline(before), text.write_inline(after)
    if len(one) + len(other) <= _WIDTH:
        yield f"    ~ {name}: {one} → {other}"
        return
    yield f"    ~ {name}:"
    old, new = _long(before).splitlines(), _long(after).splitlines()
    for line in difflib.unified_diff(old, new, n=1, lineterm=""):
        if not line.startswith(("---", "+++", "@@")):
            yield f"        {line}"


def _value_lines(sign: str, name: str, value: Any) -> Iterator[str]:
    inline = text.write_inline(value)
    if len(inline) <= _WIDTH:
        yield f"    {sign} {name}: {inline}"
        return
    yield f"    {sign} {name}:"
    yield from (f"        {line}" for line in _long(value).splitlines())


def _long(value: Any) -> str:
    return value if isinstance(value, str) else text.write(value)
