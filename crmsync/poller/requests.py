"""From rows of a source to what a CRM is asked to hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from crmsync.directory import Policy
from crmsync.models.operations import MAX_KEY
from crmsync.orders import Request, digest
from crmsync.poller.increment import Row
from crmsync.poller.source import SourceMismatch
from msgplatform.core.errors import InvalidInput

# Of an operation's data, which is one value of one statement: servers take 16 MiB by default.
MAX_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Wanted:
    """One row as the CRM is to have it; `problem` says why the mapping cannot make it so."""

    key: str
    request: Request
    digest: str
    problem: InvalidInput | None = None


def wanted(policy: Policy, rows: Iterable[Row], operation: int) -> list[Wanted]:
    """For each row that is the policy's. A source without versions gets the operation's id as one:
    later readings have larger ones.

    Raises SourceMismatch for a key that is too long.
    """
    found = []
    for row in rows:
        if not _is_ours(policy, row):
            continue
        key = str(row.key)
        if len(key) > MAX_KEY:
            raise SourceMismatch(f"there is a key of more than {MAX_KEY} characters")
        version = operation if row.version is None else row.version
        request, problem = Request(policy.key_prefix + key, version, {}, row.deleted), None
        if not row.deleted:
            try:
                request = Request(request.key, version, policy.mapping.apply(row.values))
            except InvalidInput as error:
                problem = error
        found.append(Wanted(key, request, digest(request), problem))
    return found


def is_too_large(wanted: Sequence[Wanted]) -> bool:
    """Whether they are too much for one operation; one alone never is."""
    size = sum(len(msgspec.json.encode(each.request)) for each in wanted)
    return len(wanted) > 1 and size > MAX_BYTES


def _is_ours(policy: Policy, row: Row) -> bool:
    values = row.values
    if policy.biz_id is not None and values.get("biz_id") != policy.biz_id:
        return False
    return not policy.appkeys or values.get("appkey") in policy.appkeys
