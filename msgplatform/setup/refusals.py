"""The errors by which a change of something that people set up is refused."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from django.core import exceptions as django_errors
from django.http import Http404
from rest_framework import exceptions as drf

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
    """The faults of a refusal as `{"field": "events[3].type", "message": …}`. An error that names
    no field gives one without a field."""
    if isinstance(error, drf.ValidationError):
        # An error with more data than a field may give its own faults.
        return getattr(error, "errors", None) or list(flat_errors(error.detail))
    if isinstance(error, django_errors.ValidationError):
        return list(flat_errors(getattr(error, "message_dict", None) or error.messages))
    if isinstance(error, InvalidInput):
        return [{"field": error.field, "message": str(error)}]
    return [{"field": "", "message": str(error)}]


def flat_errors(detail: Any, path: str = "") -> Iterator[dict[str, str]]:
    """DRF's nested errors as `{"field": "events[3].type", "message": …}`."""
    object_names = {"non_field_errors", django_errors.NON_FIELD_ERRORS}
    if isinstance(detail, Mapping):
        for name, part in detail.items():
            part_path = f"{path}[{name}]" if isinstance(name, int) else f"{path}.{name}"
            # Errors of a whole object belong to the object's own path.
            yield from flat_errors(part, path if name in object_names else part_path.lstrip("."))
    elif isinstance(detail, list | tuple):
        for index, part in enumerate(detail):
            is_nested = isinstance(part, Mapping | list | tuple)
            yield from flat_errors(part, f"{path}[{index}]" if is_nested else path)
    else:
        yield {"field": path, "message": str(detail)}
