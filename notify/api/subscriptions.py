"""Consumers and subscriptions over the management API: a new signing secret, deliver now, lists,
and the deliveries that are held for paused and disabled subscriptions."""

from functools import partial
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

from msgplatform.core.data.counting import count_up_to
from msgplatform.core.errors import Conflict, InvalidInput, NotNow
from msgplatform.doors.api.bodies import field, text
from msgplatform.doors.api.json import decode
from msgplatform.doors.api.management.resources import OF_SYSTEM, ResourceListView, audit, own_rows
from msgplatform.doors.api.schema import operation
from notify import operations
from notify.models import BizReceive, Receive, ReceiveMsg, first_due
from notify.setup.consumers import Consumer
from notify.setup.subscriptions import Subscription

_BODY_BYTES = 4096
_MAX_HOURS = operations.MAX_ROTATION_HOURS
_HELD_SCOPE = "manage:held"
MAX_COUNTED = 10_000
_Status = BizReceive.Status
_HELD = ReceiveMsg.Status.HELD


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
    request: Request, system: str, consumer: str, rows: QuerySet[BizReceive] | None = None
) -> BizReceive:
    """The subscription with these names, read by `rows` if given. Raises Http404, also for a
    subscription that the caller may not see."""
    if rows is None:
        rows = BizReceive.objects.select_related("biz", "receive")
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
        row = subscription_of(request, system, consumer)
        outcome = operations.deliver_now(row, partial(audit, request))
        return Response(StartedSerializer(outcome).data)


class SubscriptionListView(ResourceListView):
    query = [OpenApiParameter("consumer", str, description="Only those of this consumer")]

    def get_queryset(self) -> QuerySet[BizReceive]:
        rows = super().get_queryset()
        if consumer := self.query_values.get("consumer"):
            rows = rows.filter(receive__name=consumer)
        return rows


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
            record = partial(audit, request)
            row = operations.rotate_secret(row.pk, body.fingerprint, hours, record)
        except Conflict:
            raise NotNow("The secret has another fingerprint: read the consumer again.") from None
        except Receive.DoesNotExist:
            raise Http404("There is no such consumer.") from None
        return Response(RotatedSerializer(row).data)


# -- what is held ---------------------------------------------------------------------------------
class HeldSerializer(serializers.ModelSerializer[BizReceive]):
    """A subscription for which deliveries are held."""

    subscription = serializers.CharField(
        source="full_name", read_only=True, help_text="system/consumer"
    )
    status = serializers.SerializerMethodField(
        help_text="paused, disabled, or skipping and normal while they are being taken up"
    )
    held = serializers.IntegerField(
        source="held_count", help_text=f"Deliveries, counted to {MAX_COUNTED}"
    )
    oldest = serializers.DateTimeField(help_text="When the first of them was made, or is due")

    class Meta:
        model = BizReceive
        fields = ["subscription", "status", "disabled_reason", "held", "oldest"]
        read_only_fields = fields

    def get_status(self, row: BizReceive) -> str:
        return _Status(row.status).name.lower()


class HeldListView(ResourceListView):
    """List what is held.

    The subscriptions for which deliveries are held, in the order in which they were made, with the
    number of deliveries and the reason.
    """

    tag = "held deliveries"
    required_scope = _HELD_SCOPE
    answers_limited_keys = True
    resource_class = Subscription
    serializer_class = HeldSerializer
    keyset_ordering = ("id",)
    query = [OF_SYSTEM]

    def get_queryset(self) -> QuerySet[BizReceive]:
        rows = super().get_queryset().annotate(oldest=first_due(_HELD))
        held_rows: QuerySet[BizReceive] = rows.filter(oldest__isnull=False)
        return held_rows

    def paginate_queryset(self, queryset: Any) -> Any:
        """The page, with the deliveries of all its rows counted in one statement."""
        rows: Any = super().paginate_queryset(queryset)
        for row, count in zip(rows, _counts([row.pk for row in rows]), strict=True):
            row.held_count = count
        return rows


def _counts(ids: list[int]) -> list[int]:
    condition = f"status = {int(_HELD)} AND biz_receive_id = %s"
    return count_up_to("receive_msg", condition, [[pk] for pk in ids], MAX_COUNTED) if ids else []


class ResumedSerializer(serializers.Serializer[Any]):
    """The subscription afterwards."""

    status = serializers.CharField(help_text="normal, or skipping until all are skipped")
    held = serializers.IntegerField(help_text=f"Deliveries that it is about, to {MAX_COUNTED}")


class _ResumeView(APIView):
    tag = "held deliveries"
    required_scope = _HELD_SCOPE
    answers_limited_keys = True
    answers_not_now = True
    change = operations.RELEASE

    @operation(None, {200: ResumedSerializer})
    def post(self, request: Request, system: str, consumer: str) -> Response:
        with transaction.atomic():
            row = subscription_of(request, system, consumer, BizReceive.objects.select_for_update())
            self.check(row)
            (held,) = _counts([row.pk])
            operations.change_state([row.pk], self.change, partial(audit, request))
        return Response({"status": _Status(self.change.to).name.lower(), "held": held})

    def check(self, row: BizReceive) -> None:
        """Raises NotNow when the subscription holds nothing that could be taken up."""
        if row.status == _Status.DISCARDED:
            raise NotNow("The subscription is discarded; a PUT with the status normal takes it up.")


class HeldReleaseView(_ResumeView):
    """Release what is held.

    Resumes the subscription: what was held is sent, and new deliveries too. Again it changes
    nothing; 409 for a discarded one.
    """


class HeldSkipView(_ResumeView):
    """Skip what is held.

    Resumes the subscription without what is held now: those deliveries are never sent, new ones
    are. Again it changes nothing; 409 for a discarded one, and for one that holds nothing because
    it is neither paused nor disabled.
    """

    change = operations.SKIP

    def check(self, row: BizReceive) -> None:
        super().check(row)
        if row.status == _Status.NORMAL:
            raise NotNow("The subscription is neither paused nor disabled: nothing is held.")
