"""Rows of a source become requests: what a CRM is asked to hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from crmsync.directory import Policy
from crmsync.models.operations import MAX_KEY
from crmsync.orders import Request, digest
from crmsync.poller.reading.increment import Row
from crmsync.poller.reading.source import SourceMismatch
from msgplatform.core.errors import InvalidInput

# The size of an operation's data, which is one value of one statement: servers take 16 MiB by
# default (max_allowed_packet).
MAX_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Wanted:
    """One row as the CRM is to hold it. With a `problem` there is no request that can be stored."""

    key: str
    request: Request
    digest: str
    problem: InvalidInput | None = None


def wanted(policy: Policy, rows: Iterable[Row], operation: int) -> list[Wanted]:
    """Requests for the rows that this policy carries.

    Where the source has no versions, the operation's id is the version; `store` makes it greater
    than that of the record, whose reader may have had another clock. A version that is NULL is older than all others.

    Raises SourceMismatch for a key that is too long.
    """
    found = []
    for row in rows:
        if policy.biz_id is not None and row.values.get("biz_id") != policy.biz_id:
            continue
        if policy.appkeys and row.values.get("appkey") not in policy.appkeys:
            continue
        key = str(row.key)
        if len(key) > MAX_KEY:
            raise SourceMismatch(f"there is a key of more than {MAX_KEY} characters")
        version = (row.version or 0) if policy.source.version_column else operation
        request, problem = Request(policy.key_prefix + key, version, {}, row.deleted), None
        if not row.deleted:
            try:
                request = _storable(Request(request.key, version, policy.mapping.apply(row.values)))
            except InvalidInput as error:
                problem = error
        found.append(Wanted(key, request, digest(request), problem))
    return found


def _storable(request: Request) -> Request:
    """Raises InvalidInput for one that the database would refuse, however often it is repeated."""
    if (size := len(msgspec.json.encode(request))) > MAX_BYTES:
        raise InvalidInput(f"The row has {size} bytes, and at most {MAX_BYTES} can be carried.")
    return request


def is_too_large(wanted: Sequence[Wanted]) -> bool:
    """Whether these are too many bytes for one operation; one alone never is."""
    size = sum(len(msgspec.json.encode(each.request)) for each in wanted)
    return len(wanted) > 1 and size > MAX_BYTES
