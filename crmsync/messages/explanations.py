"""The reason why a record is where it is, in a sentence."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.utils import formats, timezone
from django.utils.translation import gettext as _, gettext_lazy

from crmsync.messages.states import CrmState
from crmsync.models import Record
from crmsync.presence import LiveCrm

_State = Record.State
LiveCrms = Mapping[int, LiveCrm] | None  # by CRM; None while Redis is unavailable
# The meaning of outcomes, and of the causes that stop a record before it is sent.
ERROR_CLASSES: Mapping[str, Any] = {
    "invalid": gettext_lazy("refused by the CRM"),
    "mapping": gettext_lazy("refused by the mapping"),
    "retry": gettext_lazy("the CRM failed"),
    "unknown": gettext_lazy("nobody knows whether it is stored"),
    "conflict": gettext_lazy("another record of the CRM"),
    "throttled": gettext_lazy("the CRM wants fewer calls"),
    "auth": gettext_lazy("credentials refused"),
    "refused": gettext_lazy("refused with its batch"),
    "queue": gettext_lazy("the queue did not take it"),
    "fault": gettext_lazy("a fault of the platform"),
    "erased": gettext_lazy("its values were erased"),
}


def explain(state: CrmState, live_crms: LiveCrms, now: datetime) -> str:
    """A sentence; '' if the state needs no explanation."""
    record = state.record
    if record is None:
        return blocker(state) or _("a poller reads it with the next look for changes")
    if record.state in (_State.WAITING, _State.RETRY):
        return joined(blocker(state) or _open_breaker(state, live_crms, now), state.message)
    if record.state == _State.HELD:
        return blocker(state) or _removal(state)
    if record.state == _State.QUEUED:
        lease_end = _("queued again at %s if no answer comes")
        end = lease_end % local(record.next_at) if record.next_at else ""
        return blocker(state) or _open_breaker(state, live_crms, now) or end
    return "" if record.state == _State.CONFIRMED else state.message


def _removal(state: CrmState) -> str:
    """The reason why the guard still holds a record."""
    policy = state.policy
    if not policy.is_stopped:
        return _("it deletes or clears something: sent when its run has read everything")
    text = _("removals wait for a person on the policy's page: %(removals)d of %(records)d records")
    return text % {"removals": policy.stopped_removals, "records": policy.stopped_records}


def joined(blocker: str, message: str) -> str:
    """Both sentences, or one if this message is what paused the CRM."""
    parts = (blocker, "" if message in blocker else message)
    return " · ".join(part for part in parts if part)


def error(state: CrmState) -> str:
    """The kind of error with the field at fault; '' without an error.

    Business systems see only this. The messages of CRMs and drivers may name servers, and stay in
    the console.
    """
    if not state.error_class:
        return ""
    words = str(ERROR_CLASSES.get(state.error_class, state.error_class))
    return f"{words}: {state.field}" if state.field else words


def blocker(state: CrmState) -> str:
    """The reason why nothing happens until a person acts; '' if the record goes on by itself."""
    policy = state.policy
    if not policy.crm.enabled:
        return _("the CRM is switched off")
    if policy.crm.paused_at:
        return _("the CRM is paused: %s") % policy.crm.paused_because
    return "" if policy.enabled else _("the policy is switched off")


def local(moment: datetime) -> str:
    return str(formats.localize(timezone.localtime(moment)))


def _open_breaker(state: CrmState, live_crms: LiveCrms, now: datetime) -> str:
    live = (live_crms or {}).get(state.policy.crm_id)
    if live is None or not live.is_open:
        return ""
    probe = local(now + timedelta(seconds=live.retry_in))
    return _("not tried: the breaker of its CRM is open; the next probe may go at %s") % probe
