"""Failures over the management API: what the console's page Failures shows, and its two actions."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from django.http import Http404
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from msgplatform.core import flows, lazy_text
from msgplatform.core.errors import UNAVAILABLE, InvalidInput, NotNow
from msgplatform.core.flows.contract import Flow
from msgplatform.core.flows.health import Failure
from msgplatform.doors.api.access.authentication import caller_of
from msgplatform.doors.api.bodies import field, text
from msgplatform.doors.api.json import decode
from msgplatform.doors.api.management.jobs import JobSerializer
from msgplatform.doors.api.management.resources import actor
from msgplatform.doors.api.query import QueryView, moment
from msgplatform.doors.api.schema import operation
from msgplatform.jobs import control
from msgplatform.models import FailureGroup
from msgplatform.models.failures import MAX_NOTE
from msgplatform.monitor import failure_groups

SCOPE = "manage:failures"
_BODY_BYTES = 4096
_MAX_RATE = 100_000


class ResendJobSerializer(serializers.Serializer[Any]):
    """The bulk job that sends a group again."""

    action = serializers.CharField()
    filter = serializers.DictField(child=serializers.CharField())


class FailureSerializer(serializers.Serializer[Any]):
    """Messages that failed at one place with one answer."""

    id = serializers.CharField()
    flow = serializers.CharField()
    place = serializers.CharField(help_text="Such as the subscription, the gateway or the CRM")
    answer = serializers.CharField(help_text="HTTP 503, timeout, …")
    meaning = serializers.CharField(help_text="Of the answer; empty when it speaks for itself")
    example = serializers.CharField(help_text="What was answered to one of them; empty: unknown")
    message = serializers.CharField(help_text="The id of one of them; empty: unknown")
    count = serializers.IntegerField(help_text="How many were neither sent again nor acknowledged")
    lost = serializers.IntegerField(help_text="How many there have ever been: see acknowledge")
    since = serializers.DateTimeField()
    last_at = serializers.DateTimeField(help_text="When the last one failed")
    resend = ResendJobSerializer(
        allow_null=True, help_text="The bulk job that sends them again; null: there is none"
    )


class UnreadableFlowSerializer(serializers.Serializer[Any]):
    flow = serializers.CharField()
    problem = serializers.CharField()


class FailuresSerializer(serializers.Serializer[Any]):
    """The failures of the flows, the latest first, at most 200 of each flow."""

    results = FailureSerializer(many=True)
    unread = UnreadableFlowSerializer(
        many=True, help_text="Flows whose failures cannot be read now, and why: they may have some"
    )


def _failures(request: Request, flow: Flow) -> Sequence[Failure]:
    """The flow's failures that the caller may see: for a key that is limited to business systems
    only failures of their messages."""
    return failure_groups.failures_of(flow, caller_of(request).systems or None)


class FailureListView(QueryView):
    tag = "failures"
    required_scope = SCOPE
    answers_limited_keys = True
    query = [
        OpenApiParameter(
            "flow", str, enum=[flow.name for flow in flows.all()], description="Only of this flow"
        )
    ]

    @operation(None, {200: FailuresSerializer})
    def get(self, request: Request) -> Response:
        """List failures.

        What was given up and neither sent again nor acknowledged, by place and answer, the latest
        first: at most the 200 largest groups of each flow.
        """
        results: list[dict[str, Any]] = []
        unreadable_flows = []
        for flow in flows.all():
            if self.query_values.get("flow", flow.name) != flow.name:
                continue
            try:
                for failure in _failures(request, flow):
                    resend = {"action": failure.action, "filter": failure.filter}
                    results.append({
                        **msgspec.structs.asdict(failure),
                        "flow": flow.name,
                        "place": lazy_text.translate_text(failure.where),
                        "example": failure.said,
                        "resend": resend if failure.action in flow.actions else None,
                    })  # fmt: skip
            except UNAVAILABLE as error:
                unreadable_flows.append({"flow": flow.name, "problem": str(error)[:200]})
        results.sort(key=lambda result: result["last_at"], reverse=True)
        return Response(FailuresSerializer({"results": results, "unread": unreadable_flows}).data)


class _GroupView(APIView):
    tag = "failures"
    required_scope = SCOPE
    answers_limited_keys = True
    answers_not_now = True
    max_body_bytes = _BODY_BYTES

    def flow(self, pk: int) -> Flow:
        """The flow of a group. Raises Http404, also for failures that the caller may not see."""
        row = FailureGroup.objects.filter(pk=pk).first()
        flow = row and flows.get(row.flow)
        is_limited = bool(caller_of(self.request).systems)
        if not flow or (is_limited and self.failure(flow, pk) is None):
            raise Http404("There are no failures with this id.")
        return flow

    def failure(self, flow: Flow, pk: int) -> Failure | None:
        """The group with what remains of it, if the caller may see it."""
        return next((row for row in _failures(self.request, flow) if row.id == pk), None)


class FailureAcknowledgementBody(msgspec.Struct, forbid_unknown_fields=True):
    """The failures that the caller has seen, and the reason why they may stay."""

    note: Annotated[str, text("Why nothing has to be done", MAX_NOTE)]
    lost: Annotated[int, field("`lost` of the list", minimum=0, maximum=2**63 - 1)]
    last_at: Annotated[str, field("`last_at` of the list", format="date-time")]


class AcknowledgedSerializer(serializers.Serializer[Any]):
    acknowledged = serializers.IntegerField(help_text="How many messages")


class FailureAcknowledgeView(_GroupView):
    @operation(
        FailureAcknowledgementBody,
        {200: AcknowledgedSerializer},
        ("known", {"note": "a test of ours", "lost": 36, "last_at": "2026-11-20T08:00:00.123456Z"}),
    )
    def post(self, request: Request, pk: int) -> Response:
        """Acknowledge failures.

        They leave the list, and are not sent with later failures of the group (of Feed they are:
        when an event was set aside is not kept). `lost` and `last_at` say what you have seen:
        failures that came later stay. 409 when nothing of it is left.
        """
        flow = self.flow(pk)
        body = decode(request, FailureAcknowledgementBody, _BODY_BYTES)
        note = body.note.strip()
        if not note or len(note) > MAX_NOTE:
            raise InvalidInput(f"Say why, in at most {MAX_NOTE} characters.", "note")
        if not 0 <= body.lost < 2**63:
            raise InvalidInput("Use `lost` of the list.", "lost")
        until = moment(body.last_at, "last_at")
        snapshot = failure_groups.GroupSnapshot(pk, body.lost, until)
        count = failure_groups.acknowledge_group(flow, snapshot, note, actor(request))
        if not count:
            raise NotNow("Nothing is left to acknowledge: read the list again.")
        return Response({"acknowledged": count})


class FailureResendBody(msgspec.Struct, forbid_unknown_fields=True):
    """The pace of the job."""

    rate: Annotated[
        int | None,
        field("Messages a second; left out: as fast as it goes", minimum=1, maximum=_MAX_RATE),
    ] = None


class FailureResendView(_GroupView):
    @operation(
        FailureResendBody, {201: (JobSerializer, "The job was started.")}, ("paced", {"rate": 50})
    )
    def post(self, request: Request, pk: int) -> Response:
        """Send failures again.

        Starts the bulk job that the list names with the group. Its state is at `/api/v1/jobs/` and
        its id, for keys with the scope `manage:jobs`. 409 when nothing of the group is left, or
        its messages cannot be sent again.
        """
        flow = self.flow(pk)
        rate = decode(request, FailureResendBody, _BODY_BYTES).rate
        if rate is not None and not 1 <= rate <= _MAX_RATE:
            raise InvalidInput(f"Use 1 to {_MAX_RATE}.", "rate")
        failure = self.failure(flow, pk)
        if failure is None:
            raise NotNow("Nothing is left of these failures: read the list again.")
        if failure.action not in flow.actions:
            raise NotNow("These messages cannot be sent again.")
        owner_id = flow.actions[failure.action].owner_of(failure.filter)
        job = control.JobRequest(
            flow.name, failure.action, failure.filter, rate or 0, system_id=owner_id
        )
        preview = control.count(job.flow, job.action, job.filter)
        new_job = control.start(job, preview, actor(request))
        return Response(JobSerializer(new_job).data, status.HTTP_201_CREATED)
