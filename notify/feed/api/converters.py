"""Path converters for Feed's addresses."""

from __future__ import annotations

from django.urls import register_converter

from msgplatform.core.errors import InvalidInput
from notify.feed.intake.posts import UID, check_uid


class UidConverter:
    """`<uid:uid>`: the id that a business system gives a user. Callers percent-encode it."""

    regex = UID

    def to_python(self, value: str) -> str:
        try:
            check_uid(value)
        except InvalidInput as error:
            raise ValueError(str(error)) from None  # Django answers 404
        return value

    def to_url(self, value: str) -> str:
        return value


register_converter(UidConverter, "uid")
