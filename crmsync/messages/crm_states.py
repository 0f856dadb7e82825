"""What each CRM holds of some leads, and what waits to be sent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import OuterRef, Subquery
from django.utils.translation import gettext as _

from crmsync.messages import policies
from crmsync.messages.policies import Policies
from crmsync.models import Item, Lead, Policy, Record, RecoveryEntry

_State = Record.State
UNREAD = "unread"


@dataclass(frozen=True, slots=True)
class CrmState:
    """A lead at one CRM. `record` is None until a poller has read the lead for it.

    `message` is what the CRM said last of a record that is not confirmed, or why it is dead; then
    `field` is the one at fault, where that is known.
    """

    policy: Policy
    record: Record | None
    message: str = ""
    field: str = ""

    @property
    def name(self) -> str:
        """The state's name, UNREAD without a record."""
        return _State(self.record.state).name.lower() if self.record else UNREAD

    @property
    def label(self) -> str:
        if self.record is None:
            return _("not read yet")
        return str(_State(self.record.state).label)

    @property
    def next_try_at(self) -> datetime | None:
        """When it is sent next; None unless it waits."""
        waits = self.record and self.record.state in (_State.WAITING, _State.RETRY)
        return self.record.next_at if self.record and waits else None

    @property
    def shown(self) -> str:
        return f"{self.policy.crm}: {self.label}"


def of_leads(leads: Iterable[Lead], policies_by_id: Policies) -> dict[int, list[CrmState]]:
    """For each lead its states: one for each CRM that it is for, or was sent to."""
    rows = {lead.pk: lead for lead in leads}
    keys = {policies.key_of(pk): pk for pk in rows}
    records: dict[int, dict[int, Record]] = defaultdict(dict)
    # One query for all leads, by the unique index on (policy, key).
    found = Record.objects.filter(
        policy_id__in=policies.of_hive(policies_by_id), key__in=list(keys)
    )
    for row in found.order_by():
        records[keys[row.key]][row.policy_id] = row
    why = said([record for of_lead in records.values() for record in of_lead.values()])
    states: dict[int, list[CrmState]] = {}
    for pk, lead in rows.items():
        # A policy that is switched off shows only what it has sent already.
        wanted = {policy.pk for policy in policies.of_lead(policies_by_id, lead) if policy.enabled}
        states[pk] = [
            CrmState(policy, record, *(why.get(record.pk, ()) if record else ()))
            for policy_id, policy in policies_by_id.items()
            if (record := records[pk].get(policy_id)) or policy_id in wanted
        ]
    return states


def said(records: Sequence[Record]) -> dict[int, tuple[str, str]]:
    """Record → why it is not confirmed, and the field at fault, where that is known; two
    queries."""
    open_ones = [record.pk for record in records if record.state != _State.CONFIRMED]
    if not open_ones:
        return {}
    last = Item.objects.filter(record_id=OuterRef("pk")).order_by("-id").values("message")[:1]
    asked = Record.objects.filter(id__in=open_ones).annotate(message=Subquery(last)).order_by()
    last_words = {pk: (message or "", "") for pk, message in asked.values_list("id", "message")}
    dead = RecoveryEntry.objects.filter(record_id__in=open_ones, state=RecoveryEntry.State.OPEN)
    # The newest open entry counts for more than the last try.
    reasons = dead.order_by("id").values_list("record_id", "reason", "field")
    return last_words | {pk: (reason, field) for pk, reason, field in reasons if pk is not None}
