"""The REST endpoint of one lead: show, replace, change and delete it."""

from __future__ import annotations

from django.http import Http404
from drf_spectacular.utils import OpenApiExample, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from crmsync.api.requests import MAX_LEAD_BYTES, LeadBody
from crmsync.api.serializers import LeadChangeSerializer, LeadSerializer
from crmsync.intake import changes
from crmsync.models import Lead
from msgplatform.api.access.authentication import caller_of
from msgplatform.api.json import decode
from msgplatform.core.errors import InvalidInput

_CHANGED = OpenApiExample(
    "another number",
    {"name": "王小明", "phone": "13900000000", "extra": {"email": "wang@example.com"}},
    request_only=True,
)


@extend_schema(tags=["leads"])
class LeadView(APIView):
    """One lead. A deleted one can still be read: the CRMs have to learn of it."""

    required_scope = {
        "GET": "leads:read", "PUT": "leads:write", "PATCH": "leads:write", "DELETE": "leads:write",
    }  # fmt: skip
    max_body_bytes = MAX_LEAD_BYTES

    @extend_schema(
        summary="Show a lead",
        description="One lead. A deleted lead can still be read: the CRMs have to learn of it.",
        responses=LeadSerializer,
    )
    def get(self, request: Request, pk: int) -> Response:
        return _shown(Lead.objects.filter(biz_id=caller_of(request).biz_id, pk=pk).first())

    @extend_schema(
        summary="Replace a lead",
        description="Replace everything but the APPKEY: what is left out or null is emptied.",
        request=LeadChangeSerializer,
        responses=LeadSerializer,
        examples=[_CHANGED],
    )
    def put(self, request: Request, pk: int) -> Response:
        """Replace everything but the APPKEY: what is left out is emptied."""
        body = self._body(request, pk)
        biz = caller_of(request).biz_id
        uid = body.uid_text or ""
        return _shown(changes.replace(biz, pk, body.columns, body.extra_fields, uid))

    @extend_schema(
        summary="Change a lead",
        description="Change what is sent; the rest stays as it is. As in every JSON merge patch, "
        "null takes a value away, and null for `extra` all of its fields.",
        request=LeadChangeSerializer,
        responses=LeadSerializer,
        examples=[_CHANGED],
    )
    def patch(self, request: Request, pk: int) -> Response:
        """Change what is sent; null takes a value away."""
        body = self._body(request, pk)
        biz = caller_of(request).biz_id
        return _shown(changes.update(biz, pk, body.columns, body.extra_change, body.uid_text))

    @extend_schema(
        summary="Delete a lead",
        description="Mark a lead as deleted; the CRMs follow. It can be repeated.",
        responses={204: OpenApiResponse(description="Deleted, now or before.")},
    )
    def delete(self, request: Request, pk: int) -> Response:
        """Mark it as deleted; the CRMs follow."""
        if not changes.delete(caller_of(request).biz_id, pk):
            raise Http404
        return Response(status=204)

    def _body(self, request: Request, pk: int) -> LeadBody:
        """Raises InvalidInput when it names another APPKEY."""
        body = decode(request, LeadBody, MAX_LEAD_BYTES)
        if body.appkey is not None:
            rows = Lead.objects.filter(biz_id=caller_of(request).biz_id, pk=pk)
            # A lead that does not exist is answered with 404 later, not with this error.
            if rows.exclude(appkey=body.appkey).exists():
                raise InvalidInput("A lead keeps its APPKEY.", "appkey")
        return body


def _shown(lead: Lead | None) -> Response:
    if lead is None:
        raise Http404("There is no lead with this id, or it is deleted.")
    return Response(LeadSerializer(lead).data)
