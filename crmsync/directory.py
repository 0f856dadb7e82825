"""The objects that people set up, cached in a process: landing pages, CRMs, policies."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from django.utils.translation import gettext, gettext_noop as _

from crmsync import models
from crmsync.adapters.base import CRMAdapter
from crmsync.adapters.registry import open_adapter
from crmsync.policies import mapping
from msgplatform.core import outbound
from msgplatform.core.daemons.snapshot import Rows, Snapshot
from msgplatform.core.errors import InvalidInput

UNUSABLE_CRM = "crm.unusable"
UNUSABLE_POLICY = "crm.policy"


# -- landing pages -------------------------------------------------------------------------------
def page(appkey: str) -> models.LandingPage | None:
    """The landing page with this APPKEY; None when the page does not exist, or when it or its
    business system is switched off."""
    rows = models.LandingPage.objects.filter(appkey=appkey, enabled=True, biz__enabled=True)
    return rows.first()


class Origins(Snapshot[frozenset[str]]):
    """The origins that any landing page allows, because a preflight request names no APPKEY."""

    def __init__(self) -> None:
        super().__init__(frozenset())

    def load(self) -> frozenset[str]:
        pages = models.LandingPage.objects.filter(enabled=True, biz__enabled=True)
        rows = pages.exclude(allowed_origins=[]).values_list("allowed_origins", flat=True)
        return frozenset(origin for row in rows for origin in row)

    def allow(self, origin: str) -> bool:
        """True if a page allows the origin, as of a moment ago."""
        self.refresh()
        return origin in self.known


origins = Origins()


# -- CRMs ----------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Crm:
    """A CRM as it is set up. `fingerprint` changes whenever its adapter has to be opened anew.

    `waits` are the seconds before the next attempt after each failure; one failure more makes the
    record dead.
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
        """True if records go to the CRM, and sources are read for it."""
        return self.enabled and not self.paused and not outbound.is_off()

    def open(self) -> CRMAdapter:
        """An adapter for one thread. Raises InvalidInput."""
        return open_adapter(self.adapter, self.settings, self.credentials)


class Crms(Snapshot[Mapping[int, Crm]]):
    """Every CRM by id; a CRM whose settings cannot be used is left out, with an alert."""

    def __init__(self) -> None:
        super().__init__({})
        self._tested_fingerprints: set[str] = set()
        self._rows = Rows(
            self._make_tested_crm, UNUSABLE_CRM, _("The CRM %(name)s cannot be used"),
            _("%(error)s Correct it in the console; its records wait."),
            lambda row: not row.enabled,
        )  # fmt: skip

    def load(self) -> Mapping[int, Crm]:
        return self._rows.usable(models.Crm.objects.order_by("id"))

    def get(self, crm_id: int) -> Crm | None:
        return self.known.get(crm_id)

    def _make_tested_crm(self, row: models.Crm) -> Crm:
        """Raises InvalidInput for settings that the adapter refuses, and Undecryptable."""
        crm = crm_from_row(row)
        # Open the adapter here: wrong settings become an alert, and no worker fails. Settings are
        # tried once, since opening an adapter may start threads.
        if crm.fingerprint not in self._tested_fingerprints:
            crm.open().close()
            self._tested_fingerprints.add(crm.fingerprint)
        return crm


def crm_from_row(row: models.Crm) -> Crm:
    """Raises Undecryptable."""
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
        fingerprint=fingerprint(row),
    )


def fingerprint(row: models.Crm) -> str:
    """A hash of everything that a CRM's adapter is opened with. Raises Undecryptable."""
    # A hash, since the credentials are in it; sorted, since JSON objects have no order.
    content = msgspec.json.encode([row.adapter, row.settings, row.credentials], order="sorted")
    return hashlib.sha256(content).hexdigest()


# -- policies ------------------------------------------------------------------------------------
class Policies(Snapshot[Mapping[int, models.Policy]]):
    """Every policy by id, as its row was read, with source and CRM; not to be saved. A policy that
    cannot be used is left out, with an alert."""

    def __init__(self) -> None:
        super().__init__({})
        self._rows = Rows(
            check_mapping, UNUSABLE_POLICY, _("The policy %(name)s cannot be used"),
            _("%(error)s Correct it in the console; nothing is read for it."),
            lambda row: not (row.enabled and row.crm.enabled),
        )  # fmt: skip

    def load(self) -> Mapping[int, models.Policy]:
        rows = models.Policy.objects.select_related("source", "crm")
        rows = rows.defer("crm__settings", "crm__credentials")
        return self._rows.usable(rows.order_by("id"))

    def get(self, policy_id: int) -> models.Policy | None:
        return self.known.get(policy_id)


def check_mapping(policy: models.Policy) -> models.Policy:
    """Returns the policy. Raises InvalidInput for a mapping, or a choice of rows, that cannot be
    used."""
    mapping.parse(policy.mapping).check_columns(policy.source.value_columns)
    for column in policy.choosing_columns:
        if column not in policy.source.value_columns:
            words = gettext("The source has no column %s, by which the policy chooses rows.")
            raise InvalidInput(words % column)
    return policy
