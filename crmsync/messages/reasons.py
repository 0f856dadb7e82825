"""Why a record is where it is, in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.utils import formats, timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from crmsync.messages.crm_states import CrmState
from crmsync.models import Record
from crmsync.presence import LiveCrm

_State = Record.State
Lanes = Mapping[int, LiveCrm] | None  # by CRM; None while Redis is unavailable
# What outcomes mean, and what stops a record before it is sent.
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
}


def why(state: CrmState, lanes: Lanes, now: datetime) -> str:
    """A sentence; '' when the state says it all."""
    record = state.record
    said = state.message
    if record is None:
        return wait(state) or _("a poller reads it with the next look for changes")
    if record.state in (_State.WAITING, _State.RETRY):
        # Why nothing happens counts for more than what the CRM said.
        stopped = wait(state) or _behind_breaker(state, lanes, now)
        return joined(stopped, said)
    if record.state == _State.QUEUED:
        again = ""
        if record.next_at:
            again = _("queued again at %s if no answer comes") % local(record.next_at)
        return wait(state) or _behind_breaker(state, lanes, now) or again
    return "" if record.state == _State.CONFIRMED else said


def joined(stopped: str, message: str) -> str:
    """Both sentences; one, where the CRM was paused by just this message."""
    parts = (stopped, "" if message in stopped else message)
    return " · ".join(part for part in parts if part)


def kind(state: CrmState) -> str:
    """The kind of error with the field at fault; '' when there is none.

    For business systems: the words of CRMs and drivers may name servers, and stay in the console.
    """
    record = state.record
    if record is None or not record.error_class or record.state == _State.CONFIRMED:
        return ""
    words = str(ERROR_CLASSES.get(record.error_class, record.error_class))
    return f"{words}: {state.field}" if state.field else words


def wait(state: CrmState) -> str:
    """Why nothing happens until a person acts; '' when it goes on by itself."""
    policy = state.policy
    if not policy.crm.enabled:
        return _("the CRM is switched off")
    if policy.crm.paused_at:
        return _("the CRM is paused: %s") % policy.crm.paused_because
    return "" if policy.enabled else _("the policy is switched off")


def local(moment: datetime) -> str:
    shown: str = formats.localize(timezone.localtime(moment))
    return shown


def _behind_breaker(state: CrmState, lanes: Lanes, now: datetime) -> str:
    live = (lanes or {}).get(state.policy.crm_id)
    if live is None or not live.is_open:
        return ""
    probe = local(now + timedelta(seconds=live.retry_in))
    return _("not tried: the breaker of its CRM is open; the next probe may go at %s") % probe
