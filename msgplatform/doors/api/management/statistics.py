"""The counters of every flow, over time."""

from collections import Counter, defaultdict
from datetime import datetime, timedelta
from typing import Any, cast

from django.db.models import Q
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from msgplatform.core import flows
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.activity import SYSTEM
from msgplatform.doors.api.access.authentication import caller_of
from msgplatform.doors.api.query import NAME, QueryView, moment
from msgplatform.doors.api.schema import operation
from msgplatform.messages.filters import business_system
from msgplatform.monitor.statistics.points import CounterQuery, Step, step_starts

_PERIOD = ("flow", "step", "since", "until")
_STEPS = ("minute", "hour", "day")
_DEFAULT_SPAN = timedelta(days=1)
# Buckets of histograms, such as latency_le_250ms: the console makes percentiles of them.
_BUCKET = "_le_"


class PointSerializer(serializers.Serializer[dict[str, Any]]):
    at = serializers.DateTimeField(help_text="The beginning of the step")
    counts = serializers.DictField(child=serializers.IntegerField(), help_text="Counter → count")


class StatisticsSerializer(serializers.Serializer[dict[str, Any]]):
    flow = serializers.CharField()
    step = serializers.ChoiceField(choices=_STEPS)
    total = serializers.DictField(child=serializers.IntegerField(), help_text="The whole time")
    points = PointSerializer(many=True, help_text="Steps in which something was counted")


def _flow_names() -> list[str]:
    """Names of the flows that have counters."""
    return [flow.name for flow in flows.all() if flow.health.activity]


def _group_parameters() -> list[OpenApiParameter]:
    """A parameter for each further dimension of a flow, such as subscription."""
    flows_by_dimension: dict[str, list[str]] = defaultdict(list)
    for flow in flows.all():
        for dimension in flow.health.activity.dimensions if flow.health.activity else ():
            if dimension.name != SYSTEM:
                flows_by_dimension[dimension.name].append(flow.name)
    return [
        OpenApiParameter(
            name, str,
            description=f"Only of this {name.replace('_', ' ')} (flow {', '.join(names)}), by its "
            "id in the console's addresses",
        )
        for name, names in flows_by_dimension.items()
    ]  # fmt: skip


class StatisticsView(QueryView):
    tag = "statistics"
    required_scope = "manage:statistics"
    answers_limited_keys = True
    query = [
        OpenApiParameter(
            "flow", str, required=True, enum=_flow_names(), description="Such as notify or sms"
        ),
        OpenApiParameter("step", str, enum=_STEPS, description="hour when left out"),
        OpenApiParameter("since", OpenApiTypes.DATETIME, description="A day ago when left out"),
        OpenApiParameter("until", OpenApiTypes.DATETIME, description="Now when left out"),
        OpenApiParameter("system", NAME, description="Only of this business system, by its name"),
        *_group_parameters(),
    ]

    @operation(None, {200: StatisticsSerializer})
    def get(self, request: Request) -> Response:
        """Count what happened.

        The counters of a flow in steps of time: of Notify, for example, accepted, delivered, failed
        (attempts), exhausted and poison (deliveries that were given up). Minutes and hours are kept
        for two weeks unless configured otherwise, days for three years.
        """
        flow = flows.get(self.query_values.get("flow", ""))
        if flow is None or flow.health.activity is None:
            raise InvalidInput(f"Name one of these flows: {', '.join(_flow_names())}.", "flow")
        activity, step = flow.health.activity, cast(Step, self.query_values.get("step", "hour"))
        until = self._time("until", timezone.now())
        try:
            since = self._time("since", until - _DEFAULT_SPAN)
            step_starts(step, since, until)  # raises OverflowError for a step before the year 1
        except OverflowError:
            raise InvalidInput("Use a time of our days.", "until") from None
        # Dimension → key of the group in the request.
        dimensions = [dimension.name for dimension in activity.dimensions]
        groups = {name: key for name, key in self.query_values.items() if name not in _PERIOD}
        systems = caller_of(self.request).systems
        if systems and SYSTEM not in groups:
            if len(systems) > 1:
                names = ", ".join(sorted(systems))
                raise InvalidInput(f"The key is limited: name one of {names}.", SYSTEM)
            (groups[SYSTEM],) = systems
        for name in groups:
            if name not in dimensions:
                raise InvalidInput(f"This flow is counted by {', '.join(dimensions)}.", name)
        if SYSTEM in groups:
            groups[SYSTEM] = str(business_system(groups[SYSTEM], SYSTEM, systems))
        counter_query = CounterQuery(activity, step, since, until, groups)
        counts = counter_query.counts(~Q(name__contains=_BUCKET))
        total: Counter[str] = Counter()
        for step_counts in counts.values():
            total.update(step_counts)  # `+` would leave out negative counts, which are corrections
        points = [{"at": at, "counts": dict(counts[at])} for at in sorted(counts)]
        return Response({"flow": flow.name, "step": step, "total": dict(total), "points": points})

    def _time(self, name: str, default: datetime) -> datetime:
        return moment(self.query_values[name], name) if name in self.query_values else default
