"""Refusals: does the CRM refuse its credentials, or only a record?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from crmsync.adapters.base import CRMAdapter
from crmsync.adapters.outcomes import Auth, Invalid, Ok, Outcome, Throttled
from crmsync.handler.answers import Answer
from crmsync.orders import Entry
from msgplatform.core import logging

log = logging.get(__name__)


def is_of_all(outcome: Outcome) -> TypeGuard[Auth | Throttled]:
    """Whether no other record of the order can be stored now either."""
    return isinstance(outcome, Throttled) or (isinstance(outcome, Auth) and not outcome.of_record)


def settled(
    suspects: Sequence[tuple[Entry, Auth]], adapter: CRMAdapter, answers: Sequence[Answer]
) -> Sequence[tuple[Entry, Auth | Invalid]]:
    """What a 403 means for records that were sent alone; `answers` are those of their order.

    Invalid only where the CRM has stored another record and passes its test: credentials may be
    good for a test and for nothing else, and then every record would die.
    """
    stores = any(isinstance(answer.outcome, Ok) for answer in answers)
    if suspects and stores and _passes(adapter):
        return [(entry, Invalid("", refused.message)) for entry, refused in suspects]
    return suspects


def _passes(adapter: CRMAdapter) -> bool:
    try:
        return adapter.check().kind == "ok"
    except Exception as error:  # noqa: BLE001 - an adapter may be anybody's
        log.warning("crm_not_tested", error=type(error).__name__)
        return False
