"""Landing pages as intake knows them: one by its APPKEY, and the origins of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crmsync import lead_fields
from crmsync.lead_fields import LeadField
from crmsync.models import LandingPage
from msgplatform.core.daemons.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Page:
    """A landing page that takes leads."""

    appkey: str
    biz_id: int
    title: str
    text: str
    language: str
    fields: Sequence[LeadField]
    origins: frozenset[str]


def page(appkey: str) -> Page | None:
    """The landing page; None when there is none, or it or its business system is switched off."""
    row = LandingPage.objects.filter(appkey=appkey, enabled=True, biz__enabled=True).first()
    if row is None:
        return None
    return Page(
        appkey=row.appkey,
        biz_id=row.biz_id,
        title=row.title,
        text=row.text,
        language=row.language,
        fields=lead_fields.read(row.form_fields),
        origins=frozenset(row.allowed_origins),
    )


class Origins(Snapshot[frozenset[str]]):
    """The origins that any landing page allows: a preflight request names no APPKEY."""

    def __init__(self) -> None:
        super().__init__(frozenset())

    def load(self) -> frozenset[str]:
        pages = LandingPage.objects.filter(enabled=True, biz__enabled=True)
        listed = pages.exclude(allowed_origins=[]).values_list("allowed_origins", flat=True)
        return frozenset(origin for origins in listed for origin in origins)

    def allow(self, origin: str) -> bool:
        """Whether some page allows it, as of a moment ago."""
        self.refresh()
        return origin in self.known


origins = Origins()
