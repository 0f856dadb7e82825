"""Consumers over the management API: where messages go."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from msgplatform.api.access.authentication import caller_of
from msgplatform.core.errors import NotNow, Undecryptable
from msgplatform.setup.fields import TextField
from msgplatform.setup.resource import Resource
from msgplatform.setup.serializers import WholeSerializer
from notify import operations
from notify.models import BizReceive, Receive
from notify.subscriptions import limits
from notify.subscriptions.limits import shown_url


@extend_schema_field(
    {"type": "array", "items": {"type": "string"}, "maxItems": limits.MAX_PATTERNS}
)
class NetworksField(serializers.ListField):
    """Networks as CIDR writes them; `limits` checks them."""


class ConsumerSerializer(WholeSerializer):
    """Where messages go, and with which headers."""

    headers = serializers.DictField(
        child=TextField(trim_whitespace=False),
        write_only=True,
        required=False,
        allow_null=True,
        help_text="Sent with every message. Never shown again: left out, the stored ones stay, "
        "unless the URL has another scheme, host or port; {} takes them away",
    )
    header_names = serializers.SerializerMethodField(help_text="The names of the stored headers")
    networks = NetworksField(
        child=TextField(),
        required=False,
        allow_null=True,
        help_text="Where the consumer may be: 10.2.0.0/16. Empty: wherever the platform may "
        "deliver to",
    )
    secret_fingerprint = serializers.SerializerMethodField(
        help_text="Of the signing secret: a rotation names it. It tells nothing about the secret"
    )

    class Meta:
        model = Receive
        fields = ["name", "title", "delivery", "url", "header_prefix", "headers", "header_names",
                  "networks", "secret_fingerprint", "previous_secret_until",
                  "created_at"]  # fmt: skip
        read_only_fields = ["name", "previous_secret_until", "created_at"]

    def to_representation(self, instance: Receive) -> dict[str, Any]:
        """For a key that is limited to business systems without what a URL may keep secret: it
        may see a consumer to which others send too."""
        values = super().to_representation(instance)
        request = self.context.get("request")
        if request is not None and caller_of(request).systems:
            values["url"] = shown_url(values["url"])
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
    model = Receive
    serializer_class = ConsumerSerializer
    created_serializer_class = CreatedConsumerSerializer
    secret_fields = frozenset({"headers"})
    example = {"title": "Warehouse", "url": "https://warehouse.example/webhooks"}
    on_delete = (
        "Deletes a consumer that no subscription names; 409 for one that has had a subscription, "
        "since deliveries refer to it. Discard its subscriptions instead."
    )
    notes = (
        "Only the answer that creates it (201) has the signing secret; `rotate` makes a new one."
    )
    list_notes = "Every consumer, by name."
    conflicts = ("DELETE",)

    @classmethod
    def visible_rows(cls, rows: QuerySet[Receive], systems: Collection[str]) -> QuerySet[Receive]:
        """With a limit the consumers of these systems' subscriptions: a consumer belongs to no
        system, but where another one's messages go is that one's concern."""
        if not systems:
            return rows
        subscriptions = BizReceive.objects.filter(biz__name__in=systems)
        return rows.filter(pk__in=subscriptions.values("receive_id"))

    def check_change(
        self, row: Receive, before: Mapping[str, Any], sent_names: Collection[str]
    ) -> None:
        """Stored headers go to no other server than the one for which they were entered."""
        if before["headers"] and "headers" not in sent_names:
            limits.stored_headers_at(row.url, before["url"])

    def audit_value(self, name: str, value: Any) -> Any:
        return shown_url(value) if name == "url" else value

    def after_save(self, row: Receive, is_new: bool) -> Mapping[str, Any]:
        return {"secret": row.secret} if is_new else {}

    def remove(self, row: Receive) -> None:
        if BizReceive.objects.filter(receive=row).exists():
            raise NotNow("A subscription names this consumer, and deliveries refer to it.")
        self.audit("consumer_deleted", row.name, url=shown_url(row.url))
        row.delete()
