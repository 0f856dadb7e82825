"""The changes that an application of platform files has made, or would make."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec


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
