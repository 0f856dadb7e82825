"""Views and addresses that only the tests of the API have; ROOT_URLCONF of those tests."""

from typing import Any

import msgspec
from django.core import exceptions as django_errors
from django.db.utils import OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import path
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import exceptions as drf, serializers
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from msgplatform import urls
from msgplatform.core import errors
from msgplatform.core.connections import RedisError
from msgplatform.doors.api.json import decode
from msgplatform.doors.api.query import ListView
from msgplatform.models import AuditLog, MinuteCounter


class Item(msgspec.Struct, forbid_unknown_fields=True):
    """One thing."""

    name: str
    payload: msgspec.Raw
    size: int | None = None


class Batch(msgspec.Struct):
    """Many things."""

    items: list[Item]


class EchoView(APIView):
    """Say it again."""

    required_scope = {"GET": "things:read", "POST": "things:write"}
    max_body_bytes = 2000

    def get(self, request: Request) -> Response:
        return Response({"biz": request.user.biz_name, "key": str(request.user.key_id)})

    def post(self, request: Request) -> Response:
        return Response(request.data)


class BatchView(APIView):
    required_scope = "things:write"
    accepts_idempotency_key = True

    @extend_schema(request=Batch, responses={200: Batch})
    def post(self, request: Request) -> Response:
        batch = decode(request, Batch, 2000)
        return Response(
            {"payloads": [bytes(item.payload).decode("latin-1") for item in batch.items]}
        )


class ClosedView(APIView):
    """Its author forgot the scope."""

    def get(self, request: Request) -> Response:
        return Response({"reached": True})


class HalfClosedView(APIView):
    """Its author forgot the scope of one method."""

    required_scope = {"GET": "things:read"}

    def get(self, request: Request) -> Response:
        return Response({"reached": True})

    def delete(self, request: Request) -> Response:
        return Response({"reached": True})


class PublicView(APIView):
    permission_classes = [AllowAny]

    def get(self, request: Request) -> Response:
        return Response({"reached": True})


class StrangeError(drf.APIException):
    status_code = 418


FAULTS: dict[str, Exception] = {
    "input": errors.InvalidInput("Use letters.", "name"),
    "input-whole": errors.InvalidInput("Nothing fits."),
    "permanent": errors.Permanent("10.0.0.1 is private"),
    "conflict": errors.Conflict(),
    "unavailable": errors.Unavailable("The queue is away."),
    "unknown": errors.OutcomeUnknown(),
    "lease": errors.LeaseLost(),
    "database": OperationalError(2006, "the password is hunter2"),
    "database-refused": OperationalError(2002, "Can't connect"),
    "redis": RedisError("the password is hunter2"),
    "missing": Http404(),
    "denied": django_errors.PermissionDenied(),
    "too-big": django_errors.RequestDataTooBig(),
    "suspicious": django_errors.SuspiciousOperation("hm"),
    "django-validation": django_errors.ValidationError({"name": ["Too long."]}),
    "strange": StrangeError("I am a teapot."),
    "bug": ZeroDivisionError("the password is hunter2"),
    "validation": serializers.ValidationError(
        {
            "name": ["This field is required."],
            "items": [{}, {"type": ["Wrong.", "Very wrong."]}],
            "non_field_errors": ["These do not go together."],
        }
    ),
}


class FaultView(APIView):
    permission_classes = [AllowAny]
    throttle_classes: list[Any] = []

    def get(self, request: Request, name: str) -> Response:
        raise FAULTS[name].with_traceback(None)

    post = get


def fault_page(request: HttpRequest, name: str) -> HttpResponse:
    raise FAULTS[name].with_traceback(None)


class AuditSerializer(serializers.ModelSerializer):
    id = serializers.CharField()

    class Meta:
        model = AuditLog
        fields = ["id", "action", "at"]


class AuditListView(ListView):
    """The newest first."""

    required_scope = "things:read"
    throttle_classes: list[Any] = []
    serializer_class = AuditSerializer
    queryset = AuditLog.objects.all()
    query = (OpenApiParameter("biz", str),)


class CounterListView(ListView):
    """By two fields in two directions, over dicts."""

    required_scope = "things:read"
    throttle_classes: list[Any] = []
    keyset_ordering = ("-minute", "value", "id")

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        rows = MinuteCounter.objects.values("id", "minute", "value")
        page = self.paginate_queryset(rows)
        return self.get_paginated_response([str(row["id"]) for row in page or []])


handler400, handler403 = urls.handler400, urls.handler403
handler404, handler500 = urls.handler404, urls.handler500
urlpatterns = [
    path("api/v1/test/echo", EchoView.as_view()),
    path("api/v1/test/batch", BatchView.as_view()),
    path("api/v1/test/closed", ClosedView.as_view()),
    path("api/v1/test/half-closed", HalfClosedView.as_view()),
    path("api/v1/test/public", PublicView.as_view()),
    path("api/v1/test/audit", AuditListView.as_view()),
    path("api/v1/test/counters", CounterListView.as_view()),
    path("api/v1/test/fault/<str:name>", FaultView.as_view()),
    path("api/plain/<str:name>", fault_page),
    path("page/<str:name>", fault_page),
    *urls.urlpatterns,
]
