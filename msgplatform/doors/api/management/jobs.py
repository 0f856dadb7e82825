"""Bulk jobs: sending many messages again and the like, with a status to follow."""

import hashlib
from typing import Any

from django.db import IntegrityError
from django.http import Http404
from msgspec.structs import replace
from rest_framework import serializers, status
from rest_framework.generics import GenericAPIView, RetrieveAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from msgplatform.core import flows
from msgplatform.core.intake.idempotency import MAX_KEY_LENGTH, check_key
from msgplatform.doors.api.access.authentication import caller_of
from msgplatform.doors.api.bodies import KEY_HELP, KEY_PATTERN
from msgplatform.doors.api.intake import idempotency_key
from msgplatform.doors.api.management.resources import actor
from msgplatform.doors.api.query import ListView, QueryView
from msgplatform.doors.api.schema import operation
from msgplatform.jobs import control
from msgplatform.jobs.models import BulkJob
from msgplatform.messages import filters
from msgplatform.setup.fields import FlagField, TextField, WholeNumberField, check_known

SCOPE = "manage:jobs"
_FILTER = 'Which messages, by the filters of the action: {"biz": "orders"}'


class JobSerializer(serializers.ModelSerializer[BulkJob]):
    id = serializers.CharField(read_only=True)
    total = serializers.IntegerField(
        read_only=True, help_text="How many messages the filter matched when the job was started"
    )
    more = serializers.BooleanField(
        read_only=True, help_text="Whether the count stopped there, and more may have matched"
    )
    done = serializers.IntegerField(read_only=True, help_text="How many it has changed so far")
    error = serializers.CharField(
        read_only=True,
        help_text="Why it failed, why the platform has paused it, or why messages were left alone",
    )

    class Meta:
        model = BulkJob
        fields = ["id", "flow", "action", "filter", "rate", "state", "total", "more", "done",
                  "error", "created_by", "created_at", "finished_at"]  # fmt: skip
        read_only_fields = fields


class IdempotencyKeyField(TextField, serializers.RegexField):
    """A text of the characters of keys."""


class NewJobSerializer(serializers.Serializer[dict[str, Any]]):
    """A job to start, or to preview."""

    flow = TextField(max_length=32, help_text="notify, sms, feed or crmsync")
    action = TextField(max_length=32, help_text="Such as resend or replay")
    filter = serializers.DictField(child=TextField(max_length=12_000), help_text=_FILTER)
    rate = WholeNumberField(
        min_value=1,
        max_value=100_000,
        required=False,
        allow_null=True,
        help_text="Messages a second; left out: as fast as it goes",
    )
    preview = FlagField(
        required=False, allow_null=True, help_text="true: only count, start nothing"
    )
    idempotency_key = IdempotencyKeyField(
        KEY_PATTERN, max_length=MAX_KEY_LENGTH, help_text=KEY_HELP, required=False, allow_null=True
    )

    def to_internal_value(self, data: Any) -> Any:
        check_known(self, data)  # a misspelt `preview` must not start a job
        return super().to_internal_value(data)


class PreviewSerializer(serializers.Serializer[dict[str, Any]]):
    total = serializers.IntegerField(help_text="How many messages the job would change")
    more = serializers.BooleanField(
        help_text="Whether the count stopped there, and more may follow"
    )


class _Jobs(GenericAPIView[BulkJob]):
    tag = "bulk jobs"
    required_scope = SCOPE
    answers_limited_keys = False
    serializer_class = JobSerializer
    queryset = BulkJob.objects.all()


class JobListView(_Jobs, ListView):
    """List bulk jobs.

    Every bulk job, newest first, those of the console too.
    """

    accepts_idempotency_key = True

    @operation(
        NewJobSerializer,
        {
            201: (JobSerializer, "The job was started, by this request or by one that it repeats."),
            200: (PreviewSerializer, "The preview that was asked for."),
        },
        (
            "send exhausted deliveries again",
            {
                "flow": "notify",
                "action": "resend",
                "filter": {"subscription": "orders/warehouse", "status": "exhausted"},
                "rate": 50,
            },
        ),
    )
    def post(self, request: Request) -> Response:
        """Start a bulk job.

        Counts the messages that the filter matches and starts the job; its status is at the address
        of its id. With `preview` it only counts. An action that a flow does not have is answered
        with those that it has, and so is a filter.
        """
        serializer = NewJobSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        body = serializer.validated_data
        request_key = None  # equal for repetitions of a request
        key = idempotency_key(request, body.get("idempotency_key"))
        if key is not None and not body.get("preview"):
            check_key(key)
            identity = f"{caller_of(request).key_id}\n{key}"
            request_key = hashlib.sha256(identity.encode()).hexdigest()[:32]
        flow = flows.get(body["flow"])
        action = flow.actions.get(body["action"]) if flow else None
        fields = action.fields if action else {}
        # With their zone, times mean the same to a person who looks at the job in another zone.
        entries = {
            name: filters.moment(text, name).isoformat()
            if name in fields and fields[name].kind == "time" else text
            for name, text in body["filter"].items()
        }  # fmt: skip
        job = control.JobRequest(
            body["flow"], body["action"], entries, body.get("rate") or 0, request_key,
            sent_filter=body["filter"],
        )  # fmt: skip
        if started_job := control.find_started(job):
            return Response(JobSerializer(started_job).data, status.HTTP_201_CREATED)
        preview = control.count(job.flow, job.action, job.filter)
        if body.get("preview"):
            return Response({"total": preview.count, "more": preview.more})
        try:
            job = replace(job, system_id=action.owner_of(job.filter))  # type: ignore[union-attr]
            started_job = control.start(job, preview, actor(request))
        except IntegrityError:
            if not (started_job := control.find_started(job)):  # two equal requests at once
                raise
        return Response(JobSerializer(started_job).data, status.HTTP_201_CREATED)


class JobView(_Jobs, QueryView, RetrieveAPIView[BulkJob]):
    """Show a bulk job.

    Its state, and how many of its messages are done. It has ended when the state is done, failed or
    cancelled.
    """


class _ChangeView(_Jobs):
    """A change of a job; its POST has no body."""

    answers_not_now = True
    to = ""

    @operation(None, {200: JobSerializer})
    def post(self, request: Request, pk: int) -> Response:
        try:
            job, _is_changed = control.change(pk, self.to, actor(request))
        except BulkJob.DoesNotExist:
            raise Http404 from None
        return Response(JobSerializer(job).data)


class JobPauseView(_ChangeView):
    """Pause a bulk job.

    It stops after the page of messages that it works on. Again it changes nothing; 409 when the job
    has ended.
    """

    to = BulkJob.State.PAUSED


class JobResumeView(_ChangeView):
    """Resume a bulk job.

    A paused job goes on where it stopped. Again it changes nothing; 409 when the job has ended.
    """

    to = BulkJob.State.PENDING


class JobCancelView(_ChangeView):
    """Cancel a bulk job.

    It ends for good; what it has done stays done. Again it changes nothing; 409 when the job has
    ended.
    """

    to = BulkJob.State.CANCELLED
