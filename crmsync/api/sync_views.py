"""The REST endpoints of CRM sync: what each CRM holds of a lead, policies, and their runs.

A business system sees and starts its own policies, and those that carry the leads of all systems.
"""

from typing import Any

from django.db.models import Q, QuerySet
from django.http import Http404
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from crmsync.api import serializers
from crmsync.api.requests import NewRunBody
from crmsync.messages import policies
from crmsync.messages.states import read_states
from crmsync.models import Lead, Policy, Run
from crmsync.monitor import backlog
from crmsync.policies import run_requests
from msgplatform.core.data import sql
from msgplatform.doors.api.access.authentication import caller_of
from msgplatform.doors.api.converters import ID
from msgplatform.doors.api.json import decode
from msgplatform.doors.api.query import ListView
from msgplatform.doors.api.schema import operation
from msgplatform.messages import filters

# The body names a kind of run and nothing else.
_BODY_BYTES = 4096


class LeadCrmsView(APIView):
    """The state of a lead at each CRM."""

    tag = "leads"
    required_scope = "leads:read"

    @operation(None, {200: serializers.LeadCrmsSerializer})
    def get(self, request: Request, pk: int) -> Response:
        """Show a lead at the CRMs.

        What each CRM holds of a lead, what waits to be sent, and what went wrong.
        """
        lead = Lead.objects.filter(biz_id=caller_of(request).biz_id, pk=pk).first()
        if lead is None:
            raise Http404("There is no lead with this id.")
        states = read_states([lead], policies.by_id())[lead.pk]
        return Response({"crms": [serializers.crm_state(state) for state in states]})


class PolicyListView(ListView):
    """List policies.

    The policies that carry your leads, each from a source to a CRM.
    """

    tag = "sync"
    required_scope = "sync:run"
    serializer_class = serializers.PolicySerializer

    def get_queryset(self) -> Any:
        return _policies(self.request)


class PolicyRunsView(APIView):
    """Runs of a policy."""

    tag = "sync"
    required_scope = "sync:run"
    answers_not_now = True
    max_body_bytes = _BODY_BYTES

    @operation(
        NewRunBody,
        {202: (serializers.RequestedRunSerializer, "The run will begin; see /sync/runs.")},
        ("look for changes", {"kind": "changes"}),
    )
    def post(self, request: Request, pk: int) -> Response:
        """Ask for a run.

        Ask for a run of a policy; it begins within seconds. One run at a time: the answer is 409
        when one is asked for already, or when it would not begin.
        """
        body = decode(request, NewRunBody, _BODY_BYTES)
        policy = _policies(request).filter(pk=pk).first()
        if policy is None:
            raise Http404("There is no policy with this id.")
        by = str(caller_of(request))
        run_requests.ask(policy, body.kind, by)
        answer = {"policy": str(policy.pk), "kind": body.kind, "requested_by": by}
        return Response(answer, status=202)


class RunListView(ListView):
    """List runs.

    The runs of your policies with their progress, newest first.
    """

    tag = "sync"
    required_scope = "sync:run"
    serializer_class = serializers.RunSerializer
    query = [OpenApiParameter("policy", ID, description="Only runs of the policy with this id")]

    @property
    def keyset_ordering(self) -> tuple[str, ...]:
        # Each order matches an index: by policy, or by id alone.
        return ("-policy_id", "-id") if "policy" in self.query_values else ("-id",)

    def get_queryset(self) -> Any:
        if getattr(self, "swagger_fake_view", False):  # the schema is made without a database
            return Run.objects.none()
        visible_ids = list(_policies(self.request).order_by("id").values_list("id", flat=True))
        if policy_filter := self.query_values.get("policy"):
            policy = filters.number(policy_filter, "policy")
            rows = sql.of_one(Run.objects.all(), "policy_id", policy)
            # Runs of other systems are not found, as if there were none.
            return rows if policy in visible_ids else rows.none()
        return Run.objects.filter(policy_id__in=visible_ids)

    def paginate_queryset(self, queryset: Any) -> Any:
        return _with_progress(super().paginate_queryset(queryset) or [])


class RunView(APIView):
    """One run."""

    tag = "sync"
    required_scope = "sync:run"

    @operation(None, {200: serializers.RunSerializer})
    def get(self, request: Request, pk: int) -> Response:
        """Show a run.

        One run of a policy with its progress.
        """
        run = Run.objects.filter(pk=pk).first()
        if run is None or not _policies(request).filter(pk=run.policy_id).exists():
            raise Http404("There is no run with this id.")
        run_with_progress = _with_progress([run])[0]
        serializer = serializers.RunSerializer(run_with_progress, context={"request": request})
        return Response(serializer.data)


def _policies(request: Any) -> QuerySet[Policy]:
    """The policies that the caller may see and start."""
    return Policy.with_names().filter(Q(biz=None) | Q(biz_id=caller_of(request).biz_id))


def _with_progress(runs: list[Any]) -> list[Any]:
    progress_by_run = backlog.of_runs(runs)
    for run in runs:
        run.progress = progress_by_run[run.pk]
    return runs
