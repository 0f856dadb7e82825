"""Query parameters: a view declares the parameters that it takes. Others are refused
(`access/unknown_parts.py`), and the schema lists them.

    class ThingListView(ListView):
        query = [OpenApiParameter("kind", str, description="Only of this kind")]

`self.query_values` has the values that the caller sent, by name; an empty parameter counts as
absent.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from django.utils.dateparse import parse_datetime
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.views import APIView

from msgplatform.core.errors import InvalidInput


class QueryView(APIView):
    """A view whose GET takes the parameters of `query` and no others."""

    query: Sequence[OpenApiParameter] = ()

    @property
    def parameter_names(self) -> list[str]:
        """The names of all parameters that GET takes."""
        return [parameter.name for parameter in self.query]

    @cached_property
    def query_values(self) -> dict[str, str]:
        """The values that the caller sent. Raises InvalidInput, see `values_of`."""
        return values_of(self.request, self.query)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if request.method == "GET":
            self.query_values  # noqa: B018 - refused before any work


def values_of(request: Request, query: Iterable[OpenApiParameter]) -> dict[str, str]:
    """The values that the caller sent. Raises InvalidInput for a value of blanks, and for a value
    that is not in the `enum` of a parameter of `query`."""
    values = {name: str(value) for name, value in request.query_params.items() if value}
    for name, value in values.items():
        # Blanks around a filter are cut off: without this check the list would have everything.
        if not value.strip():
            raise InvalidInput("Leave the parameter out, or give it a value.", name)
    for parameter in query:
        is_due = parameter.required or parameter.name in values
        if parameter.enum and is_due and values.get(parameter.name) not in parameter.enum:
            choices = ", ".join(map(str, parameter.enum))
            raise InvalidInput(f"Use one of: {choices}.", parameter.name)
    return values


class ListView(QueryView, ListAPIView[Any]):
    """A list, page by page: beside the parameters of `query` it takes those of its pagination."""

    @property
    def parameter_names(self) -> list[str]:
        paginator: Any = self.paginator
        parameters = paginator.get_schema_operation_parameters(self)
        return [*super().parameter_names, *(parameter["name"] for parameter in parameters)]


# The schema of the name of a system or a consumer.
NAME = {"type": "string", "pattern": "^[-a-zA-Z0-9_]+$", "maxLength": 64}
SINCE = OpenApiParameter(
    "since",
    OpenApiTypes.DATETIME,
    description="Only those accepted at or after this time, such as 2026-11-20T08:00:00Z",
)
UNTIL = OpenApiParameter(
    "until", OpenApiTypes.DATETIME, description="Only those accepted before this time"
)


def moment(text: str, field: str) -> datetime:
    """A time with its zone. Raises InvalidInput."""
    try:
        # An unquoted `+` of a zone arrives as a space.
        time = parse_datetime(text.replace(" ", "+") if "T" in text else text)
        if time is not None and time.tzinfo is not None:
            time.astimezone(UTC)  # as databases have it: the first and the last day may overflow
    except (ValueError, OverflowError):
        time = None
    if time is None or time.tzinfo is None:
        raise InvalidInput("Write it as 2026-11-20T08:00:00Z.", field)
    return time
