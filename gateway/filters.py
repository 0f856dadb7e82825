"""What a person may narrow a search or a bulk action by: texts from a form to values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.utils.translation import gettext as _

from gateway import sgip
from gateway.models import SgipMt, SmsAccount
from msgplatform.core import ids as id_numbers
from msgplatform.core.errors import InvalidInput
from msgplatform.models import Biz
from notify.filters import MAX_ID, moment, number

__all__ = ["MAX_ID", "Filter", "number", "parse"]
MAX_SELECTION = 500


@dataclass(frozen=True, slots=True)
class Filter:
    """Values, None where nothing was asked. Times are message ids: since <= id < until."""

    id: int | None = None
    ids: tuple[int, ...] | None = None
    number: str | None = None
    account: int | None = None
    biz: int | None = None
    state: str | None = None
    reference: str | None = None
    key: str | None = None
    since: int | None = None
    until: int | None = None

    def indexed(self) -> QuerySet[SgipMt]:
        """Rows by what indexes can narrow, newest first; `fits` judges the rest."""
        wanted = {
            "id": self.id, "id__in": self.ids, "user_number": self.number,
            "account_id": self.account, "final": self.state,
            "id__gte": self.since, "id__lt": self.until,
        }  # fmt: skip
        rows = SgipMt.objects.order_by("-id")
        return rows.filter(**{name: value for name, value in wanted.items() if value is not None})

    def fits(self, biz: int, reference: str, key: str) -> bool:
        return (
            self.biz in (None, biz)
            and self.reference in (None, reference)
            and self.key in (None, key)
        )


def parse(given: Mapping[str, Any], allowed: Iterable[str], required: Iterable[str] = ()) -> Filter:
    """Raises InvalidInput naming the field. Empty texts count as not given."""
    texts = {name: str(value).strip() for name, value in given.items()}
    if unknown := texts.keys() - set(allowed):
        known = ", ".join(allowed)
        raise InvalidInput(_("unknown filter; use %s") % known, sorted(unknown)[0])
    texts = {name: text for name, text in texts.items() if text}
    for name in required:
        if name not in texts:
            raise InvalidInput(_("this one is needed"), name)
    return Filter(**{name: _READERS.get(name, _text)(text, name) for name, text in texts.items()})


def _first_id(text: str, field: str) -> int:
    return min(id_numbers.first_id_at(moment(text, field)), MAX_ID)


def _selection(text: str, field: str) -> tuple[int, ...]:
    parts = text.replace(",", " ").split()
    if len(parts) > MAX_SELECTION:
        raise InvalidInput(_("at most %d at once") % MAX_SELECTION, field)
    return tuple(sorted({number(part, field) for part in parts}))


def _number(text: str, field: str) -> str:
    return sgip.international(_text(text, field))


def _state(text: str, field: str) -> str:
    if text not in SgipMt.Final.values:
        raise InvalidInput(_("use one of %s") % ", ".join(SgipMt.Final.values), field)
    return text


def _account(text: str, field: str) -> int:
    found = SmsAccount.objects.filter(name=_text(text, field)).values_list("pk", flat=True).first()
    if found is None:
        raise InvalidInput(_("there is no account of this name"), field)
    return found


def _biz(text: str, field: str) -> int:
    """By its id or its name."""
    if text.isascii() and text.isdigit():
        return number(text, field)
    found = Biz.objects.filter(name=_text(text, field)).values_list("pk", flat=True).first()
    if found is None:
        raise InvalidInput(_("no business system has this name; use its name or its id"), field)
    return found


def _text(text: str, field: str) -> str:
    if "\x00" in text:
        raise InvalidInput(_("this character cannot be searched for"), field)
    return text


_READERS: dict[str, Any] = {
    "id": number,
    "ids": _selection,
    "number": _number,
    "account": _account,
    "biz": _biz,
    "state": _state,
    "since": _first_id,
    "until": _first_id,
}
