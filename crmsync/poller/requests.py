"""Make requests to a CRM from the rows of a source."""

import hashlib
from collections.abc import Iterable, Sequence

import msgspec
from django.db import IntegrityError
from django.utils.translation import gettext as _

from crmsync.models import Policy
from crmsync.models.operations import MAX_KEY
from crmsync.orders import Request, digest
from crmsync.policies import mapping
from crmsync.poller.reading.increment import Row
from msgplatform.core.errors import InvalidInput

# The size of an operation's data, which is one value of one statement: servers take 16 MiB by
# default (max_allowed_packet).
MAX_BYTES = 4 * 1024 * 1024
_VERSIONS = 2**63  # a version has 63 bits
_DUPLICATE = 1062  # MySQL's number of the error


class RowRequest(msgspec.Struct, frozen=True):
    """A row with its request to the CRM; `size` is the request's bytes. With a `problem` the
    request cannot be sent. `is_outside`: the policy does not carry the row, or no longer does.
    `cleared` is the number of fields that the request clears in the CRM."""

    key: str
    request: Request
    digest: str
    problem: InvalidInput | None = None
    size: int = 0
    is_outside: bool = False
    cleared: int = 0


def make_requests(policy: Policy, rows: Iterable[Row], operation: int) -> list[RowRequest]:
    """Make requests for those rows that the policy carries, and for other rows that are deleted: an
    APPKEY may have been taken off the policy after a row was sent.

    Where the source has no versions, the operation's id is the version; `store` makes it greater
    than that of the record, whose reader may have had another clock. A version that is NULL is
    older than all others. A row that no request can be made of has a problem.
    """
    row_requests = []
    rules, has_versions = mapping.parse(policy.mapping), bool(policy.source.version_column)
    for row in rows:
        is_outside = not policy.carries(row.values)
        if is_outside and not row.deleted:
            continue
        key = str(row.key)
        if len(key) > MAX_KEY:
            key = _with_hash(key)
        version = _version(row) if has_versions else operation
        problem, size = None, 0
        try:
            _check(row)
            fields = {} if row.deleted else rules.apply(row.values)
            request = Request(policy.key_prefix + key, version, fields, row.deleted)
            size = _checked_size(request)
        except Exception as error:  # noqa: BLE001 - one row must not stop its policy
            request = Request(
                policy.key_prefix + key, version, {}, row.deleted, row_digest=_row_digest(row)
            )  # fmt: skip
            text = _("No request can be made of the row: %s.") % type(error).__name__
            problem = error if isinstance(error, InvalidInput) else InvalidInput(text)
        row_requests.append(
            RowRequest(
                key, request, digest(request), problem, size, is_outside, request.cleared_fields
            )
        )  # fmt: skip
    return row_requests


def without_values(row: RowRequest, error: Exception) -> RowRequest:
    """A row that the database refuses, without the values that may be the cause."""
    key, problem = row.key, _("The row cannot be stored: %s.") % type(error).__name__
    # MariaDB takes keys as equal that differ only in blanks at the end. (SQLite does not.)
    if isinstance(error, IntegrityError) and error.args[:1] == (_DUPLICATE,):
        key = _with_hash(row.key)
        problem = _(
            "Another row has this key, but for blanks at the end: make them differ otherwise."
        )
    request = Request(
        row.request.key.removesuffix(row.key) + key, row.request.version, {},
        row.request.deleted, row_digest=row.digest,
    )  # fmt: skip
    return RowRequest(key, request, row.digest, InvalidInput(problem))


def _row_digest(row: Row) -> str:
    """A hash of a row for which no request can be made, equal if the same row is read again.
    Without it all such rows would be equal, whatever their values are."""
    is_known = not row.problem and _version(row) == row.version
    state = None if is_known else (row.version, row.time)  # unreadable values count as different
    content = repr((row.deleted, state, sorted(row.values.items())))
    return hashlib.blake2b(content.encode(errors="replace"), digest_size=16).hexdigest()


def _check(row: Row) -> None:
    """Raises InvalidInput for a row that could not be read, or that no record can be about."""
    if row.problem:
        raise InvalidInput(row.problem)
    if len(str(row.key)) > MAX_KEY:
        text = _("The key has %(length)d characters, and at most %(most)d can be carried.")
        raise InvalidInput(text % {"length": len(str(row.key)), "most": MAX_KEY})
    if row.version is not None and _version(row) != row.version:
        text = _(
            "The version %(version)s is no whole number below %(most)d: correct it, and try again."
        )
        raise InvalidInput(text % {"version": str(row.version)[:40], "most": _VERSIONS})


def _version(row: Row) -> int:
    """The version, or the largest one for a version that cannot be stored."""
    if row.version is None:
        return 0
    is_storable = isinstance(row.version, int) and -_VERSIONS <= row.version < _VERSIONS
    return row.version if is_storable else _VERSIONS - 1


def _with_hash(key: str) -> str:
    """The beginning of a key and a hash of it, in the length of a key."""
    return f"{key[: MAX_KEY - 17]}~{hashlib.blake2b(key.encode(), digest_size=8).hexdigest()}"


def _checked_size(request: Request) -> int:
    """Bytes of a request. Raises InvalidInput for one that the database would refuse each time."""
    if (size := len(msgspec.json.encode(request))) > MAX_BYTES:
        text = _("The row has %(size)d bytes, and at most %(most)d can be carried.")
        raise InvalidInput(text % {"size": size, "most": MAX_BYTES})
    return size


def is_too_large(row_requests: Sequence[RowRequest]) -> bool:
    """True if these are too many bytes for one operation; a single request never is."""
    size = sum(row_request.size for row_request in row_requests)
    return len(row_requests) > 1 and size > MAX_BYTES
