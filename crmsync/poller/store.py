"""Store a round: records, the operation and the watermark, in one transaction."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec
from django.db import IntegrityError, OperationalError, transaction
from django.db.models import F

from crmsync.models import Policy, Record, Run, Watermark
from crmsync.poller.decisions import COLUMNS, Decisions, Round, StoredRound
from crmsync.poller.requests import without_values
from msgplatform.core import logging
from msgplatform.core.daemons import bisect
from msgplatform.core.data import chunks, claims, ids, sql, transactions
from msgplatform.core.errors import LeaseLost

log = logging.get(__name__)


class Unstorable(Exception):
    """The database refuses one of several rows: they have to be stored in smaller parts."""


def store(poll_round: Round) -> StoredRound:
    """Store the round. Raises LeaseLost when another poller holds the policy; then nothing is
    stored."""
    # Reserve ids before the transaction, which may be repeated. Most ids remain unused.
    policy_id = poll_round.policy.id
    buckets = [ids.bucket(policy_id, row_request.key) for row_request in poll_round.row_requests]
    buckets.append(ids.bucket(policy_id, None))  # the operation of held removals
    new_ids = ids.reserve(len(buckets)).ids(buckets)
    # Rows that the policy no longer carries need a look at their records: they may have been sent.
    if any(row_request.is_outside for row_request in poll_round.row_requests):
        poll_round = msgspec.structs.replace(poll_round, are_new=False)
    if poll_round.are_new:
        # Insert without reading records: the read costs more than a rare IntegrityError.
        with suppress(IntegrityError):
            return transactions.retrying(lambda: _store_once(poll_round, new_ids))
        poll_round = msgspec.structs.replace(poll_round, are_new=False)
    return transactions.retrying(lambda: _store_once(poll_round, new_ids))


def store_or_set_aside(poll_round: Round, is_part: bool = False) -> StoredRound:
    """As `store`; a row that the database refuses alone is dead with the reason. `is_part`: the
    round was divided, and waits only briefly for locks.

    Raises Unstorable for several rows of which the database refuses one.
    """
    patience = transactions.hasty if is_part else transactions.waiting_once
    try:
        with patience():
            result = store(poll_round)
    except Exception as error:
        if bisect.is_unavailable(error):
            raise
        if len(poll_round.row_requests) != 1:
            raise Unstorable from error
        (row_request,) = poll_round.row_requests
        is_locked = isinstance(error, OperationalError) and transactions.is_of_lock(error)
        if is_locked and not bisect.locked_items.note((poll_round.policy.id, row_request.key)):
            raise
        log.exception("row_not_stored", policy=str(poll_round.policy))
        with patience():
            part = [without_values(row_request, error)]
            return store(msgspec.structs.replace(poll_round, row_requests=part))
    for row_request in poll_round.row_requests:
        bisect.locked_items.forget((poll_round.policy.id, row_request.key))
    return result


def require_lease(policy: Policy, holder: str) -> datetime:
    """Lock the policy's row in the caller's transaction. Returns the database's time. Raises
    LeaseLost when another poller holds the policy."""
    # The row is the fence: a poller that has lost the lease finds another token here and stores
    # nothing, however late it comes.
    rows = Policy.objects.select_for_update().filter(pk=policy.id)
    now = sql.now()
    claimed_by, until = rows.values_list("claimed_by", "lease_until").first() or ("", None)
    if claimed_by != holder or until is None or until <= now:
        raise LeaseLost(f"the policy {policy} is held by another poller")
    return now


def _store_once(poll_round: Round, new_ids: Sequence[int]) -> StoredRound:
    with transaction.atomic():
        now = require_lease(poll_round.policy, poll_round.holder)
        rows_by_key: dict[str, dict[str, Any]] = {}
        keys = [row_request.key for row_request in poll_round.row_requests]
        for page in () if poll_round.are_new else chunks(keys, claims.CHUNK):
            records = Record.objects.filter(policy_id=poll_round.policy.id, key__in=page)
            # Lock records, because a handler may be marking them.
            for row in records.select_for_update().order_by().values(*COLUMNS):
                rows_by_key[row["key"]] = row
        *record_ids, held_operation = new_ids
        decisions = Decisions(poll_round, now, held_operation)
        decisions.result.are_new = not rows_by_key
        for row_request, new_id in zip(poll_round.row_requests, record_ids, strict=True):
            stored_row = rows_by_key.get(row_request.key)
            if stored_row or not row_request.is_outside:  # other outside rows were never sent
                decisions.take(row_request, stored_row, new_id)
        decisions.write()
        if poll_round.watermark:
            # The key is JSON: a number and the same digits as text are different keys.
            key = msgspec.json.encode(poll_round.watermark.key).decode()
            sql.insert_or_update(
                Watermark._meta.db_table,
                ("policy_id", "update_time", "key", "moved_at"),
                [(poll_round.policy.id, poll_round.watermark.time, key, now)],
                key="policy_id",
            )
        if poll_round.run:
            Run.objects.filter(pk=poll_round.run).update(
                read=F("read") + decisions.result.read,
                unchanged=F("unchanged") + decisions.result.unchanged,
            )
    return decisions.result
