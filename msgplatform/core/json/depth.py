"""How deeply JSON is nested: what Python's libraries can still walk through, and MariaDB store."""

from __future__ import annotations

from typing import Any

# MariaDB stores less than 32 levels (JSON_DEPTH_LIMIT), and the audit log has such a value two
# levels down.
MAX_STORED = 29
# More is refused: what shows or checks a value walks through it in functions that call themselves.
MAX_DEPTH = 100


def depth(value: Any) -> int:
    """How many arrays and objects lie within each other; 0 for a text or a number."""
    found, level = 0, [value]
    # By level: what is nested too deeply could not be walked by a function that calls itself.
    while level := [part for part in level if isinstance(part, dict | list)]:
        found += 1
        level = [
            below for part in level for below in (part.values() if isinstance(part, dict) else part)
        ]
    return found
