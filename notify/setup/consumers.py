"""Consumers as people set them up: where messages go."""

from collections.abc import Collection, Mapping
from typing import Any

from django.db.models import QuerySet
from django.utils.translation import gettext as _, gettext_lazy
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from msgplatform.core.errors import Undecryptable
from msgplatform.core.http import destinations
from msgplatform.setup.declaration import Before, Faults
from msgplatform.setup.fields import TextField, TextListField, WholeSerializer
from msgplatform.setup.resource import Resource
from notify import operations
from notify.models import BizReceive, Receive
from notify.subscriptions import limits


@extend_schema_field(
    {"type": "array", "items": {"type": "string"}, "maxItems": limits.MAX_PATTERNS}
)
class NetworksField(TextListField):
    """Networks as CIDR writes them; `limits` checks them."""


class ConsumerSerializer(WholeSerializer):
    """The address to which messages go, and their headers."""

    headers = serializers.DictField(
        child=TextField(trim_whitespace=False),
        write_only=True,
        required=False,
        allow_null=True,
    )
    header_names = serializers.SerializerMethodField(help_text="The names of the stored headers")
    networks = NetworksField()
    secret_fingerprint = serializers.SerializerMethodField(
        help_text="Of the signing secret: a rotation names it. It tells nothing about the secret"
    )

    class Meta:
        model = Receive
        fields = ["name", "title", "delivery", "url", "header_prefix", "headers", "header_names",
                  "networks", "secret_fingerprint", "previous_secret_until",
                  "created_at"]  # fmt: skip
        read_only_fields = ["name", "previous_secret_until", "created_at"]
        notes = {
            "headers": "Never shown again: left out, the stored ones stay, unless the URL has "
            "another scheme, host or port; {} takes them away"
        }

    def to_representation(self, instance: Receive) -> dict[str, Any]:
        """The consumer's values. A key that is limited to business systems gets the URL without
        possible secrets, because other systems may send to the consumer too."""
        values = super().to_representation(instance)
        if self.context.get("systems"):
            values["url"] = limits.shown_url(values["url"])
        return values

    def get_secret_fingerprint(self, row: Receive) -> str:
        return operations.secret_mark(row)

    def get_header_names(self, row: Receive) -> list[str]:
        try:
            return sorted(row.headers)
        except Undecryptable:
            return []


class CreatedConsumerSerializer(ConsumerSerializer):
    """The answer that has the signing secret, this once."""

    secret = serializers.CharField(
        read_only=True, help_text="What signs its messages: shown this once, give it to it"
    )

    class Meta(ConsumerSerializer.Meta):
        fields = [*ConsumerSerializer.Meta.fields, "secret"]


class Consumer(Resource):
    noun, nouns = "consumer", "consumers"
    list_path, path = "consumers", "consumers/<slug:name>"
    scope = "manage:consumers"
    answers_limited_keys = True
    moves = True
    moved_columns = ("secret", "previous_secret", "previous_secret_until")
    model = Receive
    serializer_class = ConsumerSerializer
    created_serializer_class = CreatedConsumerSerializer
    secret_fields = frozenset({"headers"})
    checked_fields = frozenset({"url", "headers"})
    example = {"title": "Warehouse", "url": "https://warehouse.example/webhooks"}
    on_delete = (
        "Deletes a consumer that no subscription names; 409 for one that has had a subscription, "
        "since deliveries refer to it. Discard its subscriptions instead."
    )
    notes = (
        "Only the answer that creates it (201) has the signing secret; `rotate` makes a new one."
    )
    conflicts = ("DELETE",)
    is_deleted = True
    groups = [
        (None, ["name", "title", "delivery", "url"]),
        (gettext_lazy("Request"), ["header_prefix", "headers", "networks"]),
    ]

    @classmethod
    def visible_rows(cls, rows: QuerySet[Receive], systems: Collection[str]) -> QuerySet[Receive]:
        """The consumers that a limited key may see: the consumers of these systems' subscriptions.
        A consumer itself belongs to no system."""
        if not systems:
            return rows
        subscriptions = BizReceive.objects.filter(biz__name__in=systems)
        return rows.filter(pk__in=subscriptions.values("receive_id"))

    def faults(self, row: Receive, before: Before | None) -> Faults:
        """Refuse a header that is listed twice, and a new server with stored headers. Headers often
        hold a key, and a person who sets the address must not send the key to another server."""
        headers_of = Receive._meta.get_field("headers").value_from_object
        headers, stored_headers = headers_of(row), headers_of(before.row) if before else {}
        # Stored headers stay as an earlier release took them, also on another cell.
        if headers != stored_headers and not self.is_moved:
            names = [name.lower() for name in headers]  # proxies join or refuse two of one name
            for name in {name for name in names if names.count(name) > 1}:
                yield "headers", _("%s is listed twice") % name
        if before is None or "headers" not in before.kept_secrets:
            return
        # A listener has no URL.
        new_place, old_place = (
            destinations.origin(url) if url else _("a listener")
            for url in (row.url, before.row.url)
        )
        if stored_headers and new_place != old_place:
            words = _("The stored headers were entered for %(old)s: write their values again for "
                      "%(new)s.")  # fmt: skip
            yield "headers", words % {"old": old_place, "new": new_place}

    @classmethod
    def audit_value(cls, name: str, value: Any) -> Any:
        return limits.shown_url(value) if name == "url" else value

    def after_save(self, row: Receive, is_new: bool) -> Mapping[str, Any]:
        return {"secret": row.secret} if is_new else {}

    @classmethod
    def removal_fault(cls, row: Receive) -> str:
        is_named = BizReceive.objects.filter(receive=row).exists()
        words = "A subscription names this consumer, and deliveries refer to it."
        return words if is_named else ""

    @classmethod
    def deleted_detail(cls, row: Receive) -> Mapping[str, Any]:
        return {"url": limits.shown_url(row.url)}
