"""The lines of messages in lists, from Redis and from the archive."""

from collections.abc import Callable, Sequence

from django.utils.translation import gettext as _

from gateway import codes
from gateway.archive_rows import live_row
from gateway.lifecycle import store
from gateway.lifecycle.messages import Finished
from gateway.messages.states import TITLES, TONES
from gateway.models import SgipMt, SmsAccount, SmsGateway
from msgplatform.core import personal
from msgplatform.core.data import sql
from msgplatform.core.durations import age
from msgplatform.core.flows.page import Hit
from msgplatform.models import Biz

_SHOWN_TEXT = 60  # characters


def live_lines(
    ids: Sequence[str], matches: Callable[[Finished], bool] = lambda _message: True
) -> list[Hit]:
    """The lines of the messages that are still in Redis, and match. Raises RedisError."""
    messages = [message for message in store.read(ids) if matches(message)]
    states = {int(row.id): str(TITLES[row.final or row.state]) for row in messages}
    return _lines([live_row(message) for message in messages], states)


def archived_lines(ids: Sequence[int]) -> dict[int, Hit]:
    """Id → line of messages in the archive, newest first."""
    rows = list(SgipMt.objects.filter(id__in=ids).order_by("-id"))
    states = {row.pk: _("%s (archived)") % row.get_final_display() for row in rows}
    return {int(line.id): line for line in _lines(rows, states)}


def _lines(rows: Sequence[SgipMt], states: dict[int, str]) -> list[Hit]:
    """Three queries for any number of rows."""
    systems = sql.names_by_id(Biz.objects.all(), (row.biz_id for row in rows))
    accounts = sql.names_by_id(SmsAccount.objects.all(), (row.account_id for row in rows))
    gateways = sql.names_by_id(SmsGateway.objects.all(), (row.gateway_id for row in rows))
    hits = []
    for row in rows:
        ended_at, duration = row.ended_at or row.reported_at, ""
        if row.final and ended_at is not None:
            seconds = (ended_at - row.accepted_at).total_seconds()
            duration = _("ended after %s") % age(max(0.0, seconds))
        names = (accounts.get(row.account_id), gateways.get(row.gateway_id))
        is_cut = len(row.text) > _SHOWN_TEXT
        hits.append(
            Hit(
                id=str(row.pk),
                title=f"{row.user_number} · {row.text[:_SHOWN_TEXT]}{'…' if is_cut else ''}",
                masked_title=personal.mask_value(row.user_number),
                state=states[row.pk],
                tone=TONES.get(row.final, "plain"),
                reason=codes.with_meaning(row.error_code) or row.error,
                at=row.accepted_at,
                duration=duration,
                biz=systems.get(row.biz_id, str(row.biz_id)),
                details=" · ".join(name for name in names if name),
            )
        )
    return hits
