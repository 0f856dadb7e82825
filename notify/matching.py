"""Which subscriptions want a message: patterns of event types, and channels.

A pattern is an event type in which `*` stands for any characters: `order.*`, `*.paid`.
No pattern means every event type, no channel means every channel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# Letters, digits, _ and dots as in event types, and the wildcard.
PATTERN = re.compile(r"[A-Za-z0-9_.*]{1,128}")


@dataclass(frozen=True, slots=True)
class Filter:
    """A subscription's filter, compiled."""

    event_types: re.Pattern[str] | None
    channels: frozenset[str]

    def wants(self, event_type: str, channel: str) -> bool:
        if self.channels and channel not in self.channels:
            return False
        return self.event_types is None or self.event_types.fullmatch(event_type) is not None


def compile_filter(patterns: Sequence[str], channels: Iterable[str]) -> Filter:
    """One regular expression for all patterns; `*` is the only special character."""
    parts = [re.escape(pattern).replace(r"\*", ".*") for pattern in patterns]
    return Filter(re.compile("|".join(parts)) if parts else None, frozenset(channels))
