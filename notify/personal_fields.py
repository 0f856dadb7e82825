"""The fields of payloads that hold personal data, as the catalogue names them.

A field is named by a JSON Pointer (RFC 6901), with * for each entry of a list: /customer/phone,
/passengers/*/name.
"""

from collections.abc import Sequence
from typing import Any

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

MAX_FIELDS, MAX_LENGTH = 50, 200
# Event types that the platform publishes itself → the fields of their payloads.
own: dict[str, tuple[str, ...]] = {}


def register(event_type: str, pointers: Sequence[str]) -> None:
    """Name the personal fields of an event type that the platform publishes itself. Call it when
    the app is ready."""
    own[event_type] = tuple(pointers)


def validate(pointers: Any) -> None:
    """Raise ValidationError for a value that is no list of pointers."""
    if not isinstance(pointers, list) or len(pointers) > MAX_FIELDS:
        raise ValidationError(_("Write a list of at most %d pointers.") % MAX_FIELDS)
    for pointer in pointers:
        if not isinstance(pointer, str) or not pointer.startswith("/") or len(pointer) > MAX_LENGTH:
            words = _("%s: write a JSON Pointer such as /customer/phone or /passengers/*/name.")
            raise ValidationError(words % str(pointer)[:MAX_LENGTH])
