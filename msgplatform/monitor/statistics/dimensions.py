"""Dimensions that several flows have: the business system, and rows of a model that are subjects of
counters."""

from collections.abc import Collection, Mapping
from typing import Any

from django.db.models import Q, QuerySet
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.activity import SYSTEM, Dimension, Group, Key
from msgplatform.core.flows.text import Text
from msgplatform.models import Biz
from msgplatform.monitor.subjects import Subject

_MAX_ID = 2**63 - 1


class BySystem(Dimension):
    """The business system to which a message belongs.

    `relation` is a foreign key of the flow to Biz: the admin looks names up by this key.
    """

    name = SYSTEM
    title = gettext_lazy("system")
    permission = "msgplatform.view_biz"

    def __init__(self, relation: str) -> None:
        self.relation = relation

    def keys_of(self, counter_keys: Collection[Key]) -> Mapping[Key, str]:
        return {counter: str(counter.biz) for counter in counter_keys if counter.biz}

    def named(self, keys: Collection[str]) -> Mapping[str, Group]:
        return named_rows(Biz.objects.all(), keys)

    def narrow(self, key: str) -> Q:
        return Q(biz_id=row_id(key, self.name))


class BySubject(Dimension):
    """The row whose id is the subject of a counter. With `sign` -1 the subject is minus the id."""

    names_subjects = True

    def __init__(
        self, subject: Subject, *, relation: str = "", sign: int = 1, is_apart: bool = False,
        uncounted_names: Collection[str] = (),
    ) -> None:  # fmt: skip
        self.name, self.title, self.permission = subject.name, subject.title, subject.permission
        self.relation, self.is_apart, self.uncounted = relation, is_apart, uncounted_names
        self._rows, self._sign = subject.rows, sign

    def keys_of(self, counter_keys: Collection[Key]) -> Mapping[Key, str]:
        return {
            counter: str(counter.subject * self._sign)
            for counter in counter_keys
            if counter.subject * self._sign > 0
        }

    def named(self, keys: Collection[str]) -> Mapping[str, Group]:
        return named_rows(self._rows(), keys)

    def narrow(self, key: str) -> Q:
        return Q(subject=row_id(key, self.name) * self._sign)

    def choices(self) -> list[tuple[str, Text]]:
        return [] if self.relation else [(str(row.pk), str(row)) for row in self._rows()]


def named_rows(rows: QuerySet[Any], keys: Collection[str]) -> Mapping[str, Group]:
    """The groups of these rows, by id as text, with their pages in the admin. Runs one
    statement."""
    if not keys:
        return {}
    page = f"admin:{rows.model._meta.app_label}_{rows.model._meta.model_name}_change"
    rows_by_id = rows.in_bulk([int(key) for key in keys])
    return {
        str(pk): Group(str(pk), str(row), reverse(page, args=[pk]))
        for pk, row in rows_by_id.items()
    }


def row_id(key: str, field: str) -> int:
    """The id in a group's key. Raises InvalidInput."""
    if not (key.isascii() and key.isdecimal()) or len(key) > 19 or int(key) > _MAX_ID:
        raise InvalidInput(_("There is no such choice."), field)
    return int(key)
