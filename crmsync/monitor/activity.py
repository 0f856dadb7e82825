"""The counters of CRM sync and their meaning, for the overview and the statistics.

The subject of a counter is its policy, which belongs to a CRM and to a source.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from django.db.models import Q, QuerySet
from django.utils.translation import gettext_lazy as _

from crmsync.models import Crm, Policy, Source
from crmsync.monitor import counters
from msgplatform.core.flows import Activity, Dimension, Figure, Group, Key, Measure
from msgplatform.core.flows.activity import Counts
from msgplatform.core.flows.text import Text
from msgplatform.monitor.statistics.dimensions import named_rows, row_id

# Every class of error that a try can end with, see `adapters.outcomes`.
ERRORS = ("retry", "throttled", "invalid", "conflict", "auth", "unknown", "refused", "fault")
_FAILED = {counters.failed(error): error for error in ERRORS}


class _OfPolicy(Dimension):
    """The CRM or source to which the policy of a counter belongs: `name` is a field of Policy."""

    names_subjects = True

    def __init__(self, name: str, title: Text, rows: Callable[[], QuerySet[Any]]) -> None:
        self.name, self.title, self._rows = name, title, rows
        self.relation, self.permission = f"crmsync.Policy.{name}", f"crmsync.view_{name}"

    def keys_of(self, counters: Collection[Key]) -> Mapping[Key, str]:
        policies = {counter.subject for counter in counters}
        rows = Policy.objects.filter(pk__in=policies)
        of = dict(rows.values_list("pk", f"{self.name}_id"))
        return {counter: str(of[counter.subject]) for counter in counters if counter.subject in of}

    def named(self, keys: Collection[str]) -> Mapping[str, Group]:
        return named_rows(self._rows(), keys)

    def narrow(self, key: str) -> Q:
        policies = Policy.objects.filter(**{f"{self.name}_id": row_id(key, self.name)})
        return Q(subject__in=list(policies.values_list("pk", flat=True)))


def _seconds_a_call(counts: Counts) -> float | None:
    calls = counts.get(counters.CALLS, 0)
    return counts.get(counters.CALL_MS, 0) / calls / 1000 if calls else None


ACTIVITY = Activity(
    counters=counters.FLOW,
    measures=(
        Measure("read", _("read"), (counters.READ,), "accepted"),
        Measure("unchanged", _("unchanged"), (counters.UNCHANGED,)),
        Measure("confirmed", _("confirmed"), (counters.CONFIRMED,), "good"),
        Measure("failed_tries", _("failed tries"), tuple(_FAILED), "bad"),
        Measure("dead", _("given up (dead)"), (counters.DEAD,), "lost"),
        Measure("calls", _("calls"), (counters.CALLS,)),
    ),
    dimensions=(
        _OfPolicy("crm", _("CRM"), lambda: Crm.objects.only("name")),
        # The database's URL is encrypted, and not needed for names.
        _OfPolicy("source", _("source"), lambda: Source.objects.only("name")),
    ),
    figures=(
        Figure(
            "call_seconds", _("a call, on average"), (counters.CALLS, counters.CALL_MS),
            _seconds_a_call,
        ),
    ),
    answer=lambda name: _FAILED.get(name, ""),
    note=_(
        "Counts are of records: a row of a source at one CRM. A record that was read and had not "
        "changed makes no call."
    ),
)  # fmt: skip
