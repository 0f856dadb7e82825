"""Why a message has no recipient, and what can be done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from msgplatform.core.connections import RedisError
from msgplatform.core.daemons import heartbeats
from msgplatform.core.flows import PageLink, Value
from msgplatform.models import Biz
from notify.models import BizMsg, BizReceive

_COUNTED = 1000  # subscriptions of a system
_MAKER = "maker"


def sentences(message: Any, biz: Biz | None, archived: bool) -> list[Value]:
    if not archived and message.state == BizMsg.State.ACCEPTED:
        return list(_not_split())
    return list(_nobody(message, biz))


def _not_split() -> Iterator[str]:
    yield _("It waits for a maker, which makes a delivery for each subscription that wants it.")
    try:
        runs = any(beat.role == _MAKER for beat in heartbeats.alive())
    except RedisError:
        yield _("Redis is unavailable: whether a maker runs is not known.")
        return
    if not runs:
        yield _("No maker runs: start run_maker.")


def _nobody(message: Any, biz: Biz | None) -> Iterator[Value]:
    what = {"type": message.event_type, "system": biz or message.biz_id}
    if message.channel:
        what["channel"] = message.channel
        yield _("Nobody subscribes to %(type)s of %(system)s in the channel %(channel)s.") % what
    else:
        yield _("Nobody subscribes to %(type)s of %(system)s.") % what
    others = BizReceive.objects.filter(biz_id=message.biz_id).order_by()[:_COUNTED].count()
    if others:
        text = ngettext(
            "Its %d subscription is for others, was made later, or is discarded.",
            "Its %d subscriptions are for others, were made later, or are discarded.",
            others,
        )
        yield text % others
    asked = urlencode({"biz": message.biz_id, "event_types": message.event_type})
    yield PageLink(
        _("Add a subscription"),
        f"{reverse('admin:notify_bizreceive_add')}?{asked}",
        "notify.add_bizreceive",
    )
    if not others:
        return
    # A subscription gets what is accepted after it was made; this fills in what came before.
    asked = urlencode(
        {
            "action": "backfill", "biz": message.biz_id, "event_type": message.event_type,
            "since": message.created_at.isoformat(),
        }
    )  # fmt: skip
    yield PageLink(
        _("Make deliveries for subscriptions that were made later"),
        f"{reverse('console:bulk-flow', args=['notify'])}?{asked}",
        "msgplatform.add_bulkjob notify.change_receivemsg",
    )
