"""JSON for readers, and JSON that people write into forms."""

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from msgplatform.core.json.values import MAX_DEPTH, RepeatedName, depth, object_of

# A cut text ends within a string: a search for its end at each quotation mark in it would take time
# that grows with the square of their number.
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:(")|\\?\Z)')
# The longest escape of a character is six characters.
_MAX_ESCAPE = 6


def pretty(text: str, max_length: int) -> str:
    """Indent JSON for a reader, with the letters of every script; cut it after about `max_length`
    characters.

    Numbers and names stay as they were written: only escaped characters are decoded. A text that is
    no JSON is only cut.
    """
    try:
        readable = msgspec.json.format(text, indent=2)
    except (msgspec.DecodeError, RecursionError):  # the latter of a thousand brackets
        readable = text
    else:
        readable = readable[: max_length * _MAX_ESCAPE]
        if "\\u" in readable:
            readable = _STRING.sub(_without_escapes, readable)
    return readable if len(readable) <= max_length else f"{readable[:max_length]}\n…"


def _without_escapes(match: re.Match[str]) -> str:
    """A JSON string with its escaped letters decoded. The whole string stays escaped if an escape
    is no printable character: such a character could turn the text around."""
    escaped_text = match[0]
    if not match[1] or "\\u" not in escaped_text:
        return escaped_text
    text = json.dumps(json.loads(escaped_text), ensure_ascii=False)
    return text if text.isprintable() else escaped_text


def with_raw(fields: Mapping[str, str], name: str, raw: str) -> str:
    """Encode an object of these fields and one more, `name`, whose value is the JSON `raw`."""
    content = {**fields, name: msgspec.Raw(raw.encode())}
    return msgspec.json.encode(content).decode()


SYNTAX = "syntax"  # error code for a text that is not JSON


def parse_json(text: str, max_levels: int = MAX_DEPTH) -> Any:
    """Return the value that a person wrote. Raises ValidationError, also for values that Python
    reads but databases and CRMs refuse."""
    try:
        value = json.loads(text, object_pairs_hook=object_of)
        # NaN, 1e999 and half a surrogate pair pass until here.
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except RepeatedName as error:
        raise ValidationError(_("The name “%s” is there twice in one object.") % error) from None
    except json.JSONDecodeError as error:
        raise ValidationError(
            _("Line %(line)d, column %(column)d: this is not JSON. %(why)s.")
            % {"line": error.lineno, "column": error.colno, "why": error.msg},
            code=SYNTAX,
        ) from None
    except RecursionError:
        raise ValidationError(_("This is nested too deeply.")) from None
    except UnicodeError:
        raise ValidationError(
            _("A text has half a character, such as \\ud800 alone: write whole characters.")
        ) from None
    except ValueError:
        raise ValidationError(
            _("It has a number that cannot be stored: NaN, Infinity, or one that is too large.")
        ) from None
    if depth(value) > max_levels:
        raise ValidationError(_("It is nested more than %d levels deep.") % max_levels)
    return value
