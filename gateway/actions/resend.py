"""Send archived messages that failed once more: as new messages, through intake.

The new message's idempotency key is `resend:<id>:1`, so that a step that is repeated, or a second
job over the same messages, sends nothing twice. That key is kept longer than messages may be sent
again; a new message that fails too can be sent again itself.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _, gettext_lazy
from msgspec.structs import replace

from gateway import sgip
from gateway.intake import accept
from gateway.intake.request import LimitReached, Request
from gateway.lifecycle import store
from gateway.messages.index import ACCOUNT, ANSWER, ARCHIVE, GATEWAY, NUMBER
from gateway.messages.lines import archived_lines, live_lines
from gateway.models import SgipMt, SmsAccount
from gateway.monitor import failures
from gateway.monitor.failures import MAX_RESEND_DAYS, RESENDABLE
from msgplatform.core import logging
from msgplatform.core.data import ids as id_numbers, sql, transactions
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.actions import Applied, BulkAction, Ending
from msgplatform.core.flows.bulk_pages import Described, Page, Preview, Tally
from msgplatform.core.flows.messages import MAX_ID, Check, Fields, Values, few, named
from msgplatform.core.flows.page import Hit
from msgplatform.messages import filters
from msgplatform.messages.engine import select_ids

log = logging.get(__name__)

_KEY_SECONDS = (MAX_RESEND_DAYS + 1) * 86_400
_FEW = 500  # maximum of an account's messages for which its index is used

_ENDINGS: Mapping[str, Ending] = {
    SgipMt.Final.DELIVERED: "arrived", SgipMt.Final.ACCEPTED: "arrived",
    SgipMt.Final.FAILED: "failed", SgipMt.Final.EXPIRED: "failed", "": "waiting",
}  # fmt: skip
_FIELDS: Fields = {
    "since": filters.since(gettext_lazy("Accepted at this time or later; 30 days ago at most")),
    "until": filters.UNTIL,
    "failed_since": filters.FAILED_SINCE,
    "state": filters.choice(
        gettext_lazy("State"),
        [(final.value, final.label) for final in RESENDABLE],
        nothing=gettext_lazy("failed; with message ids: all three"),
    ),
    "biz": filters.BIZ,
    "account": ACCOUNT,
    "gateway": GATEWAY,
    "answer": ANSWER,
    "number": NUMBER,
    "ids": filters.ids(gettext_lazy("Message ids, at most 500")),
}


def _of_account(values: Values) -> QuerySet[Any, int]:
    rows = SgipMt.objects.filter(account_id=values["account"], id__gte=values["since"])
    return rows.values_list("id", flat=True)


def _with_answer(values: Values, ids: Sequence[int]) -> set[int]:
    """The list's condition also matches other answers with the same beginning that were cut."""
    columns = ("final", "result", "error_code", "error")
    rows = SgipMt.objects.filter(id__in=ids).only(*columns).order_by()
    return {row.pk for row in rows if failures.answer_of(row) == values["answer"]}


_SOURCE = replace(
    ARCHIVE,
    indexes=[
        named(("ids",), lambda values: values["ids"]),
        # Failures are rare: their state's index narrows more than an account with many messages.
        few(("account",), _of_account, max_sorted=_FEW),
        *(index for index in ARCHIVE.indexes if index.fields != ("account",)),
    ],
    conditions={
        **{name: column for name, column in ARCHIVE.conditions.items() if name != "answer"},
        "resendable": lambda _value: Q(final__in=RESENDABLE),
        "begun": "archived_at__lte",
    },
    checks=[Check(("answer",), _with_answer)],
)


class Failed:
    """Archived messages that ended without success, oldest first; each is sent as a new message."""

    def __init__(self, filter: Mapping[str, Any], started_at: datetime) -> None:
        # Messages that ended after the job began are not selected.
        self._values = {**_values(filter), "begun": started_at}

    def page(self, position: str, limit: int) -> Page:
        return select_ids([_SOURCE], self._values, position, limit)

    def apply(self, ids: Sequence[int]) -> Applied:
        """Send them once more, in the order of their ids. A step that is repeated makes no other
        messages, see the keys."""
        rows = list(SgipMt.objects.filter(id__in=ids).order_by("id"))
        accounts = SmsAccount.objects.in_bulk({row.account_id for row in rows})
        rows = [row for row in rows if row.account_id in accounts]
        requests = []
        for row in rows:
            account = accounts[row.account_id]
            # The account's number and digits may have changed since: an extension that does not
            # fit is left out.
            extension = row.sp_number.removeprefix(account.sp_number)
            is_of_account = account.sp_number + extension == row.sp_number
            if not is_of_account or len(extension) > account.extension_digits:
                extension = ""
            requests.append(
                Request(
                    biz=row.biz_id,
                    to=(sgip.written_form(row.user_number),),
                    text=row.text,
                    account=account.name,
                    extension=extension,
                    priority=row.priority,
                    reference=row.reference,
                    idempotency_key=failures.resend_key(row.pk),
                )
            )
        if not requests:
            return Applied(0)
        # Accepted as a new message, by this call or by an earlier one, or refused by intake. The
        # keys must outlast the time in which messages may be resent, even if this process dies now.
        verdicts = accept.accept(requests, _KEY_SECONDS)
        reasons = [verdict.reason for verdict in verdicts if verdict.outcome == "rejected"]
        if reasons:
            log.warning("resend_refused", count=len(reasons), why=reasons[0])
        # Count only new messages: an earlier call may have sent others. If this process dies
        # before, the page Failures shows them until a person acknowledges them.
        pairs = zip(rows, verdicts, strict=True)
        new_rows = [row for row, verdict in pairs if verdict.outcome == "created"]
        transactions.retrying(lambda: failures.take_back_resent(new_rows))
        # Today's limit stops the job. Messages after the limit that were sent are found as
        # duplicates when the job continues.
        limit_positions = (n for n, v in enumerate(verdicts) if v.code == LimitReached.code)
        stop = next(limit_positions, len(verdicts))
        sent_count = sum(verdict.outcome != "rejected" for verdict in verdicts[:stop])
        new_ids = [new for verdict in verdicts[:stop] for new in verdict.ids]
        final_reasons = (v.reason for v in verdicts[:stop] if v.outcome == "rejected")
        left_because = next(final_reasons, "")
        if stop < len(verdicts):
            position = str(rows[stop - 1].pk) if stop else ""
            return Applied(sent_count, left_because, new_ids, verdicts[stop].reason, position)
        return Applied(sent_count, left_because, new_ids)


def select_message(id: str, recipient: str, _by: str) -> tuple[Failed, list[int]]:
    """A message of the archive, whose only recipient has the message's own id. Raises InvalidInput
    for a message that is not in the archive."""
    row = SgipMt.objects.filter(pk=filters.number(id)).first()
    if row is None or recipient not in ("", str(row.pk)):
        raise InvalidInput(_("there is no such message in the archive"), "id")
    selection = Failed({"ids": str(row.pk)}, sql.now())
    # Not a message that is too old: its key may be forgotten, and it would be sent twice.
    return selection, selection.page("", 1).ids


def _show(messages: Tally[tuple[int, str]], started_at: datetime) -> Preview:
    account_ids = (account for account, _final in messages.groups)
    accounts = sql.names_by_id(SmsAccount.objects.only("name"), account_ids)
    titles = {
        (account, final): f"{accounts.get(account, account)} · {SgipMt.Final(final).label}"
        for account, final in messages.groups
    }
    return messages.preview(started_at, titles, list(archived_lines(messages.sample).values()))


def outcome(ids: Sequence[str]) -> dict[str, Ending]:
    """The endings of the new messages; an unknown id has none. Raises RedisError."""
    finals = {message.mt.id: message.final for message in store.read(ids)}
    archived_ids = [int(pk) for pk in ids if pk not in finals]
    rows = SgipMt.objects.filter(id__in=archived_ids).values_list("id", "final")
    finals |= {str(pk): final for pk, final in rows}
    return {pk: _ENDINGS[final] for pk, final in finals.items() if final in _ENDINGS}


def lines(ids: Sequence[str]) -> list[Hit]:
    """The lines of the new messages, in this order. Raises RedisError."""
    lines_by_id = {line.id: line for line in live_lines(ids)}
    archived_ids = [int(id) for id in ids if id not in lines_by_id]
    lines_by_id |= {line.id: line for line in archived_lines(archived_ids).values()}
    return [lines_by_id[id] for id in ids if id in lines_by_id]


def _describe(ids: Sequence[int]) -> Described[tuple[int, str]]:
    """The id of each message, its account and ending, and the time of its acceptance."""
    rows = SgipMt.objects.filter(id__in=ids).values_list("id", "account_id", "final")
    for pk, account, final in rows:
        yield pk, (account, final), id_numbers.datetime_of(pk)


def _values(filter: Mapping[str, Any]) -> Values:
    values = filters.read_filter(_FIELDS, filter, () if filter.get("ids") else ("since",))
    oldest = id_numbers.first_id_at(sql.now() - timedelta(days=MAX_RESEND_DAYS))
    if values.get("state", SgipMt.Final.FAILED) not in RESENDABLE:
        raise InvalidInput(_("use one of %s") % ", ".join(RESENDABLE), "state")
    states = {"resendable": True} if "ids" in values else {"state": SgipMt.Final.FAILED}
    # Leave out older messages silently: their keys may be forgotten, and they would be sent twice.
    since = max(values.get("since", 0), oldest)
    values = {**states, **values, "since": min(since, MAX_ID)}
    if "account" in values and "biz" not in values:
        # Messages of a system that had the account before are not its present system's.
        owners = SmsAccount.objects.filter(pk=values["account"]).values_list("biz_id", flat=True)
        values["biz"] = owners.first() or 0
    return values


ACTION = BulkAction(
    title=gettext_lazy("Send failed messages again"),
    fields=_FIELDS,
    help=gettext_lazy("Each is sent once more as a new message with an id of its own, however "
                      "often this is asked for. An unknown one may arrive twice."),
    select=Failed,
    describe=_describe,
    show=_show,
    outcome=outcome,
    lines=lines,
    has_message_ids=True,
    makes_messages=True,
    select_message=select_message,
)  # fmt: skip
