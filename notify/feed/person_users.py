"""The users of a person, and the users' rows in slices, found by keys alone.

A user id that is a phone number or an e-mail address of the person is found in each spelling. Every
key of these tables begins with the business system. So a slice is for one system: it reads a page
of the system's users, and their rows range by range.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from django.db.models import Model, QuerySet

from msgplatform.core.person.identity import Person
from msgplatform.core.person.stores import SLICE
from msgplatform.models import Biz
from notify.feed.models import FeedUser

PAGE = 500  # rows of one slice
# The rows of a user (system, uid) as ranges of a key: all columns of the key but one have a value,
# and the rows are read in the order of the other column.
Ranges = Callable[[int, str], Iterable[tuple[QuerySet[Any], str]]]


def is_user(person: Person, biz: int, uid: str) -> bool:
    """True for a user of the person, and for a user id that is the person's number or address."""
    return (biz, uid) in person.users or person.is_identifier(uid)


def rows(
    person: Person, cursor: str, ranges: Ranges, columns: Sequence[str]
) -> tuple[list[Mapping[str, Any]], str]:
    """The rows of the person's users in the next slice, and the next cursor, '' at the end.

    The cursor is the key of the last row, so that rows may be deleted between two slices.
    """
    position = json.loads(cursor) if cursor else None
    if not isinstance(position, list):  # a cursor of an earlier version was a count of rows
        position = [_next_system(person, -1), "", "", 0, None]
    biz, page_after, *last_range, last_value = position
    if biz is None:
        return [], ""
    uids, page_end = _uids(person, biz, page_after)
    page: list[Mapping[str, Any]] = []
    for uid in uids:
        for number, (of_user, column) in enumerate(ranges(biz, uid)):
            if [uid, number] < last_range:
                continue
            if [uid, number] == last_range and last_value is not None:
                of_user = of_user.filter(**{f"{column}__gt": last_value})
            page += of_user.order_by(column).values(*columns)[: PAGE - len(page)]
            if len(page) == PAGE:
                return page, json.dumps([biz, page_after, uid, number, page[-1][column]])
    next_biz = biz if page_end else _next_system(person, biz)
    return page, json.dumps([next_biz, page_end, "", 0, None]) if next_biz is not None else ""


def _uids(person: Person, biz: int, page_after: str) -> tuple[list[str], str]:
    """The person's users in the next page of a system's users, sorted; the last user of the page,
    '' at the end."""
    # The first page includes users without a row, who have only posted.
    uids = {uid for of, uid in person.users if of == biz} if not page_after else set()
    if not (person.phones or person.emails):
        return sorted(uids), ""
    if not page_after:
        uids |= {*person.phone_spellings, *person.emails}
    users = FeedUser.objects.filter(biz_id=biz).values_list("uid", flat=True)
    page = list(users.filter(uid__gt=page_after).order_by("uid")[:SLICE])
    page_end = page[-1] if len(page) == SLICE else ""
    if page_end:  # users of later pages are left to these pages
        uids -= set(users.filter(uid__in=uids, uid__gt=page_end))
    uids |= {uid for uid in page if is_user(person, biz, uid)}
    return sorted(uids), page_end


def _next_system(person: Person, biz: int) -> int | None:
    """The first system after this one that may have users of the person."""
    systems = [of for of, _uid in person.users if of > biz]
    if person.phones or person.emails:
        # A deleted system may have users.
        tables: Sequence[tuple[type[Model], str]] = ((Biz, "id"), (FeedUser, "biz_id"))
        for model, column in tables:
            later_rows = model._base_manager.filter(**{f"{column}__gt": biz}).order_by(column)
            systems += later_rows.values_list(column, flat=True)[:1]
    return min(systems, default=None)
