"""Leads that would be refused now, and may have been accepted before.

What was accepted once stays accepted, even if its landing page has other fields or is switched off
since: whoever got no answer and repeats the lead must not take it for lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crmsync.hive import intake
from crmsync.hive.intake import NewLead
from crmsync.models import LeadIdempotency
from msgplatform.core.errors import InvalidInput
from msgplatform.core.intake.idempotency import first_ones
from msgplatform.core.intake.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class Refused:
    """A lead with an idempotency key, and why it cannot be accepted now."""

    lead: NewLead
    error: InvalidInput


def verdicts(refused: Sequence[Refused]) -> list[Verdict]:
    """`duplicate` or a conflict for those whose key is known; the others are rejected."""
    items = [each.lead.item() for each in refused]
    first = first_ones(items, LeadIdempotency)
    found = []
    for each, item in zip(refused, items, strict=True):
        if known := first.get((item.biz, item.key)):
            lead_id, digest = known
            found.append(Verdict.duplicate_or_conflict(digest == item.payload_hash, lead_id))
        else:
            found.append(Verdict.rejected(each.error))
    return found


def add(lead: NewLead | Refused) -> Verdict:
    """As `intake.add`."""
    return verdicts([lead])[0] if isinstance(lead, Refused) else intake.add(lead)


def add_many(leads: Sequence[NewLead | Refused]) -> list[Verdict]:
    """As `intake.add_many`."""
    repeated = iter(verdicts([each for each in leads if isinstance(each, Refused)]))
    new = [each for each in leads if isinstance(each, NewLead)]
    stored = iter(intake.add_many(new) if new else ())
    return [next(repeated if isinstance(each, Refused) else stored) for each in leads]
