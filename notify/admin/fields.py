"""Form fields for waits and headers: one item a line, and an error for each wrong line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from msgplatform.admin.fields import LinesField

# Stands for a stored value that is not shown; no header's value can hold it.
MASK = "•••"
_UNITS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")


class WaitsField(LinesField):
    """Waits in seconds, written as people say them: `5 s`, `30 min`, `2 h`, `1 d`."""

    repeats = True

    def show(self, item: Any) -> str:
        for unit, seconds in (("d", 86400), ("h", 3600), ("min", 60)):
            if item and not item % seconds:
                return f"{item // seconds:g} {unit}"
        return f"{item:g} s"

    def read(self, line: str) -> int | float:
        found = _DURATION.fullmatch(line.lower())
        if found is None or (found[2] and found[2] not in _UNITS):
            raise ValidationError(_("%r is no time to wait: write 30 s, 5 min, 2 h or 1 d.") % line)
        seconds = float(found[1]) * _UNITS[found[2] or "s"]
        return int(seconds) if seconds.is_integer() else seconds


class HeadersField(LinesField):
    """`Name: value` a line. Stored values are not shown; one left masked stays as it is.

    The form sets `stored`, the headers as they are in the database.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.stored: Mapping[str, str] = {}

    def prepare_value(self, value: Any) -> Any:
        if isinstance(value, dict):
            return "\n".join(f"{name}: {MASK}" for name in value)
        return value

    def to_python(self, value: Any) -> Any:
        taken: dict[str, str] = {}
        old = {name.lower(): content for name, content in self.stored.items()}

        def read(line: str) -> None:
            name, colon, content = (part.strip() for part in line.partition(":"))
            if not colon:
                raise ValidationError(_("write it as Name: value"))
            if content == MASK:
                if name.lower() not in old:
                    raise ValidationError(_("no value of %s is stored; write it out") % name)
                content = old[name.lower()]
            if name.lower() in (known.lower() for known in taken):
                raise ValidationError(_("%s stands here twice") % name)
            self.check_item({name: content})
            taken[name] = content

        for _nothing in self.each_line(str(value or ""), read):
            pass
        return taken
