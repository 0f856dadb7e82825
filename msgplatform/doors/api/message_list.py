"""`GET` of a flow's messages: parameters and pages come from its declaration (`MessageStore`).

    class EventListView(MessageListView):
        store = MESSAGES
        serializer_class = EventSerializer  # of the values of `store.records`

A key sees the messages of its own business system only.
"""

from collections.abc import Sequence
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.utils.urls import replace_query_param

from msgplatform.core.data import ids as id_numbers
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.messages import MAX_ID, FilterField, MessageStore, Values
from msgplatform.doors.api.access.authentication import caller_of
from msgplatform.doors.api.converters import ID
from msgplatform.doors.api.pagination import KeysetPagination
from msgplatform.doors.api.query import SINCE, UNTIL, ListView, moment
from msgplatform.messages import engine
from msgplatform.messages.filters import position, read_filter

# Fields without a parameter: the key decides the system, and a message's id is its address.
_FIELDS_WITHOUT_PARAMETER = ("biz", "id")
_TIME_PARAMETERS = {"since": SINCE, "until": UNTIL}
MAX_VALUE = 500  # maximum characters of a parameter


class MessagePagination(KeysetPagination):
    """Pages of the engine. Even a page with fewer than `limit` messages may have a next page."""

    cursor_help = "From `next` of the page before"
    cursor_schema = ID

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> list[Any]:
        self._request = request
        try:
            before = position(request.query_params.get(self.cursor_param, ""))
        except InvalidInput:
            words = "Use the cursor of `next` of this list unchanged, or none."
            raise InvalidInput(words, self.cursor_param) from None
        biz_id = caller_of(request).biz_id
        ids, next_id = engine.find_ids(view.store, view.values(biz_id), before, self._limit())
        records = view.store.records(biz_id, ids) if ids else {}
        # `store.records` leaves out some messages at the end, or these were deleted meanwhile.
        if records and (last_id := list(records)[-1]) != ids[-1]:
            next_id = last_id
        url = request.build_absolute_uri()
        self._next = self._previous = None
        if next_id is not None:
            self._next = replace_query_param(url, self.cursor_param, next_id)
        return list(records.values())


class MessageListView(ListView):
    """A list of the caller's messages, newest first, filtered by the fields of the declaration."""

    store: MessageStore
    pagination_class = MessagePagination
    queryset: Any = ()  # pages come from the engine

    @property
    def query(self) -> Sequence[OpenApiParameter]:  # type: ignore[override]
        return [
            _TIME_PARAMETERS.get(name) or parameter(field.parameter or name, field)
            for name, field in self.store.fields.items()
            if name not in _FIELDS_WITHOUT_PARAMETER
        ]

    def values(self, biz_id: int) -> Values:
        """The values of the filter of this request, by field. Raises InvalidInput naming the
        parameter."""
        for parameter_name, text in self.query_values.items():
            if len(text) > MAX_VALUE:
                raise InvalidInput(f"Use at most {MAX_VALUE} characters.", parameter_name)
        # The query also has the parameters of pages, which are no fields.
        texts = {
            name: self.query_values[parameter_name]
            for name, field in self.store.fields.items()
            if (parameter_name := field.parameter or name) in self.query_values
        }
        # Times need a zone here; in the console the person's zone is used.
        time_texts = {name: texts.pop(name) for name in _TIME_PARAMETERS if name in texts}
        try:
            values = read_filter(self.store.fields, texts)
            moments = {name: moment(text, name) for name, text in time_texts.items()}
            if len(moments) == 2 and moments["until"] <= moments["since"]:
                raise InvalidInput("Use a time later than the one of since.", "until")
            values |= {
                name: min(id_numbers.first_id_at(at), MAX_ID) for name, at in moments.items()
            }
            values["biz"] = biz_id
            self.store.check(values)
        except InvalidInput as error:
            field = self.store.fields.get(error.field)
            parameter_name = (field.parameter if field else "") or error.field
            raise InvalidInput(str(error), parameter_name) from None
        return values


def parameter(name: str, field: FilterField) -> OpenApiParameter:
    """The OpenAPI document's description of a field's parameter."""
    description = field.parameter_help or str(field.help or field.label)
    if field.kind == "time":
        return OpenApiParameter(name, OpenApiTypes.DATETIME, description=description)
    schema = {"type": "string", "maxLength": MAX_VALUE, **field.schema}
    enum = [value for value, _label in field.choices] or None
    return OpenApiParameter(name, schema, description=description, enum=enum)
