"""The errors by which a change of something that people set up is refused; the faults of a platform
file, all of them at once, with file, line and field."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.core import exceptions as django_errors
from django.http import Http404
from rest_framework import exceptions as drf
from rest_framework import serializers

from msgplatform.core.errors import InvalidInput, NotNow, Permanent

REFUSALS = (drf.APIException, django_errors.ValidationError, Permanent, NotNow, Http404)


class LimitedKey(drf.PermissionDenied):
    """The API key is limited to some business systems, and this is not theirs alone."""

    def __init__(self, systems: Collection[str]) -> None:
        names = ", ".join(sorted(systems))
        super().__init__(
            f"This belongs to the whole platform, and the key is limited to the business systems "
            f"{names}."
        )


def field_errors(error: Exception) -> list[dict[str, Any]]:
    """The faults of a refusal as `{"field": "events[3].type", "message": …}`; one without a field
    for an error that names none."""
    if isinstance(error, drf.ValidationError):
        # An error whose values have more than a field may say so itself.
        return getattr(error, "errors", None) or list(flat_errors(error.detail))
    if isinstance(error, django_errors.ValidationError):
        return list(flat_errors(getattr(error, "message_dict", None) or error.messages))
    if isinstance(error, InvalidInput):
        return [{"field": error.field, "message": str(error)}]
    return [{"field": "", "message": str(error)}]


def flat_errors(detail: Any, path: str = "") -> Iterator[dict[str, str]]:
    """DRF's nested errors as `{"field": "events[3].type", "message": …}`."""
    for_whole = {"non_field_errors", django_errors.NON_FIELD_ERRORS}
    if isinstance(detail, Mapping):
        for name, below in detail.items():
            below_path = f"{path}[{name}]" if isinstance(name, int) else f"{path}.{name}"
            # Errors of the object as a whole belong to the object's own path.
            yield from flat_errors(below, path if name in for_whole else below_path.lstrip("."))
    elif isinstance(detail, list | tuple):
        for index, below in enumerate(detail):
            is_nested = isinstance(below, Mapping | list | tuple)
            yield from flat_errors(below, f"{path}[{index}]" if is_nested else path)
    else:
        yield {"field": path, "message": str(detail)}


_MAX_FAULTS = 50


@dataclass(frozen=True, order=True)
class Fault:
    """`line` is counted from 1, and 0 in a text without lines; `path` leads to the value from the
    root of the file, and `place` is the same as people read it."""

    file: str
    line: int
    place: str
    message: str
    path: tuple[str | int, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        position = ":".join(filter(None, (self.file, str(self.line or ""))))
        return ": ".join(filter(None, (position, self.place, self.message)))

    @property
    def sentence(self) -> str:
        """The message with its line, where a text has lines."""
        return f"Line {self.line}: {self.message}" if self.line else self.message


class FileFaults(serializers.ValidationError):
    """Nothing was changed, because of these faults."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = sorted(set(faults))
        sentences: dict[str, list[str]] = {}
        for each in self.faults[:_MAX_FAULTS]:
            sentences.setdefault(each.place, []).append(each.sentence)
        super().__init__(sentences)

    @property
    def errors(self) -> list[dict[str, Any]]:
        """The `errors` of a problem: each with its line and its path."""
        return [
            {"field": each.place, "message": each.sentence, "line": each.line,
             "path": list(each.path)}
            for each in self.faults[:_MAX_FAULTS]
        ]  # fmt: skip

    def __str__(self) -> str:
        lines = [str(each) for each in self.faults[:_MAX_FAULTS]]
        if more := len(self.faults) - len(lines):
            lines.append(f"… and {more} more.")
        return "\n".join(lines)
