"""Personal data, masked for people without PERMISSION: `138****0000`.

Every flow's pages mask data that may identify a person: payloads, texts, telephone numbers and
addresses. Ids, keys and the names in a mapping stay. People with PERMISSION see the data itself.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from msgplatform.core.json.values import MAX_DEPTH, depth, map_leaves

PERMISSION = "msgplatform.view_personal"
_EMAIL = re.compile(r"([^\s@<>\"'(),:;]{1,64})@([\w.-]+\.\w+)")
# 7 to 15 digits (15 is the most of an international number), with what people write between them;
# but no date, and no IPv4 address. Chinese text has no space around a number: only ASCII letters
# make it a part of a word.
_PHONE = re.compile(
    r"(?<![A-Za-z0-9.])(?!\d{4}-\d\d-\d\d|(?:\d{1,3}\.){3}\d{1,3}(?!\d|\.\d))"
    r"\+?\d(?:[ .()-]?\d){6,14}(?![A-Za-z0-9])"
)
_DIGITS = re.compile(r"(?<!\d)\d{7,15}(?!\d)")
_STARS = "****"
MARK = "[erased]"  # in the place of erased data


def mask_value(value: Any) -> Any:
    """A field's value, or an object of values, masked in the same shape."""
    if isinstance(value, Mapping):
        return {name: mask_value(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [mask_value(part) for part in value]
    # Such values do not identify a person.
    if isinstance(value, bool) or value is None or value == "":
        return value
    if isinstance(value, int | float):
        # A number of seven digits or more may be a phone number.
        return _mask_digits(str(value)) if len(str(value)) >= 7 else value
    text = str(value)
    # Digits and domain stay only when the whole value is a number or an address: a name may stand
    # beside a number, in Chinese without a space.
    if text.isascii() and (_EMAIL.fullmatch(text) or _PHONE.fullmatch(text)):
        return mask_sentence(text)
    return text[0] + _STARS


def mask_sentence(text: str) -> str:
    """A sentence, such as a CRM's, with its phone numbers and e-mail addresses masked."""
    text = _EMAIL.sub(lambda match: f"{match[1][0]}{_STARS}@{match[2]}", text)
    return _PHONE.sub(lambda match: _mask_digits(match[0]), text)


def mask_key(key: str) -> str:
    """A source's key, such as `wx13800138000`: like `mask_sentence`, also beside letters."""
    return _DIGITS.sub(lambda match: _mask_digits(match[0]), mask_sentence(key))


def _mask_digits(text: str) -> str:
    digits = re.sub(r"\D", "", text)
    if len(digits) < 11:  # at least four digits stay hidden
        return f"{digits[:1]}{_STARS}{digits[-2:]}"
    return f"{digits[:3]}{_STARS}{digits[-4:]}"


def mask_sentences(value: Any) -> Any:
    """Like `mask_sentence`, for each text of a value such as a job's filter."""
    return map_leaves(value, str, mask_sentence)


def mask_content(value: str) -> str:
    """A masked content, such as a payload: JSON keeps its structure and names; other texts keep
    only the length."""
    try:
        content = json.loads(value)
    except (ValueError, RecursionError):  # the latter of JSON that is nested too deeply
        content = None
    if depth(content) > MAX_DEPTH:
        content = None
    if isinstance(content, dict | list):
        return json.dumps(mask_value(content), indent=2, ensure_ascii=False)
    return f"{_STARS} ({len(value)})" if value else ""
