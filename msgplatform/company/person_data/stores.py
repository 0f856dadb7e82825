"""All stores with data of people: those of the flows, and the platform's own."""

from collections.abc import Iterable, Sequence
from typing import Any

from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from msgplatform.core import features, flows
from msgplatform.core.connections import work_redis
from msgplatform.core.person.identity import Person
from msgplatform.core.person.stores import PersonStore, Row, Slice, find_keys, text_store
from msgplatform.jobs.models import BulkJob
from msgplatform.models import Acknowledgement, Alert, AuditLog, FailureGroup, SavedFilter

_ENDED = Q(state__in=[BulkJob.State.DONE, BulkJob.State.CANCELLED, BulkJob.State.FAILED])


def all_stores() -> list[PersonStore]:
    """All stores in the order of their erasure: a flow comes after the flows that publish through
    it. The platform's texts and Redis come last, because all flows write to them."""
    of_flows = [store for flow in reversed(flows.all()) for store in flow.person_stores()]
    return [
        *of_flows,
        text_store("alerts", _("alerts"), Alert, ("subject", "text", "said", "note")),
        *features.gather("person_stores", "stores"),
        text_store("failures", _("failures"), FailureGroup, ("said",)),
        text_store("acknowledgements", _("acknowledgements"), Acknowledgement, ("note", "place")),
        text_store("audit", _("audit log"), AuditLog, ("target", "detail")),
        # Jobs that still need their filters keep them.
        text_store("jobs", _("bulk jobs"), BulkJob, ("filter", "error"), _ENDED),
        text_store("filters", _("saved filters"), SavedFilter, ("name", "query")),
        PersonStore("redis", _("orders in Redis"), _find_keys, _erase_keys),
    ]


# -- the work Redis ------------------------------------------------------------------------------
def _find_keys(person: Person, cursor: str) -> Slice:
    """The orders of all flows, which end by themselves, and keys of sandboxes and the cache."""
    stores = (store for flow in flows.all() for store in flow.person_stores())
    prefixes = tuple(store.redis_prefix for store in stores if store.redis_prefix)
    return find_keys(
        work_redis(), person, cursor,
        lambda key: key.startswith(prefixes),
        lambda key: not key.startswith(("sandbox:", "cache:")),
    )  # fmt: skip


def _erase_keys(person: Person, rows: Sequence[Row]) -> int:
    """Remove the entries with the person's data from lists and hashes. Other keys are deleted."""
    client: Any = work_redis()
    count = 0
    for key in (row.key for row in rows):
        kind = client.type(key)
        if kind == b"list":
            entries = _entries_of(person, client.lrange(key, 0, -1))
            count += sum(client.lrem(key, 0, item) for item in entries)
        elif kind == b"hash":
            fields = client.hgetall(key)
            names = [name for name, value in fields.items() if _entries_of(person, (name, value))]
            count += client.hdel(key, *names) if names else 0
        else:
            count += client.delete(key)
    return count


def _entries_of(person: Person, values: Iterable[bytes]) -> list[bytes]:
    return [value for value in values if person.is_in_bytes(value)]
