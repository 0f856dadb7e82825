"""Business systems."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.http import Http404
from drf_spectacular.utils import OpenApiParameter, extend_schema_field
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from msgplatform.api.access import keys
from msgplatform.api.management.fields import TextField
from msgplatform.api.management.resources import (
    ResourceListView,
    ResourceView,
    WholeSerializer,
    audit,
    body_of,
    describe_list,
    describe_resource,
)
from msgplatform.core.errors import InvalidInput, NotNow
from msgplatform.models import ApiKey, Biz


class SystemSerializer(WholeSerializer):
    """What publishes events, sends texts, posts to feeds or submits leads."""

    class Meta:
        model = Biz
        fields = ["name", "title", "enabled", "validates_events", "created_at"]
        read_only_fields = ["name", "created_at"]


@describe_resource(
    "business system",
    "business systems",
    SystemSerializer,
    {"title": "Order service", "validates_events": True},
    on_delete="Disables it, for messages refer to it: its API keys are refused, and what it sent "
    "stays. A PUT enables it again.",
)
class SystemView(ResourceView):
    required_scope = "manage:systems"
    serializer_class = SystemSerializer
    word = "system"

    def rows(self) -> QuerySet[Biz]:
        return Biz.objects.filter(name=self.kwargs["name"])

    def new(self) -> Biz:
        return Biz(name=self.kwargs["name"])

    def after_save(self, row: Biz, is_new: bool) -> dict[str, Any]:
        if not is_new:  # it may have been disabled: its keys are cached in this process
            transaction.on_commit(keys.forget)
        return {}

    def remove(self, request: Request, row: Biz) -> None:
        if row.enabled:
            row.enabled = False
            row.save(update_fields=["enabled"])
            audit(request, "system_disabled", row.name)
            transaction.on_commit(keys.forget)


@describe_list(
    "business systems",
    "List business systems",
    "Every business system, by name, those that are disabled too.",
)
class SystemListView(ResourceListView):
    resource = SystemView
    queryset = Biz.objects.all()


def _of_name(name: str) -> dict[str, str]:
    """Exactly: MariaDB ignores case where it compares as a whole, but not where it looks within."""
    return {"name": name, "name__contains": name}


@extend_schema_field({"type": "array", "items": {"type": "string", "maxLength": 64}, "minItems": 1})
class ScopesField(serializers.ListField):
    """Names of scopes; `keys.check_scopes` knows which there are."""


class KeySerializer(WholeSerializer):
    """A key of a business system, without the key itself."""

    scopes = ScopesField(
        child=TextField(max_length=64), help_text="What the key may do: events:write"
    )

    class Meta:
        model = ApiKey
        fields = ["name", "scopes", "expires_at", "prefix", "created_at", "last_used_at",
                  "revoked_at"]  # fmt: skip
        read_only_fields = ["name", "prefix", "created_at", "last_used_at", "revoked_at"]


class NewKeySerializer(KeySerializer):
    """The answer that has the key itself, this once."""

    key = serializers.CharField(read_only=True, help_text="The key: shown this once, keep it")

    class Meta(KeySerializer.Meta):
        fields = [*KeySerializer.Meta.fields, "key"]


@describe_resource(
    "API key",
    "API keys",
    KeySerializer,
    {"scopes": ["events:write", "events:read"]},
    created_serializer=NewKeySerializer,
    on_delete="Revokes it: it is refused within 30 seconds, and stays in the list. A PUT of the "
    "same name then makes a new key.",
    notes="Only the answer that creates it (201) has the key itself. 409 when several keys of the "
    "system that are not revoked have this name.",
    address=[
        OpenApiParameter(
            "name",
            {"type": "string", "pattern": r"^[^/\s]([^/]*[^/\s])?$", "maxLength": 100},
            OpenApiParameter.PATH,
        )
    ],
)
class KeyView(ResourceView):
    required_scope = "manage:keys"
    serializer_class = KeySerializer
    answers_not_now = ("PUT", "DELETE")

    def rows(self) -> QuerySet[ApiKey]:
        """Valid keys come first, then the newest."""
        name = self.kwargs["name"]
        rows = ApiKey.objects.filter(biz__name=self.kwargs["system"], **_of_name(name))
        return rows.order_by("revoked_at", "-id")

    def put(self, request: Request, **_address: str) -> Response:
        name = self.kwargs["name"]
        if name != name.strip():
            # It would be stored without them, and not be found under this address.
            raise InvalidInput("Leave out the blanks around the name.", "name")
        body = self.get_serializer(data=body_of(request))
        body.is_valid(raise_exception=True)
        scopes, expires_at = body.validated_data["scopes"], body.validated_data.get("expires_at")
        with transaction.atomic():
            system = self._locked_system()
            row = self._active(system)
            if row is None:
                row, plain = keys.create(system, self.kwargs["name"], scopes, expires_at)
                self._log(request, "api_key_created", row)
                answer = NewKeySerializer(row).data | {"key": plain}
                return Response(answer, status.HTTP_201_CREATED)
            scopes = keys.check_scopes(scopes, is_management=False)
            if (sorted(row.scopes), row.expires_at) != (scopes, expires_at):
                keys.check_expiry(expires_at)
                before = {"scopes": row.scopes, "expires_at": row.expires_at}
                row.scopes, row.expires_at = scopes, expires_at
                row.save(update_fields=["scopes", "expires_at"])
                self._log(request, "api_key_changed", row, before=before)
                transaction.on_commit(keys.forget)
        return Response(self.get_serializer(row).data)

    def delete(self, request: Request, **_address: str) -> Response:
        with transaction.atomic():
            row = self._active(self._locked_system())
            if row is None:
                self.get_row()  # one that is revoked already may be deleted again
            else:
                keys.revoke(row)
                audit(request, "api_key_revoked", str(row), biz=self.kwargs["system"])
                transaction.on_commit(keys.forget)
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _locked_system(self) -> Biz:
        """The system's row, locked: two requests that create one key cannot make two."""
        system = Biz.objects.select_for_update().filter(name=self.kwargs["system"]).first()
        if system is None:
            raise Http404("There is no such business system.")
        return system

    def _active(self, system: Biz) -> ApiKey | None:
        keys_of_name = ApiKey.objects.filter(
            biz=system, revoked_at=None, **_of_name(self.kwargs["name"])
        )
        rows = list(keys_of_name[:2])
        if len(rows) > 1:
            raise NotNow("Several keys of this system have this name. Revoke all but one of them.")
        return rows[0] if rows else None

    def _log(self, request: Request, action: str, row: ApiKey, **detail: Any) -> None:
        after = {"scopes": row.scopes, "expires_at": row.expires_at}
        audit(request, action, str(row), biz=self.kwargs["system"], after=after, **detail)


@describe_list(
    "API keys",
    "List the API keys of a business system",
    "Newest first, revoked ones too. A key itself is never shown again.",
)
class KeyListView(ResourceListView):
    resource = KeyView
    keyset_ordering = ("-id",)

    def get_queryset(self) -> QuerySet[ApiKey]:
        system = self.kwargs.get("system", "")
        if system and not Biz.objects.filter(name=system).exists():
            raise Http404("There is no such business system.")
        return ApiKey.objects.filter(biz__name=system)
