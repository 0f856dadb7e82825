"""JSON as people read it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import msgspec

_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
# The longest escape of a character is six characters.
_MAX_ESCAPE = 6


def pretty(text: str, most: int) -> str:
    """About the first `most` characters of a text; JSON is indented, with the letters of every
    script as they are.

    Numbers and names stay as they were written: nothing is decoded but escaped characters. What is
    no JSON stays as it is.
    """
    try:
        shown = msgspec.json.format(text, indent=2)
    except msgspec.DecodeError:
        shown = text
    else:
        shown = shown[: most * _MAX_ESCAPE]
        if "\\u" in shown:
            shown = _STRING.sub(_readable, shown)
    return shown if len(shown) <= most else f"{shown[:most]}\n…"


def _readable(found: re.Match[str]) -> str:
    """A JSON string without escapes, where they are letters; one that could turn the text around,
    or is no character, stays escaped."""
    written = found[0]
    if "\\u" not in written:
        return written
    shown = json.dumps(json.loads(written), ensure_ascii=False)
    return shown if shown.isprintable() else written


def with_raw(fields: Mapping[str, str], name: str, raw: str) -> str:
    """An object of these fields, and one more whose value is JSON as it was written."""
    content = {**fields, name: msgspec.Raw(raw.encode())}
    return msgspec.json.encode(content).decode()
