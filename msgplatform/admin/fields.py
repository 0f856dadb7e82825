"""Form fields that flows share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.core.validators import ProhibitNullCharactersValidator
from django.utils.translation import gettext as _

from msgplatform.admin import Textarea

Check = Callable[[Any], None]
_no_null = ProhibitNullCharactersValidator()


def each(check_list: Check) -> Check:
    """The validator of a list as one of a single item."""
    return lambda item: check_list([item])


class LinesField(forms.Field):
    """A list of texts, one a line, each once; an error for each wrong line.

    `check` raises ValidationError for an item that is wrong.
    """

    widget = Textarea
    repeats = False  # whether an item may be there twice

    def __init__(self, *, check: Check, rows: int = 3, **kwargs: Any) -> None:
        kwargs.setdefault("required", False)
        super().__init__(widget=self.widget({"rows": rows, "class": "lines"}), **kwargs)
        self.check_item = check

    def prepare_value(self, value: Any) -> Any:
        listed = isinstance(value, list | tuple)
        return "\n".join(self.show(item) for item in value) if listed else value

    def to_python(self, value: Any) -> Any:
        items = list(self.each_line(str(value or ""), self._item))
        return items if self.repeats else list(dict.fromkeys(items))

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            return bool(self.to_python(data) != (initial or self.to_python("")))
        except ValidationError:
            return True

    def show(self, item: Any) -> str:
        return str(item)

    def read(self, line: str) -> Any:
        """The item that a line means. Raises ValidationError."""
        return line

    def _item(self, line: str) -> Any:
        item = self.read(line)
        self.check_item(item)
        return item

    def each_line(self, text: str, read: Callable[[str], Any]) -> Iterator[Any]:
        """What `read` makes of each line that is not empty. Raises ValidationError with what is
        wrong with each of them."""
        _no_null(text)
        errors = []
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip():
                continue
            try:
                yield read(line.strip())
            except ValidationError as error:
                words = " ".join(error.messages)
                errors.append(_("Line %(number)d: %(error)s") % {"number": number, "error": words})
        if errors:
            raise ValidationError(errors)
