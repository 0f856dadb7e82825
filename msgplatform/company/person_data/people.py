"""A person, made from identifiers; all stores with data of people; the data that they hold of a
person, found and exported without a change."""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import Q
from django.utils.crypto import salted_hmac
from django.utils.translation import gettext, gettext_lazy as _

from msgplatform.company.person_data.models import Erasure
from msgplatform.core import features, flows
from msgplatform.core.connections import work_redis
from msgplatform.core.data import sql
from msgplatform.core.errors import UNAVAILABLE, InvalidInput, NotNow
from msgplatform.core.flows.contract import Flow
from msgplatform.core.json.values import map_leaves
from msgplatform.core.person import identity
from msgplatform.core.person.identity import Person
from msgplatform.core.person.stores import (
    PersonStore,
    Row,
    Slice,
    TextTable,
    all_slices,
    find_keys,
    text_store,
)
from msgplatform.jobs import control
from msgplatform.jobs.models import BulkJob
from msgplatform.models import Acknowledgement, Alert, AuditLog, Biz, FailureGroup, SavedFilter

SAMPLE = 3
# Seconds. A person waits for the page, and tables with many millions of messages take longer.
PREVIEW_SECONDS = 20.0
_SALT = "msgplatform.company.person_data"
# The name, in an erasure's identifiers, of the id of each user's business system.
SYSTEMS_OF_USERS = "systems_of_users"
# Jobs that still need their filters keep them.
_jobs = TextTable(
    BulkJob, ("filter", "error"),
    open_condition=Q(state__in=BulkJob.FROM[BulkJob.State.CANCELLED]),
)  # fmt: skip


def person_of(identifiers: Mapping[str, Iterable[str]]) -> Person:
    """The person with these identifiers (kind → texts). Raises InvalidInput, naming the kind."""
    clean_identifiers = identity.clean(identifiers)
    systems = systems_of(clean_identifiers.get("users", ()))
    return person_in(clean_identifiers, systems)


def kept_person(row: Erasure) -> Person:
    """The person of an erasure. Raises InvalidInput for a user of an unknown business system."""
    users = row.identifiers.get("users", ())
    # The ids of systems decide: a system may be renamed, and its name be given to another one. A
    # restored database may lack a system, or have given its id to another one: then its name does.
    first_systems: Mapping[str, int] = row.identifiers.get(SYSTEMS_OF_USERS, {})
    known_systems = Biz.objects.filter(
        id__in=first_systems.values(), created_at__lte=row.created_at
    )
    known_ids = set(known_systems.values_list("id", flat=True))
    systems = {user: biz for user, biz in first_systems.items() if biz in known_ids}
    systems |= systems_of(user for user in users if user not in systems)
    return person_in(row.identifiers, systems)


def systems_of(users: Iterable[str]) -> dict[str, int]:
    """User (system/id) → id of the system that has the name now. Raises InvalidInput."""
    names = {user: user.partition("/")[0] for user in users}
    rows = Biz.objects.filter(name__in=set(names.values()))
    ids = dict(rows.values_list("name", "id"))
    if unknown_names := sorted(set(names.values()) - ids.keys()):
        words = gettext("There is no business system %s.") % unknown_names[0][:64]
        raise InvalidInput(words, "users")
    return {user: ids[name] for user, name in names.items()}


def person_in(identifiers: Mapping[str, Sequence[str]], systems: Mapping[str, int]) -> Person:
    """The person with these clean identifiers, a user in the system that `systems_of` has."""
    return Person(
        phones=frozenset(identifiers.get("phones", ())),
        emails=frozenset(identifiers.get("emails", ())),
        users=frozenset((biz, user.partition("/")[2]) for user, biz in systems.items()),
        leads=frozenset(int(lead) for lead in identifiers.get("leads", ())),
        identifiers=identifiers,
    )


def record(actor: str, action: str, person: Person) -> None:
    """Store in the audit log that somebody has looked at a person's data."""
    AuditLog.record(actor, action, "person data", hashes=hashes(person.identifiers))


def hashes(identifiers: Mapping[str, Sequence[str]]) -> list[str]:
    """A hash of each identifier, keyed by SECRET_KEY: only with the key can anybody test whether an
    identifier is the one."""
    return [
        f"{kind[:-1]}:{salted_hmac(_SALT, f'{kind}:{value}', algorithm='sha256').hexdigest()}"
        for kind in identity.KINDS
        for value in identifiers.get(kind, ())
    ]


def all_stores() -> list[PersonStore]:
    """All stores in the order of their erasure: a flow comes after the flows that publish through
    it. The platform's texts and Redis come last, because all flows write to them."""
    of_flows = [store for flow in reversed(flows.all()) for store in flow.person_stores()]
    return [
        *of_flows,
        text_store("alerts", _("alerts"), Alert, ("subject", "text", "said", "note")),
        *features.gather("models", "person_stores"),
        text_store("failures", _("failures"), FailureGroup, ("said",)),
        text_store("acknowledgements", _("acknowledgements"), Acknowledgement, ("note", "place")),
        text_store("audit", _("audit log"), AuditLog, ("target", "detail")),
        PersonStore("jobs", _("bulk jobs"), _jobs.find, _jobs.erase, _cancel_jobs),
        text_store("filters", _("saved filters"), SavedFilter, ("name", "query"),
                   unique_column="name"),
        PersonStore("redis", _("orders in Redis"), _find_keys, _erase_keys),
    ]  # fmt: skip


def _cancel_jobs(_person: Person, rows: Sequence[Row]) -> int:
    for row in rows:
        with suppress(NotNow):  # it has ended meanwhile
            control.change(int(row.key), BulkJob.State.CANCELLED, "run_bulk")
    return len(rows)


def flow_of(store: PersonStore) -> Flow | None:
    """The flow of a store; None for a store of the platform."""
    name, dot, _name = store.name.partition(".")
    return flows.get(name) if dot else None


# -- find and export -----------------------------------------------------------------------------
class Hits(msgspec.Struct, frozen=True):
    """The rows of a person in one store: their number, the number on their way, and some rows.

    `is_whole` is False if the time ended first, or if the store could not be read.
    """

    store: PersonStore
    count: int = 0
    open_count: int = 0
    sample: tuple[Row, ...] = ()
    is_whole: bool = True


def preview(person: Person, seconds: float = PREVIEW_SECONDS) -> list[Hits]:
    """The content of each store that holds something, counted for at most so many seconds."""
    until = time.monotonic() + seconds
    hits = []
    for store in all_stores():
        count, open_count, sample, is_whole = 0, 0, list[Row](), False
        with suppress(*UNAVAILABLE):
            for part in all_slices(store, person):
                count += len(part.rows)
                open_count += sum(row.is_open for row in part.rows)
                sample += part.rows[: SAMPLE - len(sample)]
                is_whole = not part.cursor
                if time.monotonic() > until:
                    break
        if count or not is_whole:
            hits.append(Hits(store, count, open_count, tuple(sample), is_whole))
    return hits


def export(person: Person) -> Iterator[bytes]:
    """One JSON document in pieces: who was asked for, and by store everything that is held.

    A row that moves meanwhile, such as to an archive, may be in it twice. Each slice is at least
    one piece: a store may be read for minutes without a row of the person.
    """
    head = {"exported_at": sql.now(), "person": dict(person.identifiers)}
    yield _dump(head)[:-1] + b', "data": {'
    for number, store in enumerate(all_stores()):
        yield (b", " if number else b"") + _dump(store.name) + b": ["
        separator = b"\n"
        for part in all_slices(store, person):
            for row in part.rows:
                # JavaScript rounds numbers beyond 2^53, such as ids.
                data = map_leaves(row.data, int, lambda n: str(n) if abs(n) > 2**53 else n)
                yield separator + _dump(data)
                separator = b",\n"
            yield b" "
        yield b"]"
    yield b"}}\n"


def _dump(value: Any) -> bytes:
    return json.dumps(value, cls=DjangoJSONEncoder, ensure_ascii=False).encode()


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
