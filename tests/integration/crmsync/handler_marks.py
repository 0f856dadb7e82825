"""A queue of CRM sync, and its answers marked as a handler does it."""

from collections.abc import Sequence
from typing import Any

from crmsync.adapters.outcomes import Outcome
from crmsync.directory import Crm, Crms
from crmsync.handler import marks
from crmsync.handler.answers import Answer, DeliveryResult, Unsent
from tests.integration.crmsync.sync_support import Queued


def crm_of(queued: Queued) -> Crm:
    crms = Crms()
    crms.refresh()
    found = crms.get(queued.policy.crm_id)
    assert found
    return found


def mark(queued: Queued, *outcomes: Outcome | Unsent) -> None:
    """One outcome for each entry, or one for all."""
    entries = queued.order.entries
    given: Sequence[Any] = outcomes * len(entries) if len(outcomes) == 1 else outcomes
    answers = [Answer(e, outcome) for e, outcome in zip(entries, given, strict=True)]
    marks.apply(crm_of(queued), queued.order, DeliveryResult(answers))
