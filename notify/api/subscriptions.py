"""Subscriptions over the management API: deliver now, and their list."""

from __future__ import annotations

from django.db.models import QuerySet
from django.http import Http404
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from msgplatform.doors.api.management.resources import ResourceListView, audit, own_rows
from msgplatform.doors.api.schema import operation
from notify import operations
from notify.models import BizReceive


class StartedSerializer(serializers.Serializer[operations.DeliverNowOutcome]):
    """What waits for the consumer and is tried at once."""

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
