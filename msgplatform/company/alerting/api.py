"""Where alerts go, over the management API: channels, rules, a test."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.http import Http404
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from msgplatform.api.management.fields import NamedField, TextField, TextListField
from msgplatform.api.management.resource import Resource, WholeSerializer
from msgplatform.api.management.resources import audit
from msgplatform.api.schema import operation
from msgplatform.company.alerting import addresses, outbox
from msgplatform.core.errors import NotNow, Undecryptable
from msgplatform.models import AlertChannel, AlertRule, Biz
from msgplatform.models.alerts_out import MAX_URL

SCOPE = "manage:alert-channels"


class AlertChannelSerializer(WholeSerializer):
    """A place where people read alerts."""

    url = TextField(
        write_only=True,
        required=False,
        allow_null=True,
        max_length=MAX_URL,
        help_text="An address of apprise, or a robot's webhook. Never shown: left out, the stored "
        "one stays",
    )
    failing = serializers.SerializerMethodField(
        help_text="true: the last attempts failed, and there is an alert about it"
    )

    class Meta:
        model = AlertChannel
        fields = ["name", "enabled", "url", "shown", "language", "time_zone", "summary_weekday",
                  "heartbeat_seconds", "failing", "last_error", "last_sent_at"]  # fmt: skip
        read_only_fields = ["name", "shown", "last_error", "last_sent_at"]

    def get_failing(self, row: AlertChannel) -> bool:
        return outbox.is_failing(row)


class AlertChannelResource(Resource):
    noun, nouns = "alert channel", "alert channels"
    answers_limited_keys = False
    list_path, path = "alert-channels", "alert-channels/<slug:name>"
    scope = SCOPE
    model = AlertChannel
    serializer_class = AlertChannelSerializer
    secret_fields = frozenset({"url"})
    example = {"url": "dingtalk://SECRET@TOKEN/", "language": "zh-hans"}
    on_delete = "Deletes the channel, with what was sent there and what waits for it."
    notes = "The address is checked without sending anything. Nothing goes there without a rule."
    list_notes = "Every channel, by name, without its address."

    def check_change(
        self, row: AlertChannel, before: Mapping[str, Any], sent_names: Collection[str]
    ) -> None:
        try:
            url = row.url or ""
        except Undecryptable as error:
            raise ValidationError({"url": str(error)}) from None
        is_same = row.pk and url == before["url"]
        if is_same and row.heartbeat_seconds == before["heartbeat_seconds"]:
            return
        checked = addresses.check(url, row.is_heartbeat)
        if checked.fault:
            raise ValidationError({"url": checked.fault})
        row.url, row.shown = url.strip(), checked.shown

    def set_dependent_fields(self, row: AlertChannel, names: Any) -> list[str]:
        return ["shown"]

    @classmethod
    def is_removed(cls, row: AlertChannel) -> bool:
        return False

    def remove(self, row: AlertChannel) -> None:
        self.audit("alert_channel_deleted", row.name)
        row.delete()


class AlertRuleSerializer(WholeSerializer):
    """Which alerts go to which channels, and when."""

    kinds = TextListField(help_text='Such as ["sms.*", "notify.failing"]; empty: all kinds')
    systems = NamedField(
        many=True, queryset=Biz.objects.all(), required=False, allow_null=True,
        help_text="Only alerts about these business systems; empty: all",
    )  # fmt: skip
    channels = NamedField(
        many=True, queryset=AlertChannel.objects.all(), help_text="Names of channels"
    )

    class Meta:
        model = AlertRule
        fields = ["name", "enabled", "kinds", "min_severity", "systems", "channels",
                  "group_seconds", "repeat_minutes", "sends_resolved", "quiet_from", "quiet_until",
                  "time_zone", "quiet_passes_from", "quiet_drops_below"]  # fmt: skip
        read_only_fields = ["name"]

    def validate_channels(self, rows: list[AlertChannel]) -> list[AlertChannel]:
        if names := [row.name for row in rows if row.is_heartbeat]:
            words = f"A heartbeat gets no messages: leave out {', '.join(names)}."
            raise serializers.ValidationError(words)
        return rows


class AlertRuleResource(Resource):
    noun, nouns = "alert rule", "alert rules"
    answers_limited_keys = False
    list_path, path = "alert-rules", "alert-rules/<slug:name>"
    scope = SCOPE
    model = AlertRule
    serializer_class = AlertRuleSerializer
    example = {"kinds": ["sms.*"], "min_severity": "critical", "channels": ["operators"]}
    on_delete = "Deletes the rule; what waits by it is still sent."
    notes = "It is about what happens from then on."
    list_notes = "Every rule, by name."

    @classmethod
    def is_removed(cls, row: AlertRule) -> bool:
        return False

    def remove(self, row: AlertRule) -> None:
        self.audit("alert_rule_deleted", row.name)
        row.delete()


class ChannelCheckSerializer(serializers.Serializer[Any]):
    """The outcome of a test."""

    sent = serializers.BooleanField(source="is_ok", help_text="true: the service took it")
    error = serializers.CharField(help_text="Why not, '' when it was sent")


class AlertChannelTestView(APIView):
    """Test a channel."""

    tag = "alert channels"
    required_scope = SCOPE
    answers_limited_keys = False
    answers_not_now = True

    @operation(None, {200: ChannelCheckSerializer})
    def post(self, request: Request, name: str) -> Response:
        """Send a test to an alert channel.

        Sends a message now, or calls the address of a heartbeat, and waits at most 20 seconds for
        the answer. 409 when the stored address cannot be decrypted.
        """
        row = AlertChannel.objects.filter(name=name).first()
        if row is None:
            raise Http404("There is no alert channel of this name.")
        audit(request, "alert_channel_tested", row.name)
        try:
            outcome = outbox.send_test(row)
        except Undecryptable as error:
            raise NotNow(str(error)) from None
        return Response(ChannelCheckSerializer(outcome).data)
