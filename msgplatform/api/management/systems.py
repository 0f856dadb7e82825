"""Business systems."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from rest_framework.request import Request

from msgplatform.api.access import keys
from msgplatform.api.management.resources import (
    ResourceListView,
    ResourceView,
    WholeSerializer,
    audit,
    documented,
    listed,
)
from msgplatform.models import Biz


class SystemSerializer(WholeSerializer):
    """What publishes events, sends texts, posts to feeds or submits leads."""

    class Meta:
        model = Biz
        fields = ["name", "title", "enabled", "validates_events", "created_at"]
        read_only_fields = ["name", "created_at"]


@documented(
    "business system",
    "business systems",
    SystemSerializer,
    {"title": "Order service", "validates_events": True},
    on_delete="Disables it, for messages refer to it: its API keys are refused, and what it sent "
    "stays. A PUT enables it again.",
)
class SystemView(ResourceView):
    required_scope = "manage:systems"
    serializer_class = SystemSerializer
    word = "system"

    def rows(self) -> QuerySet[Biz]:
        return Biz.objects.filter(name=self.kwargs["name"])

    def new(self) -> Biz:
        return Biz(name=self.kwargs["name"])

    def saved(self, row: Biz, is_new: bool) -> dict[str, Any]:
        if not is_new:  # it may have been disabled: its keys are cached in this process
            transaction.on_commit(keys.forget)
        return {}

    def remove(self, request: Request, row: Biz) -> None:
        if row.enabled:
            row.enabled = False
            row.save(update_fields=["enabled"])
            audit(request, "system_disabled", row.name)
            transaction.on_commit(keys.forget)


@listed(
    "business systems",
    "List business systems",
    "Every business system, by name, those that are disabled too.",
)
class SystemListView(ResourceListView):
    resource = SystemView
    queryset = Biz.objects.all()
