"""Personal data as people see it who need not know whose it is: `138****0000`.

Keys, numbers of rows and words of a mapping stay; what may say who somebody is does not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

PERMISSION = "crmsync.view_personal"
_EMAIL = re.compile(r"([^\s@<>\"'(),:;]{1,64})@([\w.-]+\.\w+)")
# 7 to 15 digits with what people write between them, but no date.
_PHONE = re.compile(r"(?<![\w.])(?!\d{4}-\d\d-\d\d)\+?\d(?:[ .()-]?\d){6,14}(?!\w)")
_STARS = "****"


def masked(value: Any) -> Any:
    """A field's value, or a whole object of them, of the same shape."""
    if isinstance(value, Mapping):
        return {name: masked(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [masked(each) for each in value]
    if isinstance(value, bool) or value is None or value == "":
        return value
    if isinstance(value, int | float):
        return _digits(str(value)) if len(str(value)) >= 7 else value
    text = str(value)
    if _EMAIL.search(text) or _PHONE.search(text):
        return in_sentence(text)
    return text[0] + _STARS


def in_sentence(text: str) -> str:
    """A sentence, such as a CRM's, without the telephone numbers and addresses in it."""
    text = _EMAIL.sub(lambda found: f"{found[1][0]}{_STARS}@{found[2]}", text)
    return _PHONE.sub(lambda found: _digits(found[0]), text)


def _digits(text: str) -> str:
    digits = re.sub(r"\D", "", text)
    return f"{digits[:3]}{_STARS}{digits[-4:]}"
