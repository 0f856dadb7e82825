"""What a person may narrow a search or a bulk action of SMS by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from gateway import sgip
from gateway.lifecycle.messages import Finished, Mt
from gateway.models import SgipMt, SmsAccount
from msgplatform.api import filters
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows import MAX_OPTIONS, FilterField, Option


@dataclass(frozen=True, slots=True)
class Filter:
    """Values, None where nothing was asked. Times are message ids (ids grow with time, and the
    archive has no index by time): since <= id < until."""

    id: int | None = None
    ids: tuple[int, ...] | None = None
    number: str | None = None
    account: int | None = None
    biz: int | None = None
    state: str | None = None
    reference: str | None = None
    key: str | None = None
    # Of the bulk action only: no index narrows them.
    gateway: int | None = None
    answer: str | None = None
    since: int | None = None
    until: int | None = None

    def indexed(self) -> QuerySet[SgipMt]:
        """Rows by what indexes can narrow, newest first; `fits` decides about the rest."""
        wanted = {
            "id": self.id, "id__in": self.ids, "user_number": self.number,
            "account_id": self.account, "final": self.state,
            "id__gte": self.since, "id__lt": self.until,
        }  # fmt: skip
        rows = SgipMt.objects.order_by("-id")
        return rows.filter(**{name: value for name, value in wanted.items() if value is not None})

    @property
    def residual(self) -> bool:
        """Whether `fits` may refuse a row that `indexed` gives."""
        return any(value is not None for value in (self.biz, self.reference, self.key))

    # What no index narrows, see `indexed`.
    def fits(self, biz: int, reference: str, key: str) -> bool:
        return (
            self.biz in (None, biz)
            and self.reference in (None, reference)
            and self.key in (None, key)
        )

    def matches(self, found: Finished) -> bool:
        """The whole filter, for a message in Redis."""
        return self.wants(found.mt, found.final)

    def wants(self, mt: Mt, final: str) -> bool:
        """The same, by a message and how it ended, '' while it has not."""
        message_id = int(mt.id)
        return (
            self.fits(mt.biz, mt.reference, mt.key)
            and self.number in (None, mt.user_number)
            and self.account in (None, mt.account)
            and self.state in (None, final)
            and (self.since is None or message_id >= self.since)
            and (self.until is None or message_id < self.until)
            and self.id in (None, message_id)
        )


def parse(given: Mapping[str, Any], allowed: Iterable[str], required: Iterable[str] = ()) -> Filter:
    """Raises InvalidInput naming the field. Empty texts count as not given."""
    return Filter(**filters.values(given, _READERS, allowed, required))


def read_number(text: str, field: str) -> str:
    return sgip.international(filters.searchable(text, field))


def read_state(text: str, field: str) -> str:
    if text not in SgipMt.Final.values:
        raise InvalidInput(_("use one of %s") % ", ".join(SgipMt.Final.values), field)
    return text


def read_account(text: str, field: str) -> int:
    found = (
        SmsAccount.objects.filter(name=filters.searchable(text, field))
        .values_list("pk", flat=True)
        .first()
    )
    if found is None:
        raise InvalidInput(_("there is no account of this name"), field)
    return found


_READERS = {
    **filters.READERS,
    "account": read_account,
    "gateway": filters.number,
    "number": read_number,
    "state": read_state,
}


def accounts(typed: str) -> Sequence[Option]:
    """Accounts with the typed text in their name or SP number."""
    rows = SmsAccount.objects.filter(Q(name__icontains=typed) | Q(sp_number__startswith=typed))
    found = rows.order_by("name").values_list("name", "sp_number", "biz__name")[:MAX_OPTIONS]
    return [Option(name, f"{biz} · {sp_number}") for name, sp_number, biz in found]


NUMBER = FilterField(
    gettext_lazy("Number"), gettext_lazy("The recipient, with or without 86"), personal=True
)
ACCOUNT = FilterField(
    gettext_lazy("Account"), gettext_lazy("Type a part of its name"), "name", options=accounts
)
