"""The filter of a subscription: patterns of event types, and channels.

A pattern is an event type in which `*` stands for any characters: `order.*`, `*.paid`.
A filter without patterns matches every event type; without channels, every channel.
"""

import fnmatch
import re
from collections.abc import Collection, Iterable

import msgspec

# ASCII, so that event types are written into the signed body without escapes. CloudEvents have
# types with hyphens, colons and slashes: com.example/order:paid.
_EVENT_TYPE = r"[A-Za-z0-9_:/-]+(\.[A-Za-z0-9_:/-]+)*"
EVENT_TYPE = re.compile(rf"(?=.{{1,128}}\Z){_EVENT_TYPE}")
EVENT_TYPE_PATTERN = f"^{_EVENT_TYPE}$"  # for documents, which name the length beside it
# The characters of event types, and the wildcard.
PATTERN = re.compile(r"[A-Za-z0-9_:/.*-]{1,128}")


class Filter(msgspec.Struct, frozen=True):
    """A subscription's filter: event types by name, patterns compiled, channels."""

    names: frozenset[str]
    patterns: tuple[re.Pattern[str], ...]
    channels: frozenset[str]

    def matches(self, event_type: str, channel: str) -> bool:
        if self.channels and channel not in self.channels:
            return False
        if not self.names and not self.patterns:
            return True
        return event_type in self.names or any(p.fullmatch(event_type) for p in self.patterns)


def compile_filter(patterns: Collection[str], channels: Iterable[str]) -> Filter:
    """Compile a filter. The expressions of fnmatch do not backtrack, so many stars are cheap."""
    names = frozenset(pattern for pattern in patterns if "*" not in pattern)
    expressions = tuple(
        re.compile(fnmatch.translate(pattern)) for pattern in patterns if pattern not in names
    )
    return Filter(names, expressions, frozenset(channels))
