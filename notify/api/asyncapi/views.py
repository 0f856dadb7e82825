"""The document over HTTP, for management keys and for people of the console."""

from django.contrib.auth.models import AbstractUser
from django.http import HttpResponse, HttpResponseBase
from django.utils.cache import get_conditional_response
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.authentication import SessionAuthentication
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.views import APIView

from msgplatform import person_limits
from msgplatform.doors.api.access.authentication import ApiKeyAuthentication, HasScope
from msgplatform.doors.api.access.key_cache import ApiCaller
from msgplatform.doors.api.access.unknown_parts import HasKnownParts
from msgplatform.doors.api.json import MEDIA_TYPE
from msgplatform.doors.api.query import NAME, QueryView
from msgplatform.messages.filters import business_system
from notify.api.asyncapi.document import Selection
from notify.models import EventType
from notify.setup.event_types import SharedEventType

_SYSTEM = OpenApiParameter(
    "system",
    NAME,
    description="Only what this business system publishes: its own types, and the shared ones",
)
_EVENT_TYPE = OpenApiParameter(
    "event_type",
    {"type": "string", "pattern": r"^[A-Za-z0-9_:/.-]{1,128}\*?$"},
    description="Only this event type, or all that begin so: order.*",
)


class IsReader(HasScope):
    """The key must have the scope of the catalogue; a person must be allowed to see it."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        user = request.user
        if not isinstance(user, AbstractUser):
            return super().has_permission(request, view)
        if not (user.is_staff and user.has_perm("notify.view_eventtype")):
            raise PermissionDenied("Your role does not show the catalogue of event types.")
        return True


class DocumentView(QueryView):
    """The catalogue as an AsyncAPI document.

    AsyncAPI 3.0 as JSON: a channel for each event type, with its messages in each format, and their
    schemas. Generators make types and clients of it. With `If-None-Match` the answer is 304 as long
    as nothing has changed.
    """

    tag = "event types"
    required_scope = "manage:event-types"
    answers_limited_keys = True
    authentication_classes = [ApiKeyAuthentication, SessionAuthentication]
    permission_classes = [IsReader, HasKnownParts]
    query = [_SYSTEM, _EVENT_TYPE]

    @extend_schema(exclude=True)  # as the OpenAPI document itself
    def get(self, request: Request) -> HttpResponseBase:
        # The entries that the caller may see and has named.
        user, http_request = request.user, request._request
        if isinstance(user, ApiCaller):
            visible_systems = user.systems
        else:
            visible_systems = person_limits.names_of(http_request)
        rows = SharedEventType.visible_rows(EventType.objects.all(), visible_systems)
        name = self.query_values.get("system", "")
        system = business_system(name, "system", visible_systems) if name else None
        selection = Selection.of(rows, system, self.query_values.get("event_type", ""))
        etag = f'"{selection.version}"'
        headers = {
            "ETag": etag,
            "Cache-Control": "private, no-cache",
            "Vary": "Authorization, Cookie",
            "Content-Disposition": 'inline; filename="asyncapi.json"',
        }
        if not_modified := get_conditional_response(http_request, etag=etag):
            for header, value in headers.items():
                not_modified[header] = value
            return not_modified
        return HttpResponse(selection.document(), content_type=MEDIA_TYPE, headers=headers)
