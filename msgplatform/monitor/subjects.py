"""Subjects: the rows at which a flow's messages fail, and by which its counters are grouped.

A flow declares its subject once, such as its subscriptions, gateways or CRMs. Failures, Statistics
and alerts take the subject's name, page and texts from there. Dimensions of the statistics that
several flows have: the business system, and the rows of a subject.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import msgspec
from django.db.models import Q, QuerySet
from django.urls import reverse
from django.utils.translation import gettext as _, gettext_lazy

from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.activity import SYSTEM, Dimension, Group, Key
from msgplatform.core.flows.health import Button, Failure, Runbook, Severity
from msgplatform.core.flows.messages import MAX_ID
from msgplatform.core.flows.text import Text, ViewLink
from msgplatform.core.lazy_text import lazy_message
from msgplatform.models import Biz, FailureGroup
from msgplatform.monitor.failure_groups import as_failure

# (group, row of its subject) → the fields of `Failure` that only the flow knows. The row is None if
# it was deleted.
Details = Callable[[FailureGroup, Any], Mapping[str, Any]]


class Subject(msgspec.Struct, frozen=True):
    """The rows of a model that are subjects of counters and failures.

    `name` is for addresses, filters and files. `rows` has the columns that the text of a row needs.
    Subjects of failures have two more texts, marked for translation: `deleted`, with %(id)d, for a
    deleted row, and `none` for the subject 0, if the flow counts under 0.
    """

    name: str
    title: Text
    rows: Callable[[], QuerySet[Any]]
    deleted: str = ""
    none: str = ""

    @property
    def view(self) -> str:
        """The URL name of the page of a row; its argument is the row's id."""
        meta = self.rows().model._meta
        return f"admin:{meta.app_label}_{meta.model_name}_change"

    @property
    def permission(self) -> str:
        """The permission to open the page of a row."""
        meta = self.rows().model._meta
        return f"{meta.app_label}.view_{meta.model_name}"

    def runbook(self, button: Button | None = None, severity: Severity = "warning") -> Runbook:
        """The runbook of alerts about one row. It leads to the row's page."""
        return Runbook(
            self.view, takes_subject=True, button=button, severity=severity, model=self.model
        )

    @property
    def model(self) -> str:
        """The model of the rows: notify.BizReceive."""
        return str(self.rows().model._meta.label)

    def failures(self, groups: Iterable[FailureGroup], details: Details) -> list[Failure]:
        """These groups as the page Failures shows them. Runs one statement, for the rows."""
        groups = list(groups)
        rows = self.rows().in_bulk({group.subject for group in groups})
        failures = []
        for group in groups:
            row, page = rows.get(group.subject), None
            where: Text
            if row is not None:
                where, page = str(row), ViewLink(self.view, (row.pk,))
            elif group.subject or not self.none:
                where = lazy_message(self.deleted, id=group.subject)
            else:
                where = lazy_message(self.none)
            failures.append(as_failure(group, where=where, where_page=page, **details(group, row)))
        return failures


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
        return {key: str(key.biz) for key in counter_keys if key.biz}

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
            key: str(key.subject * self._sign)
            for key in counter_keys
            if key.subject * self._sign > 0
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
    if not (key.isascii() and key.isdecimal()) or len(key) > 19 or int(key) > MAX_ID:
        raise InvalidInput(_("There is no such choice."), field)
    return int(key)
