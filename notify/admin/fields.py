"""The form field for headers: one a line, and an error for each wrong line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from msgplatform.admin.fields import LinesField
from notify.subscriptions.shown import MASK


class HeadersField(LinesField):
    """`Name: value` a line. Stored values are not shown; one left masked stays as it is.

    The form sets `stored`, the headers as they are in the database.
    """

    is_secret = True  # values may be tokens

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.stored_headers: Mapping[str, str] = {}
        self.masked_names: list[str] = []  # names of those that the last input left masked

    def prepare_value(self, value: Any) -> Any:
        if isinstance(value, dict):
            return "\n".join(f"{name}: {MASK}" for name in value)
        return value

    def to_python(self, value: Any) -> Any:
        headers: dict[str, str] = {}
        self.masked_names = []
        old = {name.lower(): content for name, content in self.stored_headers.items()}

        def read(line: str) -> None:
            name, colon, content = (part.strip() for part in line.partition(":"))
            if not colon:
                raise ValidationError(_("write it as Name: value"))
            if content == MASK:
                if name.lower() not in old:
                    raise ValidationError(_("no value of %s is stored; write it out") % name)
                content = old[name.lower()]
                self.masked_names.append(name)
            if name.lower() in (key.lower() for key in headers):
                raise ValidationError(_("%s is listed twice") % name)
            self.check_item({name: content})
            headers[name] = content

        for _nothing in self.each_line(str(value or ""), read):
            pass
        return headers
