"""The deliveries that are held for paused and disabled subscriptions: list, release, skip."""

from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from msgplatform.core.data.counting import capped
from msgplatform.core.errors import NotNow
from msgplatform.doors.api.management.resources import OF_SYSTEM, ResourceListView, audit
from msgplatform.doors.api.schema import operation
from notify import operations
from notify.api.subscriptions import subscription_of
from notify.models import BizReceive, ReceiveMsg, first_due
from notify.setup.subscriptions import Subscription

SCOPE = "manage:held"
MAX_COUNTED = 10_000
_Status = BizReceive.Status
_HELD = ReceiveMsg.Status.HELD


class HeldSerializer(serializers.ModelSerializer[BizReceive]):
    """A subscription for which deliveries are held."""

    subscription = serializers.SerializerMethodField(help_text="system/consumer")
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

    def get_subscription(self, row: BizReceive) -> str:
        return f"{row.biz.name}/{row.receive.name}"

    def get_status(self, row: BizReceive) -> str:
        return _Status(row.status).name.lower()


class HeldListView(ResourceListView):
    """List what is held.

    The subscriptions for which deliveries are held, in the order in which they were made, with the
    number of deliveries and the reason.
    """

    tag = "held deliveries"
    required_scope = SCOPE
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
    return capped("receive_msg", condition, [[pk] for pk in ids], MAX_COUNTED) if ids else []


class ResumedSerializer(serializers.Serializer[Any]):
    """The subscription afterwards."""

    status = serializers.CharField(help_text="normal, or skipping until all are skipped")
    held = serializers.IntegerField(help_text=f"Deliveries that it is about, to {MAX_COUNTED}")


class _ResumeView(APIView):
    tag = "held deliveries"
    required_scope = SCOPE
    answers_limited_keys = True
    answers_not_now = True
    change = operations.RELEASE

    @operation(None, {200: ResumedSerializer})
    def post(self, request: Request, system: str, consumer: str) -> Response:
        with transaction.atomic():
            rows = BizReceive.objects.select_for_update()
            row = subscription_of(request, rows, system, consumer)
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
