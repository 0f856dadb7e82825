"""The list of subscriptions: those that need attention first, with the health of each row."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.views.main import ORDER_VAR
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from msgplatform.admin import HealthList, PickFilter
from notify.admin import health
from notify.models import BizReceive


class AttentionFilter(PickFilter):
    title = _("needs attention")
    parameter_name = "attention"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("yes", _("failing, disabled, breaker open or with failures"))]

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[BizReceive]
    ) -> QuerySet[BizReceive]:
        if self.value() != "yes":
            return queryset
        return queryset.filter(health.troubled(health.open_breakers()))


class SubscriptionList(HealthList):
    """Trouble first."""

    read_health = staticmethod(health.read)

    def get_queryset(self, request: HttpRequest, *args: Any, **kwargs: Any) -> QuerySet[BizReceive]:
        self.root_queryset = health.troubled_first(self.root_queryset, health.open_breakers())
        return super().get_queryset(request, *args, **kwargs)

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[BizReceive]) -> list[Any]:
        ordering: list[Any] = list(super().get_ordering(request, queryset))
        return ordering if request.GET.get(ORDER_VAR) else ["calm", *ordering]
