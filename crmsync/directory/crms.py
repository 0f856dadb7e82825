"""CRMs in the memory of a process."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
from django.utils.translation import gettext_noop as _

from crmsync import models
from crmsync.adapters.base import CRMAdapter
from crmsync.adapters.registry import open_adapter
from msgplatform.core import alerts, outbound
from msgplatform.core.daemons.snapshot import Rows, Snapshot
from msgplatform.core.lazy_text import lazy_message

UNUSABLE = "crm.unusable"


@dataclass(frozen=True, slots=True)
class Crm:
    """A CRM as it is set up. `fingerprint` changes with whatever its adapter is made of.

    `waits` are the seconds before another try after each failure; after one failure more the
    record is dead.
    """

    id: int
    name: str
    adapter: str
    settings: Mapping[str, Any]
    credentials: Mapping[str, Any] = field(repr=False)
    concurrency: int
    waits: Sequence[float]
    enabled: bool
    paused: bool
    fingerprint: str

    @property
    def takes_work(self) -> bool:
        """True if records go to it, and sources are read for it."""
        return self.enabled and not self.paused and not outbound.is_off()

    def open(self) -> CRMAdapter:
        """An adapter for one thread. Raises InvalidInput."""
        return open_adapter(self.adapter, self.settings, self.credentials)


class Crms(Snapshot[Mapping[int, Crm]]):
    """Every CRM by id; one whose settings cannot be used is left out, with an alert."""

    def __init__(self) -> None:
        super().__init__({})
        self._rows = Rows(partial(from_row, opened=set()), UNUSABLE, _unusable)

    def load(self) -> Mapping[int, Crm]:
        return self._rows.usable(models.Crm.objects.order_by("id"))

    def get(self, crm_id: int) -> Crm | None:
        return self.known.get(crm_id)


def from_row(row: models.Crm, opened: set[str] | None = None) -> Crm:
    """Raises InvalidInput for settings that its adapter does not take, Undecryptable.

    `opened` has the fingerprints that were tried already: opening an adapter may start threads.
    """
    made_of = fingerprint(row)
    # Tried here, so that wrong settings become an alert and no lane has to fail.
    if opened is None or made_of not in opened:
        open_adapter(row.adapter, row.settings, row.credentials).close()
    if opened is not None:
        opened.add(made_of)
    return Crm(
        id=row.pk,
        name=row.name,
        adapter=row.adapter,
        settings=row.settings,
        credentials=row.credentials,
        concurrency=row.concurrency,
        waits=tuple(float(wait) for wait in row.retry_seconds),
        enabled=row.enabled,
        paused=row.paused_at is not None,
        fingerprint=made_of,
    )


def fingerprint(row: models.Crm) -> str:
    """Changes with whatever a CRM's adapter is made of. Raises Undecryptable."""
    # A hash, since the credentials are in it; sorted, since JSON objects have no order.
    made_of = msgspec.json.encode([row.adapter, row.settings, row.credentials], order="sorted")
    return hashlib.sha256(made_of).hexdigest()


def _unusable(row: models.Crm, error: Exception) -> alerts.Condition:
    return alerts.Condition(
        f"{UNUSABLE}:{row.pk}",
        lazy_message(_("The CRM %(name)s cannot be used"), name=str(row)),
        lazy_message(_("%(error)s Correct it in the console; its records wait."), error=str(error)),
    )
