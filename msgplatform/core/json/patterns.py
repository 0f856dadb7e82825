"""Regular expressions of JSON Schemas, matched in time that grows with the length of the text.

A person writes the expression and a business system sends the text, so an engine that backtracks
could stop a process. RE2 does not backtrack, and has no look-ahead, look-behind or back-references.
"""

import re
from functools import lru_cache
from typing import Any

import re2

from msgplatform.core.errors import InvalidInput
from msgplatform.core.lazy_text import lazy_message

_MAX_MEMORY = 256 * 1024  # bytes, of one expression with RE2's cache of its states
_MAX_EXPRESSION = 300  # characters of an expression that an error message quotes
# Escapes of JSON Schema and Python that RE2 writes in another way. Other pairs stay.
_ESCAPE = re.compile(
    r"\\u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|\\u(?P<code>[0-9a-fA-F]{4})|\\(?P<end>Z)|\\.",
    re.DOTALL,
)


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> Any:
    """The expression for RE2. Raises InvalidInput with the reason if it cannot be used."""
    options = re2.Options()
    options.max_mem = _MAX_MEMORY
    options.log_errors = False
    options.never_capture = True
    try:
        return re2.compile(_ESCAPE.sub(_escape, pattern), options)
    except (re2.error, UnicodeEncodeError) as error:
        why: Any = error.args[0]
        words = lazy_message(
            "The regular expression %(pattern)s cannot be used: %(why)s. Look-ahead, "
            "look-behind and back-references are not supported, since they may take for ever.",
            pattern=repr(pattern[:_MAX_EXPRESSION]),
            why=why.decode("utf-8", "replace") if isinstance(why, bytes) else str(why),
        )
        raise InvalidInput(words) from None


def matches(pattern: str, text: str) -> bool:
    """True if the expression matches anywhere in the text, as JSON Schema has it."""
    return compile_pattern(pattern).search(text) is not None


def instructions(pattern: str) -> int:
    """The number of instructions of the compiled expression. At worst RE2 runs all of them for each
    character of a text."""
    return int(compile_pattern(pattern).programsize)


def _escape(match: re.Match[str]) -> str:
    if match["code"]:
        return rf"\x{{{match['code']}}}"
    if match["high"]:
        pair = chr(int(match["high"], 16)) + chr(int(match["low"], 16))
        return rf"\x{{{ord(pair.encode('utf-16', 'surrogatepass').decode('utf-16')):x}}}"
    return r"\z" if match["end"] else match[0]
