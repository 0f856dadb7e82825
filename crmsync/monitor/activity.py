"""The counters of CRM sync and their meaning, for the overview and the statistics.

The subject of a counter is its policy, which belongs to a CRM and to a source.
"""

from collections.abc import Collection, Mapping

from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from crmsync.models import Policy, Source
from crmsync.monitor import counters
from crmsync.monitor.failures import CRM
from msgplatform.core.flows.activity import Activity, Counts, Dimension, Figure, Group, Key, Measure
from msgplatform.monitor.failure_groups import answer_title
from msgplatform.monitor.subjects import Subject, named_rows, row_id

# Every class of error that a try can end with, see `adapters.outcomes`.
ERRORS = ("retry", "throttled", "invalid", "conflict", "auth", "unknown", "refused", "fault")
# The database's URL is encrypted; names do not need it.
_SOURCE = Subject("source", _("source"), lambda: Source.objects.only("name"))
_FAILED = {counters.failed(error): error for error in ERRORS}


class _OfPolicy(Dimension):
    """The CRM or source of the policy to which a counter belongs; `name` is a field of Policy."""

    names_subjects = True

    def __init__(self, subject: Subject) -> None:
        self.name, self.title, self.permission = subject.name, subject.title, subject.permission
        self.relation, self._rows = f"crmsync.Policy.{subject.name}", subject.rows

    def keys_of(self, counter_keys: Collection[Key]) -> Mapping[Key, str]:
        policies = {key.subject for key in counter_keys}
        rows = Policy.objects.filter(pk__in=policies)
        owners = dict(rows.values_list("pk", f"{self.name}_id"))
        return {key: str(owners[key.subject]) for key in counter_keys if key.subject in owners}

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
        Measure("dead", _("dead"), (counters.DEAD,), "lost"),
        Measure("calls", _("calls"), (counters.CALLS,)),
    ),
    dimensions=(_OfPolicy(CRM), _OfPolicy(_SOURCE)),
    figures=(
        Figure(
            "call_seconds", _("a call, on average"), (counters.CALLS, counters.CALL_MS),
            _seconds_a_call,
        ),
    ),
    answer=lambda name: answer_title(_FAILED.get(name, "")),
    note=_(
        "Counts are of records: a row of a source at one CRM. A record that was read and had not "
        "changed makes no call."
    ),
)  # fmt: skip
