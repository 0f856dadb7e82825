"""Personal data, masked for people who need not know whose it is: `138****0000`.

Keys, row numbers and the words of a mapping stay; what may identify a person is masked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

PERMISSION = "crmsync.view_personal"
_EMAIL = re.compile(r"([^\s@<>\"'(),:;]{1,64})@([\w.-]+\.\w+)")
# 7 to 15 digits (15 is the most of an international number), with what people write between them;
# but no date.
_PHONE = re.compile(r"(?<![\w.])(?!\d{4}-\d\d-\d\d)\+?\d(?:[ .()-]?\d){6,14}(?!\w)")
_STARS = "****"


def masked(value: Any) -> Any:
    """A field's value, or an object of values, masked in the same shape."""
    if isinstance(value, Mapping):
        return {name: masked(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [masked(each) for each in value]
    # These say nothing about a person.
    if isinstance(value, bool) or value is None or value == "":
        return value
    if isinstance(value, int | float):
        # A number of seven digits or more may be a phone number.
        return _digits(str(value)) if len(str(value)) >= 7 else value
    text = str(value)
    if _EMAIL.search(text) or _PHONE.search(text):
        return in_sentence(text)
    return text[0] + _STARS


def in_sentence(text: str) -> str:
    """A sentence, such as a CRM's, with its phone numbers and e-mail addresses masked."""
    text = _EMAIL.sub(lambda found: f"{found[1][0]}{_STARS}@{found[2]}", text)
    return _PHONE.sub(lambda found: _digits(found[0]), text)


def _digits(text: str) -> str:
    digits = re.sub(r"\D", "", text)
    return f"{digits[:3]}{_STARS}{digits[-4:]}"
