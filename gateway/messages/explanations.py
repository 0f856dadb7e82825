"""Why a message stands where it does, and the colours of endings."""

from __future__ import annotations

import time
from collections.abc import Mapping

from django.utils.translation import gettext as _

from gateway import codes, presence
from gateway.lifecycle.messages import Finished
from gateway.models import SgipMt, SmsGateway
from msgplatform.core.connections import RedisError
from msgplatform.core.flows.page import Tone

_Final = SgipMt.Final
TONES: Mapping[str, Tone] = {
    _Final.DELIVERED: "good", _Final.ACCEPTED: "good", _Final.EXPIRED: "bad",
    _Final.UNKNOWN: "warn", _Final.FAILED: "bad",
}  # fmt: skip


def waiting_reason(message: Finished, gateway: SmsGateway | None) -> str:
    """The reason why a message that has not ended is where it is."""
    name = gateway.name if gateway else message.gateway
    if message.state == "responded":
        return _("The gateway %s took it; its Report has not come yet.") % name
    if message.state == "submitted":
        return _("It was sent to the gateway %s, which has not answered yet.") % name
    if message.mt.schedule_at > time.time():
        return _("It is not to be sent before its time.")
    if gateway is None:
        return _("Its gateway was deleted.")
    if not gateway.enabled:
        return _("Its gateway %s is switched off.") % name
    try:
        if gateway.pk not in presence.connected_gateways(presence.live()):
            return _("Nobody is connected to its gateway %s: it waits for a connection.") % name
    except RedisError:
        return _("The SMS Redis does not answer: whether its gateway is connected is not known.")
    return _("It waits for its turn at the gateway %s.") % name


def ending_reason(row: SgipMt) -> str:
    """The reason why a message ended so; '' for a delivered one."""
    if row.final == _Final.UNKNOWN:
        return _("Its Report never came: nobody knows whether it arrived.")
    if row.final == _Final.EXPIRED:
        return _("Its time was over before it could be sent.")
    if row.final == _Final.ACCEPTED:
        return _("The gateway took it; no Report was asked for, or only one of a failure.")
    return codes.with_meaning(row.error_code) or row.error
