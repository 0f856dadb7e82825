"""Business systems."""

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.http import Http404
from drf_spectacular.utils import OpenApiParameter, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from msgplatform import __version__
from msgplatform.core.errors import Changed, InvalidInput, NotNow
from msgplatform.doors.api.access import keys
from msgplatform.doors.api.access.authentication import ANY_SCOPE, caller_of
from msgplatform.doors.api.management.resources import ResourceListView, own_rows
from msgplatform.doors.api.query import QueryView
from msgplatform.doors.api.schema import operation
from msgplatform.models import ApiKey, Biz
from msgplatform.setup.declaration import Before, Faults
from msgplatform.setup.fields import TextField, WholeSerializer
from msgplatform.setup.resource import Resource, Stored, changed_error


class SystemSerializer(WholeSerializer):
    """A system that publishes events, sends texts, posts to feeds or submits leads."""

    class Meta:
        model = Biz
        fields = ["name", "title", "enabled", "validates_events", "encrypts_payloads",
                  "created_at"]  # fmt: skip
        read_only_fields = ["name", "created_at"]


class System(Resource):
    noun, nouns = "business system", "business systems"
    audit_noun = "system"
    list_path, path = "systems", "systems/<slug:name>"
    scope = "manage:systems"
    system_lookup = "name"
    moves = True
    answers_limited_keys = True
    model = Biz
    serializer_class = SystemSerializer
    groups = [(None, ["name", "title", "enabled", "validates_events", "encrypts_payloads"])]
    example = {"title": "Order service", "validates_events": True}
    on_delete = (
        "Disables it, for messages refer to it: its API keys are refused, and what it sent stays. "
        "A PUT enables it again."
    )
    list_notes = "Every business system, by name, those that are disabled too."

    @classmethod
    def forget_cached(cls) -> None:
        """This process caches the keys of a system that was disabled."""
        super().forget_cached()
        keys.forget()


def _name_lookup(name: str) -> dict[str, str]:
    """Compare exactly: MariaDB ignores case in whole texts, but not when it looks inside."""
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


class CreatedKeySerializer(KeySerializer):
    """The answer that has the key itself, this once."""

    key = serializers.CharField(read_only=True, help_text="The key: shown this once, keep it")

    class Meta(KeySerializer.Meta):
        fields = [*KeySerializer.Meta.fields, "key"]


class Key(Resource):
    noun, nouns = "API key", "API keys"
    audit_noun = "api_key"
    list_path, path = "systems/<slug:system>/keys", "systems/<slug:system>/keys/<str:name>"
    address_lookups = {"system": "biz__name", "name": "name"}
    scope = "manage:keys"
    system_lookup = "biz__name"
    answers_limited_keys = True
    is_in_files = False  # a key is shown once, and no file can have it
    model = ApiKey
    serializer_class = KeySerializer
    checked_fields = frozenset({"biz"})
    created_serializer_class = CreatedKeySerializer
    example = {"scopes": ["events:write", "events:read"]}
    on_delete = (
        "Revokes it: it is refused within 30 seconds, and stays in the list. A PUT of the same "
        "name then makes a new key."
    )
    notes = (
        "Only the answer that creates it (201) has the key itself. 409 when several keys of the "
        "system that are not revoked have this name."
    )
    list_notes = "Newest first, revoked ones too. A key itself is never shown again."
    list_order = ("-id",)
    parameters = [
        OpenApiParameter(
            "name",
            {"type": "string", "pattern": r"^[^/\s]([^/]*[^/\s])?$", "maxLength": 100},
            OpenApiParameter.PATH,
        )
    ]
    conflicts = ("PUT", "DELETE")

    @classmethod
    def fixed_fields(cls, row: ApiKey) -> Mapping[str, str]:
        return {"biz": ""}

    @classmethod
    def title(cls, row: ApiKey) -> str:
        return str(row)

    @classmethod
    def forget_cached(cls) -> None:
        keys.forget()

    def faults(self, row: ApiKey, before: Before | None) -> Faults:
        is_management = row.biz is None
        checks: list[Callable[[], Any]] = [
            lambda: keys.check_scopes(row.scopes, is_management),
            lambda: keys.check_limit(row.systems or (), is_management),
        ]
        if before is None or row.expires_at != before.row.expires_at:
            checks.append(lambda: keys.check_expiry(row.expires_at))
        if before is None or row.name != before.row.name:  # a name of an earlier release stays
            checks.append(lambda: keys.check_name(row.name, is_management))
        for check in checks:
            try:
                check()
            except InvalidInput as error:
                yield error.field, str(error)

    def rows(self) -> QuerySet[ApiKey]:
        """Valid keys come first, then the newest."""
        rows = ApiKey.objects.filter(biz__name=self.address["system"], **_name_lookup(self.name))
        return rows.order_by("revoked_at", "-id")

    @transaction.atomic
    def put(self, data: Any, version: str = "", should_be_new: bool = False) -> Stored:
        if self.name != self.name.strip():
            # The name would be stored without the blanks, under another address.
            raise InvalidInput("Leave out the blanks around the name.", "name")
        self.check_address()
        serializer = KeySerializer(data=data)
        serializer.is_valid(raise_exception=True)
        values = serializer.validated_data
        scopes, expires_at = values["scopes"], values.get("expires_at")
        system = self._locked_system()
        row = self._active_key(system)
        if should_be_new and self.rows().exists():
            raise Changed("There is something of this name already.")
        if row is None:
            if version:
                raise Changed("There is no valid key of this name any more.")
            row, plain = keys.create(system, self.name, scopes, expires_at)
            self._log("api_key_created", row)
            return Stored(row, is_new=True, shown_once={"key": plain})
        scopes = keys.check_scopes(scopes, is_management=False)
        if (sorted(row.scopes), row.expires_at) == (scopes, expires_at):
            return Stored(row)
        before = {"scopes": row.scopes, "expires_at": row.expires_at}
        stored_row = copy(row)
        row.scopes, row.expires_at = scopes, expires_at
        if version not in ("", "*", self.version(stored_row)):
            raise changed_error(self.differences(stored_row, row, before, {}))
        self._check_change(row, Before(stored_row), [])
        row.save(update_fields=["scopes", "expires_at"])
        self._log("api_key_changed", row, before=before)
        transaction.on_commit(keys.forget)
        return Stored(row)

    @transaction.atomic
    def delete(self, version: str = "") -> None:
        row = self._active_key(self._locked_system())
        if row is None:
            self.get()  # a revoked key may be deleted again
            return
        self.check_version(row, version)
        keys.revoke(row)
        self.audit("api_key_revoked", str(row), biz=self.address["system"])
        transaction.on_commit(keys.forget)

    def _locked_system(self) -> Biz:
        """The system's row, locked: two requests for one key must not create two."""
        self.check_address()
        system = Biz.objects.select_for_update().filter(name=self.address["system"]).first()
        if system is None:
            raise Http404("There is no such business system.")
        return system

    def _active_key(self, system: Biz) -> ApiKey | None:
        keys_of_name = ApiKey.objects.filter(biz=system, revoked_at=None, **_name_lookup(self.name))
        rows = list(keys_of_name[:2])
        if len(rows) > 1:
            raise NotNow("Several keys of this system have this name. Revoke all but one of them.")
        return rows[0] if rows else None

    def _log(self, action: str, row: ApiKey, **detail: Any) -> None:
        after = {"scopes": row.scopes, "expires_at": row.expires_at}
        self.audit(action, str(row), biz=self.address["system"], after=after, **detail)


class KeyListView(ResourceListView):
    def get_queryset(self) -> QuerySet[ApiKey]:
        name = self.kwargs.get("system", "")
        systems = own_rows(self.request, Biz.objects.filter(name=name), "name")
        if name and not systems.exists():
            raise Http404("There is no such business system.")
        return ApiKey.objects.filter(biz__name=name)


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
