"""Alerts, and the log of what people and keys have done, over the management API."""

from datetime import timedelta
from typing import Annotated, Any, ClassVar

import msgspec
from django.db.models import Min, QuerySet
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.generics import GenericAPIView, RetrieveAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from msgplatform.core.errors import InvalidInput, NotNow
from msgplatform.doors.api.bodies import text
from msgplatform.doors.api.json import decode
from msgplatform.doors.api.management.resources import actor
from msgplatform.doors.api.pagination import SincePagination
from msgplatform.doors.api.query import ListView, QueryView
from msgplatform.doors.api.schema import operation
from msgplatform.messages.filters import number
from msgplatform.models import Alert, AuditLog
from msgplatform.models.failures import MAX_NOTE
from msgplatform.monitor import alert_store

SCOPE = "manage:alerts"
_BODY_BYTES = 4096
# After so long a transaction has committed or was undone (`IDLE_TRANSACTION_SECONDS`): a caller
# that follows the changes misses none. A long one, of a platform file, stores changes at its end.
SETTLED = timedelta(seconds=15)
_MAX_CLOCK_DIFFERENCE = timedelta(minutes=5)
_STATES = ("open", "acknowledged", "resolved")


class AlertSerializer(serializers.ModelSerializer[Alert]):
    """Something that a person should look at."""

    id = serializers.CharField(read_only=True)
    state = serializers.SerializerMethodField(
        help_text="open, acknowledged (open, and somebody has said who does what) or resolved"
    )
    count = serializers.IntegerField(read_only=True, help_text="How often it was raised while open")

    class Meta:
        model = Alert
        fields = ["id", "kind", "key", "state", "subject", "text", "count", "first_at", "last_at",
                  "acknowledged_at", "acknowledged_by", "note", "resolved_at"]  # fmt: skip
        read_only_fields = fields

    def get_state(self, row: Alert) -> str:
        if row.open_key is None:
            return "resolved"
        return "acknowledged" if row.acknowledged_at else "open"

    def to_representation(self, instance: Alert) -> dict[str, Any]:
        instance.translate()
        return super().to_representation(instance)


class _Alerts(GenericAPIView[Alert]):
    tag = "alerts"
    required_scope = SCOPE
    answers_limited_keys = False
    serializer_class = AlertSerializer
    queryset = Alert.objects.all()


class AlertListView(_Alerts, ListView):
    """List alerts.

    Newest first, those that are resolved too. `kind` is the heading of the alert in the runbooks.
    """

    query = [
        OpenApiParameter("state", str, enum=_STATES, description="Only alerts in this state"),
        OpenApiParameter("kind", str, description="Only of this kind, such as notify.failing"),
    ]

    def get_queryset(self) -> QuerySet[Alert]:
        rows = Alert.objects.all()
        if state := self.query_values.get("state"):
            rows = rows.filter(open_key__isnull=state == "resolved")
        if state in ("open", "acknowledged"):
            rows = rows.filter(acknowledged_at__isnull=state == "open")
        if kind := self.query_values.get("kind"):
            rows = rows.filter(kind=kind)
        return rows


class AlertView(_Alerts, QueryView, RetrieveAPIView[Alert]):
    """Show an alert.

    What failed, since when, and who looks after it.
    """


class AcknowledgementBody(msgspec.Struct, forbid_unknown_fields=True):
    """Somebody has seen the alert."""

    note: Annotated[str, text("Who does what about it", MAX_NOTE)]


class AlertAcknowledgeView(_Alerts):
    answers_not_now = True
    max_body_bytes = _BODY_BYTES

    @operation(
        AcknowledgementBody, {200: AlertSerializer}, ("on it", {"note": "Li calls the operator"})
    )
    def post(self, request: Request, pk: int) -> Response:
        """Acknowledge an alert.

        Says who looks after it; it stays open until its cause is gone. A later acknowledgement
        replaces the note. 409 when it is resolved.
        """
        note = decode(request, AcknowledgementBody, _BODY_BYTES).note.strip()
        if not note or len(note) > MAX_NOTE:
            words = f"Say who does what about it, in at most {MAX_NOTE} characters."
            raise InvalidInput(words, "note")
        if not alert_store.acknowledge(self.get_object(), actor(request), note):
            raise NotNow("It is resolved, or somebody acknowledged it just now.")
        return Response(AlertSerializer(self.get_object()).data)


class AlertResolveView(_Alerts):
    @operation(None, {200: AlertSerializer})
    def post(self, request: Request, pk: int) -> Response:
        """Resolve an alert.

        If its cause still holds, it opens again by itself. Again it changes nothing.
        """
        alert_store.resolve([self.get_object().pk], actor(request))
        return Response(AlertSerializer(self.get_object()).data)


class AuditSerializer(serializers.ModelSerializer[AuditLog]):
    """An action that changed how messages flow."""

    id = serializers.CharField(read_only=True)

    class Meta:
        model = AuditLog
        fields = ["id", "at", "actor", "action", "target", "detail", "line"]
        read_only_fields = fields
        extra_kwargs: ClassVar[dict[str, Any]] = {
            "line": {"help_text": "The number of its line of the exported chain; null without one"}
        }


class AuditListView(ListView):
    """List changes.

    What people and keys have changed, in the order in which they did it, from the oldest on. To
    follow the changes, ask with `since_id`, the id of the last one that you have seen. A change is
    listed after 15 seconds, when its place is settled. Secrets are never in it.
    """

    tag = "audit log"
    required_scope = "manage:audit"
    answers_limited_keys = False
    serializer_class = AuditSerializer
    pagination_class = SincePagination
    keyset_ordering = ("id",)

    def get_queryset(self) -> QuerySet[AuditLog]:
        since_id = self.query_values.get("since_id")
        # Each entry has its machine's time from before it got its id. The list ends before the
        # first entry that is not settled: a caller would go on behind it. A time far ahead, by a
        # wrong clock, does not hold up the list.
        now = timezone.now()
        unsettled_entries = AuditLog.objects.filter(
            at__gte=now - SETTLED, at__lt=now + _MAX_CLOCK_DIFFERENCE
        )
        rows = AuditLog.objects.all()
        if first_unsettled := unsettled_entries.aggregate(id=Min("id"))["id"]:
            rows = rows.filter(id__lt=first_unsettled)
        return rows.filter(id__gt=number(since_id, "since_id")) if since_id else rows
