"""The lines of leads and records in a list."""

from collections.abc import Sequence

from django.utils.translation import gettext as _

from crmsync.messages import explanations, policies
from crmsync.messages.explanations import ERROR_CLASSES
from crmsync.messages.policies import Policies
from crmsync.messages.states import CrmState, read_error_classes, read_states
from crmsync.models import LandingPage, Lead, Record
from msgplatform.core import personal
from msgplatform.core.data import ids as id_numbers, sql
from msgplatform.core.flows.page import Hit, Tone
from msgplatform.core.lazy_text import join_words
from msgplatform.models import Biz

_State = Record.State
# A lead has the state of its worst record.
_TONES: tuple[Tone, ...] = ("bad", "warn", "plain", "good")
RECORD = "record-"  # prefix of a record's id; a lead's id has none


def of_leads(ids: Sequence[int], policies_by_id: Policies) -> dict[int, Hit]:
    """Lead → its line; a fixed number of queries for any number of leads."""
    leads = list(Lead.objects.filter(id__in=ids))
    names = sql.names_by_id(Biz.objects.all(), (lead.biz_id for lead in leads))
    forms = {
        form.appkey: f"{form} ({form.appkey})"
        for form in LandingPage.objects.filter(appkey__in={lead.appkey for lead in leads})
    }
    states_by_lead = read_states(leads, policies_by_id)
    lines = {}
    for lead in leads:
        states = states_by_lead[lead.pk]
        tones = [state.tone for state in states]
        errors = [f"{state.policy.crm}: {error}" for state in states
                  if (error := explanations.error(state))]  # fmt: skip
        changed_at = _("changed at %s") % explanations.local(lead.update_time)
        lines[lead.pk] = Hit(
            id=str(lead.pk),
            title=lead_title(lead),
            masked_title=lead_title(lead, is_masked=True),
            state=join_words(state.title for state in states) or _("for no CRM"),
            tone=next((tone for tone in _TONES if tone in tones), "plain"),
            reason=join_words(errors),
            at=id_numbers.datetime_of(lead.pk),
            duration=changed_at if lead.version > 1 else "",
            biz=names.get(lead.biz_id, str(lead.biz_id)),
            details=" · ".join(
                part for part in (forms.get(lead.appkey, lead.appkey), lead.uid) if part
            ),
        )
    return lines


def of_records(ids: Sequence[int], policies_by_id: Policies) -> dict[int, Hit]:
    """Record → its line, with the id of its lead if it has one."""
    rows = Record.objects.filter(id__in=ids)
    # A policy may be gone.
    records = [record for record in rows if record.policy_id in policies_by_id]
    error_classes = read_error_classes(records)
    hive = set(policies.of_hive(policies_by_id))
    keys = {record.pk: policies.lead_of(record.key) for record in records
            if record.policy_id in hive}  # fmt: skip
    leads = Lead.objects.in_bulk({key for key in keys.values() if key is not None})
    names = sql.names_by_id(Biz.objects.all(), (lead.biz_id for lead in leads.values()))
    states = [
        CrmState(policies_by_id[record.policy_id], record, error_class=error_classes[record.pk])
        for record in records
    ]
    lines = {}
    for state, record in zip(states, records, strict=True):
        lead = leads.get(keys.get(record.pk) or 0)
        policy, reason = state.policy, ""
        if record.state != _State.CONFIRMED:
            reason = str(ERROR_CLASSES.get(state.error_class, state.error_class))
            if reason and record.attempt:
                reason = _("%(why)s; %(tries)d failed") % {"why": reason, "tries": record.attempt}
        if state.next_try_at:
            time = _("next try at %s") % explanations.local(state.next_try_at)
        else:
            time = _("changed at %s") % explanations.local(record.updated_at)
        version = _("version %d") % record.version if record.version >= 0 else ""
        if record.sent_version and record.sent_version != record.version:
            version = join_words([version, _("the CRM holds %d") % record.sent_version])
        remote_id = record.remote_id and _("id in the CRM %s") % record.remote_id
        details = (_("from %s") % policy.source, version, remote_id)
        lines[record.pk] = Hit(
            id=str(lead.pk) if lead else f"{RECORD}{record.pk}",
            title=lead_title(lead) if lead else f"{policy.source} · {record.key}",
            masked_title=lead_title(lead, is_masked=True) if lead else "",
            state=state.title,
            tone=state.tone,
            reason=reason,
            at=id_numbers.datetime_of(record.pk),
            duration=time,
            biz=names.get(lead.biz_id, "") if lead else str(policy.biz or ""),
            details=" · ".join(part for part in details if part),
        )
    return lines


def lead_title(lead: Lead, is_masked: bool = False) -> str:
    parts = [part for part in (lead.name, lead.phone) if part]
    shown_parts = personal.mask_value(parts) if is_masked else parts
    text = " · ".join(shown_parts) or lead.uid or str(lead.pk)
    return _("%s (deleted)") % text if lead.is_delete else text
