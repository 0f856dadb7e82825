"""Carries out erasures, slice by slice, each in one process at a time; part of `run_bulk`. Keeps
the list of erasures outside of the database equal to the table, and raises the alerts about an
erasure that fails or waits for days, and about a list that cannot be written.

A pass goes over all stores. The last pass is the one that finds nothing: data that a resend, a
replay, the archiver or a pump moved during an earlier pass is found by the next. While data of the
person is still on its way the erasure waits, and then begins a new pass.
"""

import socket
import time
from contextlib import suppress
from datetime import timedelta
from itertools import chain
from typing import Any

from django.db import DatabaseError, InterfaceError, OperationalError, transaction
from django.db.models import Count, Max, Q, QuerySet
from django.db.models.functions import Now
from django.utils.translation import gettext_noop as _

from msgplatform.company.person_data import erasure_list, erasures
from msgplatform.company.person_data.models import Erasure
from msgplatform.company.person_data.people import all_stores, hashes, kept_person
from msgplatform.core import alerts, logging
from msgplatform.core.alerts import AlertEvent, Condition
from msgplatform.core.connections import RedisError
from msgplatform.core.daemons.thread_loop import ThreadLoop
from msgplatform.core.daemons.timer import Every
from msgplatform.core.data import chunks, claims, sql
from msgplatform.core.durations import lazy_age
from msgplatform.core.errors import UNAVAILABLE, InvalidInput, Unavailable
from msgplatform.jobs.upkeep import Upkeep
from msgplatform.models import Alert, AuditLog
from msgplatform.monitor.watch import ERASURE, key

log = logging.get(__name__)

LIST_EVERY_SECONDS = 60.0
LEASE_SECONDS = 120.0  # a slice takes a second or two
MAX_WAIT_SECONDS = 600.0
# A text waits up to 72 hours for its Report; a delivery's attempts take up to 91 by the default
# schedule.
PATIENCE = timedelta(days=5)
_QUICK_PASSES = 5
_TURN_SECONDS = 1.0  # bulk jobs wait meanwhile
_MAX_CONDITIONS = 100
# A process that cannot write its list reports that each minute. A process without a report for
# longer is gone, and in a container the name of its host is gone too.
_LIST_GONE = timedelta(minutes=10)
_LIST = key(ERASURE, "list")
_State = Erasure.State


def report_alerts() -> None:
    """Raise or resolve the alert of each erasure."""
    rows = Erasure.objects.filter(state__in=Erasure.OPEN).order_by("id")[:_MAX_CONDITIONS]
    now = sql.now()
    conditions = []
    for row in rows:
        wait = now - (row.repeated_at or row.created_at)
        if row.error and row.state == _State.WAITING:
            condition = Condition.of(
                key(ERASURE, row.key),
                _("An erasure of one person's data fails"),
                _(
                    "%(error)s in %(store)s. It is tried again each minute; the entry "
                    "erasure_failed in the log of run_bulk has more."
                ),
                error=row.error,
                store=row.store or "–",
            )
        elif wait > PATIENCE:
            condition = Condition.of(
                key(ERASURE, row.key),
                _("An erasure of one person's data waits"),
                _("It was asked for %(age)s ago. On their way: %(open)s."),
                age=lazy_age(wait.total_seconds()),
                open=", ".join(f"{name} {count}" for name, count in row.open.items()) or "–",
            )
        else:
            continue
        conditions.append(condition)
    # Erasures that are tried again may work or wait for a server. Machines with a recent report
    # about their list decide about its alert themselves.
    undecided_keys = {
        key(ERASURE, row.key) for row in rows if row.error and row.state == _State.RUNNING
    }
    lists = Alert.objects.filter(open_key__startswith=_LIST, last_at__gte=now - _LIST_GONE)
    undecided_keys |= {
        open_key for open_key in lists.values_list("open_key", flat=True) if open_key
    }
    alerts.reconcile([ERASURE], conditions, undecided_keys.__contains__)


def raise_for_list(error: OSError) -> None:
    """Raise the alert that this machine's list cannot be written."""
    event = AlertEvent.of(
        _list_key(),
        _("The list of erasures on %(host)s cannot be written"),
        _(
            "%(file)s: %(why)s. Nothing repeats the erasures that it lacks after the database is "
            "restored, and no erasure can be asked for on this machine."
        ),
        host=socket.gethostname(),
        file=str(erasure_list.path()),
        why=error.strerror or type(error).__name__,
    )
    alerts.raise_event(event)


def _list_key() -> str:
    return f"{_LIST}-{socket.gethostname()}"


class ListKeeper:
    """Keeps the list of this machine. `run_bulk` does so, and each web process of a machine that
    has the list: erasures that are asked for there are in it."""

    def __init__(self) -> None:
        self._has_alert = True  # an earlier process may have raised it
        self._state: object = None  # of the file and the table before the last look

    def keep(self) -> None:
        """Read what only the file has, write what only the table has, and forget identifiers that
        were kept long enough. Without a change only the state is read, and once an hour all.

        Ends the alert about the list if this process may have raised it: another process of the
        machine may be unable to write.
        """
        try:
            state = (int(time.time() // 3600), erasure_list.version(), _table_state())
            if state == self._state:
                return
            _equalise()
        except OSError as error:
            raise_for_list(error)
            self._has_alert, self._state = True, None
            return
        self._state = state
        if self._has_alert:
            alerts.resolve(_list_key(), comes_again=True)
            self._has_alert = False


def _table_state() -> dict[str, Any]:
    """Values that differ after a change of the table that concerns the list."""
    return Erasure.objects.aggregate(
        Count("id"), Max("id"), Max("finished_at"), Max("repeated_at"),
        open=Count("id", filter=Q(state__in=Erasure.OPEN)),
        cancelled=Count("id", filter=Q(state=_State.CANCELLED)),
        old=Count("id", filter=Q(created_at__lt=erasures.kept_since())),
    )  # fmt: skip


def _equalise() -> None:
    """Make the list equal to the table. Raises OSError."""
    if erasure_list.has_file():
        erasure_list.read_into_database()
    since = erasures.kept_since()
    ended_queryset = Erasure.objects.exclude(state__in=Erasure.OPEN)
    old_rows = [row for row in ended_queryset.filter(created_at__lt=since) if row.identifiers]
    recent_rows = list(Erasure.objects.filter(created_at__gte=since))
    kept_rows = [row for row in recent_rows if row.identifiers]
    # Cancelled erasures have no identifiers.
    cancelled_keys = {row.key for row in recent_rows if row.state == _State.CANCELLED}
    # Another machine may have removed their identifiers from the table and its own file.
    keys = erasure_list.keys() if erasure_list.has_file() else ()
    listed_rows = chain.from_iterable(
        Erasure.objects.filter(key__in=page) for page in chunks(list(keys), erasure_list.CHUNK)
    )
    ended_keys = {row.key for row in listed_rows if not row.identifiers} - cancelled_keys
    removed_keys = ended_keys | {row.key for row in old_rows}
    if kept_rows or cancelled_keys or removed_keys:
        erasure_list.synchronise(kept_rows, cancelled_keys, removed_keys)
    for row in old_rows:
        row.identifiers = {}
        row.save(update_fields=["identifiers"])


def keep_in_thread() -> None:
    """Keep the list of this machine, if it has one, for as long as the process lives."""
    keeper = ListKeeper()

    def turn() -> None:
        if erasure_list.has_file():
            keeper.keep()

    ThreadLoop("erasure-list", turn, every=LIST_EVERY_SECONDS).start()


class ErasureRunner(Upkeep):
    """A turn takes a slice of one erasure."""

    def __init__(self) -> None:
        self._next_list = Every(LIST_EVERY_SECONDS)
        self._list = ListKeeper()

    def turn(self) -> bool:
        """True if there was an erasure to work on."""
        if self._next_list.take():
            self._list.keep()
            report_alerts()
        open_rows = Erasure.objects.filter(state__in=Erasure.OPEN)
        claim = claims.claim(
            open_rows.order_by("lease_until", "id"), limit=1, lease=LEASE_SECONDS,
            changes={"state": _State.RUNNING},
        )  # fmt: skip
        if not claim.ids:
            return False
        row = Erasure.objects.get(pk=claim.ids[0])
        until = time.monotonic() + _TURN_SECONDS
        try:
            # Do slices until one finds data of the person, a pass ends, or a second is over.
            while True:
                change = _slice(row)
                has_met = change["found"] > row.found
                if has_met or "passes" in change or time.monotonic() > until:
                    break
                for name, value in change.items():
                    setattr(row, name, value)
            is_done = change.get("state") == _State.DONE
            person, stores = kept_person(row), all_stores() if is_done else ()
            unconfirmed_names = [name for store in stores for name in store.unconfirmed(person)]
            with transaction.atomic():  # no proof of an erasure that was cancelled meanwhile
                values = {"lease_until": Now(), **change}
                if _row_of_claim(row).update(**values, claimed_by="") and is_done:
                    AuditLog.record(
                        "run_bulk", "erasure_done", row.audit_target,
                        erased=change["erased"], hashes=list(row.hashes), passes=change["passes"],
                        unconfirmed=unconfirmed_names,
                    )  # fmt: skip
        except (*UNAVAILABLE, RedisError) as error:
            # The erasure is tried again when the lease is over. Meanwhile its page shows the error.
            with suppress(DatabaseError):
                _row_of_claim(row).update(error=type(error).__name__)
                if isinstance(error, OperationalError | InterfaceError):
                    # The main database answers. The error is of an archive on another server, for
                    # which bulk jobs do not wait.
                    raise Unavailable(str(error)) from error
            raise
        except Exception as error:
            # Only this erasure waits: a person has to look at the error.
            log.exception("erasure_failed", erasure=row.key, store=row.store)
            wait = {"state": _State.WAITING, "lease_until": Now() + timedelta(seconds=60)}
            name = type(error).__name__
            # Other errors may have the person's data in their texts.
            reason = f"{name} ({error})" if isinstance(error, InvalidInput) else name
            _row_of_claim(row).update(**wait, claimed_by="", error=reason[:500])
        return True


def _slice(row: Erasure) -> dict[str, Any]:
    """Do the next slice of the erasure's present store. Returns the new values of its columns."""
    person, stores = kept_person(row), all_stores()
    position = next((n for n, store in enumerate(stores) if store.name == row.store), 0)
    store = stores[position]
    part = store.find(person, row.cursor if store.name == row.store else "")
    if ids := {lead for record in part.rows for lead in record.leads} - person.leads:
        # These ids find the person's data when the leads themselves are erased.
        leads = sorted({*row.identifiers.get("leads", ()), *map(str, ids)})
        row.identifiers = {**row.identifiers, "leads": leads}
        row.hashes = hashes(row.identifiers)
        _row_of_claim(row).update(identifiers=row.identifiers, hashes=row.hashes)
    open_rows = [record for record in part.rows if record.is_open]
    ended_rows = [record for record in part.rows if not record.is_open]
    count = store.erase(person, ended_rows) if ended_rows else 0
    if open_rows:
        store.prepare(person, open_rows)
    if open_rows and row.ends_open:
        store.end(person, open_rows)
    # Add to the numbers of earlier slices of the same pass. Before its first slice, a pass shows
    # the numbers of the pass before.
    erased_counts = {**row.erased, store.name: row.erased.get(store.name, 0) + count}
    open_counts = {**row.open} if row.store else {}
    open_counts[store.name] = open_counts.get(store.name, 0) + len(open_rows)
    change: dict[str, Any] = {
        "erased": {name: n for name, n in erased_counts.items() if n},
        "open": {name: n for name, n in open_counts.items() if n},
        "found": row.found + len(part.rows), "cursor": part.cursor, "store": store.name,
        "error": "",
    }  # fmt: skip
    if part.cursor:
        return change
    if position + 1 < len(stores):
        return {**change, "store": stores[position + 1].name}
    # The last slice of a pass.
    row_count = change["found"]
    change |= {"store": "", "cursor": "", "found": 0, "passes": row.passes + 1}
    if not row_count:
        return {**change, "state": _State.DONE, "finished_at": sql.now(), "open": {}}
    # Begin again at once to see that no data is left; later if something cannot be erased yet.
    if not change["open"] and row.passes < _QUICK_PASSES:
        return change
    seconds = min(MAX_WAIT_SECONDS, 2.0 * (row.passes + 1))
    lease_until = Now() + timedelta(seconds=seconds)
    return {**change, "state": _State.WAITING, "lease_until": lease_until}


def _row_of_claim(row: Erasure) -> QuerySet[Erasure]:
    """The erasure's row while this process holds it, unless it was cancelled meanwhile."""
    return Erasure.objects.filter(pk=row.pk, claimed_by=row.claimed_by, state=_State.RUNNING)
