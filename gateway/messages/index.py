"""How short messages are found: fields, indexes, conditions, lines.

Messages of the archive are found by its indexes; messages in flight, which are in Redis, by id or
idempotency key, and by what else they have as far as a short walk gets (`in_flight`).
"""

from collections.abc import Iterator, Sequence
from typing import Any

from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _, gettext_lazy
from msgspec.structs import replace

from gateway.messages.in_flight import InFlight, searched_numbers
from gateway.messages.lines import archived_lines
from gateway.messages.page import page
from gateway.messages.states import archived_states
from gateway.models import SgipMt, SmsAccount
from gateway.monitor import failures
from msgplatform.core.characters import phone_number
from msgplatform.core.data import sql
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.messages import (
    BY_ID,
    MAX_OPTIONS,
    Check,
    Fields,
    FilterField,
    Index,
    MessageStore,
    Option,
    Reader,
    Source,
    Systems,
    Values,
    merged,
    ordered,
)
from msgplatform.messages import filters
from msgplatform.messages.engine import exact_id

_Final = SgipMt.Final
# Most messages end so: a filter on these states narrows nothing.
_COMMON_STATES = (_Final.DELIVERED, _Final.ACCEPTED)


# -- fields --------------------------------------------------------------------------------------
def _read_numbers(text: str, field: str) -> tuple[str, ...]:
    return searched_numbers(filters.searchable(text, field))


def _read_account(text: str, field: str) -> int:
    rows = SmsAccount.objects.filter(name=filters.searchable(text, field))
    account = rows.values_list("pk", flat=True).first()
    if account is None:
        raise InvalidInput(_("there is no account of this name"), field)
    return account


def _accounts(text: str, systems: Systems) -> Sequence[Option]:
    """Accounts with the typed text in their name or SP number."""
    rows = SmsAccount.objects.filter(Q(name__icontains=text) | Q(sp_number__startswith=text))
    if systems is not None:
        rows = rows.filter(biz_id__in=systems)
    names = rows.order_by("name").values_list("name", "sp_number", "biz__name")[:MAX_OPTIONS]
    return [Option(name, f"{biz} · {sp_number}") for name, sp_number, biz in names]


NUMBER = FilterField(
    gettext_lazy("Number"),
    gettext_lazy("The recipient, with or without 86"),
    personal=True,
    read=_read_numbers,
)
ACCOUNT = FilterField(
    gettext_lazy("Account"),
    gettext_lazy("Type a part of its name"),
    "name",
    options=_accounts,
    owners=lambda pk: list(SmsAccount.objects.filter(pk=pk).values_list("biz_id", flat=True)),
    read=_read_account,
    parameter_help="Only messages of the account of this name",
)
GATEWAY = FilterField(
    gettext_lazy("Gateway"), gettext_lazy("The number in its page's address"), read=filters.number
)
ANSWER = filters.answer(gettext_lazy("Why it failed, as the page Failures shows it: result 5"))
FIELDS: Fields = {
    "id": filters.message_id(gettext_lazy("A message's id")),
    "number": NUMBER,
    "key": FilterField(
        gettext_lazy("Idempotency key"),
        parameter_help="Only messages of the call with this idempotency key; give a time as well",
    ),
    "reference": FilterField(
        gettext_lazy("Reference"),
        gettext_lazy("The sender's own reference"),
        parameter_help="Only messages with this reference of yours; give a time as well",
    ),
    "biz": filters.BIZ,
    "account": ACCOUNT,
    "state": filters.choice(gettext_lazy("State"), _Final),
    "gateway": replace(
        GATEWAY, help=gettext_lazy("The number in its page's address; no messages in flight")
    ),
    "answer": ANSWER,
    "since": filters.SINCE,
    "until": filters.UNTIL,
    "failed_since": filters.FAILED_SINCE,
}
# Only the console has these fields: the page Failures links to a group's messages with them.
_NOT_IN_API = ("gateway", "answer", "failed_since")


# -- the archive ---------------------------------------------------------------------------------
def _of_numbers(rows: QuerySet[Any], values: Values) -> Sequence[QuerySet[Any]]:
    return [
        sql.of_one(rows, "user_number", number).order_by("-user_number", "-id")
        for number in values["number"]
    ]


def _in_rare_state(source: Source, values: Values) -> Reader | None:
    return None if values["state"] in _COMMON_STATES else ordered("state").open(source, values)


def _with_texts(values: Values, ids: Sequence[int]) -> set[int]:
    """Texts are compared exactly: MariaDB ignores case, accents and blanks at the end."""
    columns = ("id", "text", "reference", "idempotency_key")
    query, rows = values.get("text", ""), SgipMt.objects.filter(id__in=ids).order_by()
    return {
        pk for pk, text, reference, key in rows.values_list(*columns)
        if (query in text or query == reference)
        and (reference, key) == (values.get("reference", reference), values.get("key", key))
    }  # fmt: skip


ARCHIVE = Source(
    rows=SgipMt.objects.all,
    lines=archived_lines,
    indexes=[
        BY_ID,
        merged(("number",), _of_numbers),
        ordered("account"),
        Index(("state",), _in_rare_state),
        ordered("biz"),
        ordered("state"),
    ],
    conditions={
        "id": "id",
        "number": "user_number__in",
        "account": "account_id",
        "state": "final",
        "biz": "biz_id",
        # No index helps with these: a page looks at a bounded number of rows.
        "reference": "reference",
        "key": "idempotency_key",
        "gateway": "gateway_id",
        "answer": failures.with_answer,
        "failed_since": "archived_at__gte",
    },
    checks=[Check(("text", "reference", "key"), _with_texts)],
)


def _readings(query: str, personal: bool) -> Iterator[Values]:
    """A message's id, a recipient (if `personal`), an idempotency key or a reference. Digits may be
    an id or a number, and a key may be both."""
    yield from exact_id(query)
    if personal and phone_number(query):
        yield {"number": _read_numbers(query, "number")}
    yield {"key": query}
    yield {"reference": query}


_IN_FLIGHT = InFlight()
MESSAGES = MessageStore(
    fields=FIELDS,
    sources=lambda _values: [ARCHIVE],
    live=_IN_FLIGHT,
    readings=_readings,
    page=page,
    records=archived_states,
    searched_text_label=gettext_lazy("messages in flight, numbers and texts"),
    search_warning=_IN_FLIGHT.warning,
)
# The messages of a business system, for the API.
SENT = replace(
    MESSAGES, fields={name: field for name, field in FIELDS.items() if name not in _NOT_IN_API}
)
