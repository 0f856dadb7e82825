"""Consumers and subscriptions over the management API: a new signing secret, deliver now, lists."""

from typing import Annotated, Any

import msgspec
from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.http import Http404
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from msgplatform.core.errors import Conflict, InvalidInput, NotNow
from msgplatform.doors.api.bodies import field, text
from msgplatform.doors.api.json import decode
from msgplatform.doors.api.management.resources import ResourceListView, audit, own_rows
from msgplatform.doors.api.schema import operation
from notify import operations
from notify.models import BizReceive, Receive
from notify.setup.consumers import Consumer


class StartedSerializer(serializers.Serializer[operations.DeliverNowOutcome]):
    """The deliveries that wait for the consumer and are tried at once."""

    probe = serializers.BooleanField(
        source="is_probe",
        help_text="true: the circuit breaker is open. One delivery is tried now, and all others "
        "follow at once if it succeeds",
    )
    made_due = serializers.IntegerField(
        help_text="Deliveries that were waiting for the time of their next attempt, and are due now"
    )
    more = serializers.BooleanField(
        source="has_more",
        help_text=f"true: more than {operations.MAX_MADE_DUE} of them wait; repeat the request",
    )


def subscription_of(
    request: Request, rows: QuerySet[BizReceive], system: str, consumer: str
) -> BizReceive:
    """The subscription of `rows` with these names. Raises Http404, also for a subscription that the
    caller may not see."""
    named_rows = rows.filter(biz__name=system, receive__name=consumer)
    row: BizReceive | None = own_rows(request, named_rows).first()
    if row is None:
        raise Http404("There is no such subscription.")
    return row


class DeliverNowView(APIView):
    """The deliveries of a subscription that wait."""

    tag = "subscriptions"
    required_scope = "manage:subscriptions"
    answers_limited_keys = True
    answers_not_now = True

    @operation(None, {200: StartedSerializer})
    def post(self, request: Request, system: str, consumer: str) -> Response:
        """Deliver now.

        For when a consumer works again: its deliveries wait neither for the next probe of the
        circuit breaker nor for the times of their next attempts. 409 for a subscription that is
        paused, disabled or discarded: resume it instead.
        """
        rows = BizReceive.objects.select_related("biz", "receive")
        row = subscription_of(request, rows, system, consumer)
        result = operations.deliver_now(row)
        audit(
            request, "subscription_deliver_now", f"{row} #{row.pk}",
            probe=result.is_probe, made_due=result.made_due,
        )  # fmt: skip
        return Response(StartedSerializer(result).data)


class SubscriptionListView(ResourceListView):
    query = [OpenApiParameter("consumer", str, description="Only those of this consumer")]

    def get_queryset(self) -> QuerySet[BizReceive]:
        rows = super().get_queryset()
        if consumer := self.query_values.get("consumer"):
            rows = rows.filter(receive__name=consumer)
        return rows


_BODY_BYTES = 4096
_MAX_HOURS = operations.MAX_ROTATION_HOURS


class RotationBody(msgspec.Struct, forbid_unknown_fields=True):
    """The secret that is replaced, and the time for which it signs too."""

    fingerprint: Annotated[
        str, text("`secret_fingerprint` of the consumer as you have read it", 64)
    ]
    hours: Annotated[
        float | None,
        field(
            "For so many hours the old secret signs too; 0 ends it at once, as after a leak. Left "
            "out: the platform's default",
            minimum=0,
            maximum=_MAX_HOURS,
        ),
    ] = None


class RotatedSerializer(serializers.Serializer[Receive]):
    """The new secret, this once."""

    secret = serializers.CharField(help_text="Shown this once: give it to the consumer")
    secret_fingerprint = serializers.SerializerMethodField()
    previous_secret_until = serializers.DateTimeField(
        allow_null=True, help_text="Until then the old secret signs too; null: it does not"
    )

    def get_secret_fingerprint(self, row: Receive) -> str:
        return operations.secret_mark(row)


class RotateView(APIView):
    """The signing secret of a consumer."""

    tag = Consumer.nouns
    required_scope = Consumer.scope
    answers_limited_keys = False
    answers_not_now = True
    max_body_bytes = _BODY_BYTES

    @operation(
        RotationBody,
        {200: RotatedSerializer},
        ("keep the old one for a day", {"fingerprint": "0f1e2d3c4b5a6978", "hours": 24}),
    )
    def post(self, request: Request, name: str) -> Response:
        """Rotate the signing secret.

        The answer has the new secret, this once. Requests are signed with both secrets for `hours`,
        so that the consumer can change over without a gap. 409 when the secret is not the one with
        this fingerprint: a request that is sent twice must not end the secret that the consumer
        still uses.
        """
        body = decode(request, RotationBody, _BODY_BYTES)
        hours: Any = settings.NOTIFY_ROTATION_HOURS if body.hours is None else body.hours
        if not 0 <= hours <= _MAX_HOURS:
            raise InvalidInput(f"Use 0 to {_MAX_HOURS} hours.", "hours")
        row = Receive.objects.filter(name=name).first()
        if row is None:
            raise Http404("There is no such consumer.")
        try:
            # One transaction, so that every rotation has its line in the audit log.
            with transaction.atomic():
                row = operations.rotate_secret(row.pk, body.fingerprint, hours)
                audit(request, "consumer_secret_rotated", row.name, old_signs_hours=hours)
        except Conflict:
            raise NotNow("The secret has another fingerprint: read the consumer again.") from None
        except Receive.DoesNotExist:
            raise Http404("There is no such consumer.") from None
        return Response(RotatedSerializer(row).data)
