"""The states of leads at their CRMs: the version that each holds, and the one that waits."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec
from django.db.models import OuterRef, Subquery
from django.utils.translation import gettext as _

from crmsync.messages import policies
from crmsync.messages.policies import Policies
from crmsync.models import Item, Lead, Policy, Record, RecoveryEntry
from crmsync.models.operations import UNKNOWN
from msgplatform.core.flows.page import Tone

_State = Record.State
# The record states whose reason is in the recovery log, and the states of the entries with it.
ENDED = (_State.DEAD, _State.DISMISSED)
UNSOLVED = (RecoveryEntry.State.OPEN, RecoveryEntry.State.DISMISSED)
UNREAD = "unread"
_TONES: dict[int, Tone] = {_State.CONFIRMED: "good", _State.DEAD: "bad", _State.RETRY: "warn",
                           _State.HELD: "warn"}  # fmt: skip


class CrmState(msgspec.Struct, frozen=True):
    """A lead at one CRM. `record` is None until a poller has read the lead for it.

    `message`: the CRM's last answer about a record that is not confirmed, or the reason why the
    record is dead; `field`: the field at fault, if known. `error_class` is as `read_error_classes`
    has it.
    """

    policy: Policy
    record: Record | None
    message: str = ""
    field: str = ""
    error_class: str = ""

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
        """The time of the next try; None unless the record waits."""
        # The `next_at` of a queued record is the end of a lease.
        if self.record is None or self.record.state not in (_State.WAITING, _State.RETRY):
            return None
        return self.record.next_at

    @property
    def tone(self) -> Tone:
        return _TONES.get(self.record.state, "plain") if self.record else "plain"

    @property
    def title(self) -> str:
        return f"{self.policy.crm}: {self.label}"


def read_states(leads: Iterable[Lead], policies_by_id: Policies) -> dict[int, list[CrmState]]:
    """Lead → its states, one for each CRM that it is for, or was sent to."""
    leads = list(leads)
    keys = {policies.key_of(lead.pk): lead.pk for lead in leads}
    records: dict[int, dict[int, Record]] = defaultdict(dict)
    # One query for all leads, by the unique index on (policy, key).
    rows = Record.objects.filter(policy_id__in=policies.of_hive(policies_by_id), key__in=list(keys))
    for row in rows.order_by():
        records[keys[row.key]][row.policy_id] = row
    problems = read_problems([row for by_policy in records.values() for row in by_policy.values()])
    states: dict[int, list[CrmState]] = {}
    for lead in leads:
        # A policy that is switched off shows only leads that it has sent.
        enabled_ids = {
            policy.pk for policy in policies.of_lead(policies_by_id, lead) if policy.enabled
        }
        states[lead.pk] = [
            CrmState(policy, record, *(problems.get(record.pk, ()) if record else ()))
            for policy_id, policy in policies_by_id.items()
            if (record := records[lead.pk].get(policy_id)) or policy_id in enabled_ids
        ]
    return states


def read_problems(records: Sequence[Record]) -> dict[int, tuple[str, str, str]]:
    """Record → the reason why it is not confirmed, the field at fault, where that is known, and the
    error class; two queries, or three."""
    open_records = [record for record in records if record.state != _State.CONFIRMED]
    record_ids = [record.pk for record in open_records]
    if not record_ids:
        return {}
    # Only items newer than the version that the CRM holds: an operation without failures has none.
    newer = Item.objects.filter(record_id=OuterRef("pk"), version__gt=OuterRef("sent_version"))
    last = newer.order_by("-id").values("message")[:1]
    rows = Record.objects.filter(id__in=record_ids).annotate(message=Subquery(last)).order_by()
    messages = {pk: (message or "", "") for pk, message in rows.values_list("id", "message")}
    dead = RecoveryEntry.open_entries(record_id__in=record_ids)
    # The newest open entry replaces the message of the last try.
    reasons = dead.order_by("id").values_list("record_id", "reason", "field")
    messages |= {pk: (reason, field) for pk, reason, field in reasons if pk is not None}
    error_classes = read_error_classes(open_records)
    return {pk: (*message, error_classes[pk]) for pk, message in messages.items()}


def read_error_classes(records: Sequence[Record]) -> dict[int, str]:
    """Record → its error class. A dead or dismissed record that is looked up before it is sent once
    more has that of its newest entry, which is the reason."""
    checked_ids = [
        record.pk for record in records if record.state in ENDED and record.error_class == UNKNOWN
    ]
    error_classes = {record.pk: record.error_class for record in records}
    if checked_ids:
        entries = RecoveryEntry.objects.filter(record_id__in=checked_ids, state__in=UNSOLVED)
        pairs = entries.order_by("id").values_list("record_id", "error_class")
        error_classes |= {pk: error for pk, error in pairs if pk is not None}
    return error_classes
