"""Send archived messages that failed once more: as new messages, through intake.

The new message's idempotency key is `resend:<id>:1`, so that a step that is repeated, or a second
job over the same messages, sends nothing twice. That key is kept longer than messages may be sent
again; a new message that fails too can be sent again itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from gateway.connections import sms_redis
from gateway.intake import accept
from gateway.intake.request import Request
from gateway.lifecycle import keys
from gateway.models import SgipMt, SmsAccount
from gateway.search import resent
from gateway.search.filters import Filter, parse
from msgplatform.api.filters import MAX_ID
from msgplatform.core import logging
from msgplatform.core.bulk_cursor import BulkCursor, read_id
from msgplatform.core.data import ids as id_numbers
from msgplatform.core.data import sql
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows import BulkAction, Counted, Step

log = logging.get(__name__)

OLDEST_DAYS = 30
_KEY_SECONDS = (OLDEST_DAYS + 1) * 86_400
COUNT_MOST = 100_000  # then the count says "or more": an exact one would take too long

ACTION = BulkAction(
    gettext_lazy("Send failed ones again"),
    {
        "since": gettext_lazy("Accepted at this time or later; 30 days ago at most"),
        "until": gettext_lazy("Accepted before this time"),
        "state": gettext_lazy("failed (default), expired or unknown"),
        "biz": gettext_lazy("Name or id of a business system"),
        "account": gettext_lazy("An account's name"),
        "number": gettext_lazy("The recipient, with or without 86"),
        "ids": gettext_lazy("Message ids, at most 500"),
    },
    gettext_lazy("Each is sent once more as a new message with an id of its own, however often "
                 "this is asked for. An unknown one may arrive twice."),
)  # fmt: skip
_AGAIN = (SgipMt.Final.FAILED, SgipMt.Final.EXPIRED, SgipMt.Final.UNKNOWN)


def count(given: Mapping[str, Any]) -> Counted:
    """How many the filter means, counted to a bound. Raises InvalidInput."""
    filter = _filter(given)
    rows = filter.indexed()
    if filter.biz is not None:
        rows = rows.filter(biz_id=filter.biz)
    found = rows.order_by()[: COUNT_MOST + 1].count()
    return Counted(min(found, COUNT_MOST), more=found > COUNT_MOST)


def step(given: Mapping[str, Any], cursor: str, limit: int) -> Step:
    """The next `limit`, oldest first. What ends after the first step began is left alone."""
    filter = _filter(given)
    if not cursor:
        return Step(BulkCursor.begin(), 0)
    at = BulkCursor.read(cursor)
    ended = filter.indexed().filter(archived_at__lte=at.begun)
    page = list(ended.filter(id__gt=read_id(at.position)).order_by("id")[:limit])
    done = _send([row for row in page if filter.biz in (None, row.biz_id)]) if page else 0
    return Step(at.moved_to(str(page[-1].pk) if len(page) == limit else ""), done)


def _filter(given: Mapping[str, Any]) -> Filter:
    filter = parse(given, ACTION.filters, () if given.get("ids") else ("since",))
    oldest = id_numbers.first_id_at(sql.now() - timedelta(days=OLDEST_DAYS))
    state = filter.state or SgipMt.Final.FAILED.value
    if state not in _AGAIN:
        raise InvalidInput(_("use one of %s") % ", ".join(_AGAIN), "state")
    values = {name: getattr(filter, name) for name in Filter.__slots__}
    # Older ones are left out silently: their key may be forgotten, and they would be sent twice.
    since = max(filter.since or 0, oldest)
    return Filter(**{**values, "state": state, "since": min(since, MAX_ID)})


def _send(rows: Sequence[SgipMt]) -> int:
    """How many are accepted as new messages, by this call or by an earlier one."""
    accounts = SmsAccount.objects.in_bulk({row.account_id for row in rows})
    requests = [
        _request(row, accounts[row.account_id]) for row in rows if row.account_id in accounts
    ]
    if not requests:
        return 0
    verdicts = accept.intake().send_many(requests)
    sent = [r for r, v in zip(requests, verdicts, strict=True) if v.outcome != "rejected"]
    refused = [v.reason for v in verdicts if v.outcome == "rejected"]
    if refused:
        log.warning("resend_refused", count=len(refused), why=refused[0])
    # Intake keeps a key for a day; this one must outlast the time in which they may be sent again.
    with sms_redis().pipeline(transaction=False) as pipe:
        for request in sent:
            pipe.expire(keys.idempotency(request.biz, request.idempotency_key), _KEY_SECONDS)
        pipe.execute()
    return len(sent)


def _request(row: SgipMt, account: SmsAccount) -> Request:
    # An account's number may have changed since: then there is no extension to repeat.
    own = account.sp_number
    extension = row.sp_number[len(own) :] if row.sp_number.startswith(own) else ""
    return Request(
        biz=row.biz_id,
        to=(row.user_number,),
        text=row.text,
        account=account.name,
        extension=extension,
        priority=row.priority,
        reference=row.reference,
        idempotency_key=resent.key(row.pk),
    )
