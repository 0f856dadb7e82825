"""The lines of a search result."""

from __future__ import annotations

from collections.abc import Sequence

from django.utils.translation import gettext as _

from crmsync.messages import crm_states, policies
from crmsync.messages.policies import Policies
from crmsync.models import Lead, Record
from msgplatform.core import personal
from msgplatform.core.data import ids as id_numbers
from msgplatform.core.flows import Hit
from msgplatform.core.lazy_text import joined
from msgplatform.models import Biz

RECORD = "record-"  # stands before the id of a record, so that it is not taken for a lead's


def of_leads(ids: Sequence[int], policies_by_id: Policies) -> dict[int, Hit]:
    """Lead → its line; a fixed number of queries for any number of leads."""
    leads = list(Lead.objects.filter(id__in=ids))
    names = _systems(lead.biz_id for lead in leads)
    states = crm_states.of_leads(leads, policies_by_id)
    return {
        lead.pk: Hit(
            id=str(lead.pk),
            title=title(lead),
            masked_title=title(lead, is_masked=True),
            state=joined(state.shown for state in states[lead.pk]) or _("for no CRM"),
            at=id_numbers.datetime_of(lead.pk),
            biz=names.get(lead.biz_id, str(lead.biz_id)),
        )
        for lead in leads
    }


def of_records(ids: Sequence[int], policies_by_id: Policies) -> dict[int, Hit]:
    """Record → its line, with the id of its lead if it has one."""
    rows = Record.objects.filter(id__in=ids)
    records = [
        record for record in rows if record.policy_id in policies_by_id
    ]  # a policy may be gone
    hive = set(policies.of_hive(policies_by_id))
    keys = {record.pk: policies.lead_of(record.key) for record in records
            if record.policy_id in hive}  # fmt: skip
    leads = Lead.objects.in_bulk({key for key in keys.values() if key is not None})
    names = _systems(lead.biz_id for lead in leads.values())
    lines = {}
    for record in records:
        lead = leads.get(keys.get(record.pk) or 0)
        policy = policies_by_id[record.policy_id]
        is_why = record.error_class and record.state != Record.State.CONFIRMED
        why = f" ({record.error_class})" if is_why else ""
        lines[record.pk] = Hit(
            id=str(lead.pk) if lead else f"{RECORD}{record.pk}",
            title=title(lead) if lead else f"{policy.source} · {record.key}",
            masked_title=title(lead, is_masked=True) if lead else "",
            state=f"{policy.crm}: {Record.State(record.state).label}{why}",
            at=id_numbers.datetime_of(record.pk),
            biz=names.get(lead.biz_id, "") if lead else str(policy.biz or ""),
        )
    return lines


def title(lead: Lead, is_masked: bool = False) -> str:
    parts = [part for part in (lead.name, lead.phone) if part]
    text = " · ".join(personal.masked(parts) if is_masked else parts) or lead.uid or str(lead.pk)
    return _("%s (deleted)") % text if lead.is_delete else text


def _systems(ids: object) -> dict[int, str]:
    return {biz.pk: str(biz) for biz in Biz.objects.filter(id__in=set(ids))}  # type: ignore[call-overload]
