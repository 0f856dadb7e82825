"""Subjects: the rows at which a flow's messages fail, and by which its counters are grouped.

A flow declares its subject once, such as its subscriptions, gateways or CRMs. Failures, Statistics
and alerts take the subject's name, page and texts from there.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from django.db.models import QuerySet

from msgplatform.core.flows.health import Button, Failure, Runbook, Severity
from msgplatform.core.flows.text import Text, ViewLink
from msgplatform.core.lazy_text import lazy_message
from msgplatform.models import FailureGroup
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
            failure = as_failure(group, where=where, where_page=page, **details(group, row))
            failures.append(failure)
        return failures
