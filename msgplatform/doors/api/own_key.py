"""The key of a request: its name, whose it is and what it may do, and the platform's release."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from msgplatform import __version__
from msgplatform.doors.api.access.authentication import ANY_SCOPE, caller_of
from msgplatform.doors.api.query import QueryView
from msgplatform.doors.api.schema import operation


class OwnKeySerializer(serializers.Serializer[Any]):
    """An API key as it describes itself."""

    name = serializers.CharField()
    system = serializers.CharField(
        allow_null=True, help_text="The business system; null for a management key"
    )
    systems = serializers.ListField(
        child=serializers.CharField(),
        help_text="The business systems to which a management key is limited; empty: all",
    )
    scopes = serializers.ListField(child=serializers.CharField())
    platform_version = serializers.CharField(help_text="The platform's release, such as 1.4.0")


class OwnKeyView(QueryView):
    """Show the key of this request."""

    tag = "API keys"
    required_scope = ANY_SCOPE
    answers_limited_keys = True

    @operation(None, {200: OwnKeySerializer})
    def get(self, request: Request) -> Response:
        """Show the key of this request.

        Its name, whose it is and what it may do, and the platform's release. Every key may ask.
        """
        caller = caller_of(request)
        return Response(
            {
                "name": caller.key_name,
                "system": caller.biz_name or None,
                "systems": sorted(caller.systems),
                "scopes": sorted(caller.scopes),
                "platform_version": __version__,
            }
        )
