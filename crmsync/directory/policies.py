"""Policies in the memory of a process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.utils.translation import gettext_noop as _

from crmsync import models
from crmsync.policies import mapping
from crmsync.policies.mapping import FieldMapping
from msgplatform.core import alerts
from msgplatform.core.daemons.snapshot import Rows, Snapshot
from msgplatform.core.lazy_text import lazy_message

UNUSABLE = "crm.policy"


@dataclass(frozen=True, slots=True)
class Policy:
    """How one source is carried to one CRM. `source` is a row as it was read, not to be saved."""

    id: int
    name: str
    source: models.Source
    crm_id: int
    mapping: FieldMapping
    key_prefix: str
    biz_id: int | None
    appkeys: frozenset[str]
    interval: float
    cron: str
    hours: str
    batch_size: int
    sweep_cron: str
    enabled: bool
    requested: str
    requested_by: str
    swept_at: datetime  # when it was created, as long as nothing was compared


class Policies(Snapshot[Mapping[int, Policy]]):
    """Every policy by id; one that cannot be used is left out, with an alert."""

    def __init__(self) -> None:
        super().__init__({})
        self._rows = Rows(from_row, UNUSABLE, _unusable)

    def load(self) -> Mapping[int, Policy]:
        rows = models.Policy.objects.select_related("source", "crm").order_by("id")
        return self._rows.usable(rows)

    def get(self, policy_id: int) -> Policy | None:
        return self.known.get(policy_id)


def from_row(row: models.Policy) -> Policy:
    """Raises InvalidInput for a mapping that cannot be used."""
    rules = mapping.parse(row.mapping)
    rules.check_columns(row.source.value_columns)
    return Policy(
        id=row.pk,
        name=str(row),
        source=row.source,
        crm_id=row.crm_id,
        mapping=rules,
        key_prefix=row.key_prefix,
        biz_id=row.biz_id,
        appkeys=frozenset(row.appkeys),
        interval=float(row.interval_seconds),
        cron=row.cron,
        hours=row.hours,
        batch_size=row.batch_size,
        sweep_cron=row.sweep_cron,
        enabled=row.enabled,
        requested=row.requested,
        requested_by=row.requested_by,
        swept_at=row.swept_at or row.created_at,
    )


def _unusable(row: models.Policy, error: Exception) -> alerts.Condition:
    return alerts.Condition(
        f"{UNUSABLE}:{row.pk}",
        lazy_message(_("The policy %(name)s cannot be used"), name=str(row)),
        lazy_message(
            _("%(error)s Correct it in the console; nothing is read for it."), error=str(error)
        ),
    )
