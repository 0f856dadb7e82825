"""Carries out erasures, slice by slice, each in one process at a time; part of `run_bulk`.

A pass goes over all stores. The last pass is the one that finds nothing: data that a resend, a
replay, the archiver or a pump moved during an earlier pass is found by the next. While data of the
person is still on its way the erasure waits, and then begins a new pass.
"""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import timedelta
from typing import Any

from django.db import DatabaseError
from django.db.models import QuerySet
from django.db.models.functions import Now

from msgplatform.company.person_data import erasure_alert, erasures
from msgplatform.company.person_data.list_keeping import LIST_EVERY_SECONDS, ListKeeper
from msgplatform.company.person_data.models import Erasure
from msgplatform.company.person_data.people import hashes, kept_person
from msgplatform.company.person_data.stores import all_stores
from msgplatform.core import logging
from msgplatform.core.connections import RedisError
from msgplatform.core.daemons.timer import Every
from msgplatform.core.data import claims, sql
from msgplatform.core.errors import UNAVAILABLE
from msgplatform.jobs.upkeep import Upkeep

log = logging.get(__name__)

LEASE_SECONDS = 120.0  # a slice takes a second or two
_QUICK_PASSES = 5
_TURN_SECONDS = 1.0  # seconds; bulk jobs wait meanwhile
MAX_WAIT_SECONDS = 600.0
_State = Erasure.State


class ErasureRunner(Upkeep):
    """A turn takes a slice of one erasure."""

    def __init__(self) -> None:
        self._next_list, self._keeper = Every(LIST_EVERY_SECONDS), ListKeeper()

    def turn(self) -> bool:
        """True if there was an erasure to work on."""
        if self._next_list.take():
            self._keeper.keep()
            erasure_alert.report()
        open_rows = Erasure.objects.filter(state__in=Erasure.OPEN)
        if not open_rows.exists():  # check first: a claim would write
            return False
        claim = claims.claim(
            open_rows.order_by("lease_until", "id"), limit=1, lease=LEASE_SECONDS,
            set={"state": _State.RUNNING},
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
            _row_of_claim(row).update(**{"lease_until": Now(), **change}, claimed_by="")
        except (*UNAVAILABLE, RedisError) as error:
            # The erasure is tried again when the lease is over. Meanwhile its page shows the error.
            with suppress(DatabaseError):
                _row_of_claim(row).update(error=type(error).__name__)
            raise
        except Exception as error:
            # Only this erasure waits: a person has to look at the error.
            log.exception("erasure_failed", erasure=row.key, store=row.store)
            wait = {"state": _State.WAITING, "lease_until": Now() + timedelta(seconds=60)}
            _row_of_claim(row).update(**wait, claimed_by="", error=type(error).__name__)
        return True


def _slice(row: Erasure) -> dict[str, Any]:
    """Do the next slice of the erasure's present store. Returns the new values of its columns."""
    person, stores = kept_person(row.identifiers), all_stores()
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
    erased = {**row.erased, store.name: row.erased.get(store.name, 0) + count}
    met = {**row.open} if row.store else {}
    met[store.name] = met.get(store.name, 0) + len(open_rows)
    change: dict[str, Any] = {
        "erased": {name: n for name, n in erased.items() if n},
        "open": {name: n for name, n in met.items() if n},
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
        person = kept_person(row.identifiers)
        detail = {
            "erased": change["erased"], "hashes": list(row.hashes), "passes": row.passes + 1,
            "unconfirmed": [name for store in stores for name in store.unconfirmed(person)],
        }  # fmt: skip
        erasures.audit("run_bulk", "erasure_done", row.audit_target, detail)
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
