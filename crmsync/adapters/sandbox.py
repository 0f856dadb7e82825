"""A CRM of the platform's own, for trying things out: it keeps records and calls in the work Redis
for an hour, and fails as its behaviour says."""

import time
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from django.conf import settings as platform_settings
from django.utils.translation import gettext as _, gettext_lazy, gettext_noop

from crmsync.adapters import base
from crmsync.adapters.client import THROTTLED_SECONDS
from crmsync.adapters.outcomes import Auth, Invalid, Ok, Outcome, Retry, Throttled, Unknown
from crmsync.adapters.records import NOT_JSON, describe_not_json
from crmsync.adapters.settings import read_settings
from msgplatform.core import sandbox
from msgplatform.core.connections import RedisError, work_redis
from msgplatform.core.errors import InvalidInput, Unavailable
from msgplatform.core.sandbox import KEEP_SECONDS, Behaviour, Sandbox

MAX_RECORDS = 1000
MAX_RECORD_BYTES = 16 * 1024
# Records of a call that are kept with it.
MAX_SENT = 20


class StoredRecord(msgspec.Struct, frozen=True):
    """A record as the sandbox holds it; `at` is the time of its last change in unix seconds."""

    key: str
    version: int
    fields: dict[str, Any]
    at: float

    @property
    def changed_at(self) -> datetime:
        return datetime.fromtimestamp(self.at, UTC)


class SentRecord(msgspec.Struct, frozen=True):
    """A record as it was sent."""

    key: str
    version: int
    fields: dict[str, Any]
    is_deleted: bool = False


class Call(msgspec.Struct, frozen=True):
    """A call of the adapter: `count` records, of which the first are in `records`; its answer is
    one of the adapter's words."""

    answer: str
    count: int
    records: list[SentRecord]
    delay: float = 0.0


class RecordsFull(Exception):
    """The sandbox holds MAX_RECORDS records of the last hour."""


class Records(Sandbox):
    """The sandbox `space` with its records. All methods raise RedisError."""

    def __init__(self, space: str) -> None:
        super().__init__(f"crm:{space}")
        self._name = f"sandbox:crm:{space}:records"

    def get(self, keys: Collection[str]) -> dict[str, StoredRecord]:
        if not keys:
            return {}
        contents = work_redis().hmget(self._name, list(keys))
        return _current(content for content in contents if content)

    def all(self) -> list[StoredRecord]:
        """Every record, the one that was changed last first."""
        records = _current(work_redis().hvals(self._name)).values()
        return sorted(records, key=lambda record: -record.at)

    def put(self, records: Mapping[str, StoredRecord | None]) -> None:
        """Store records by key; None deletes one. Raises RecordsFull before it stores any."""
        contents: dict[Any, bytes] = {
            key: msgspec.json.encode(record) for key, record in records.items() if record
        }
        deleted_keys = [key for key, record in records.items() if record is None]

        def change(pipeline: Any) -> None:
            stored_contents = pipeline.hgetall(self._name)
            current_keys = _current(stored_contents.values()).keys()
            if len(current_keys | contents.keys()) > MAX_RECORDS:
                raise RecordsFull
            # The hash lives as long as records come.
            outdated_keys = {name.decode() for name in stored_contents} - current_keys
            pipeline.multi()
            if old_keys := outdated_keys.union(deleted_keys):
                pipeline.hdel(self._name, *old_keys)
            if contents:
                pipeline.hset(self._name, mapping=contents)
            pipeline.expire(self._name, KEEP_SECONDS)

        # Is called again if another caller has stored a record meanwhile.
        work_redis().transaction(change, self._name)

    def empty(self) -> int:
        """Drop the records and the calls; returns the number of calls."""
        work_redis().delete(self._name)
        return super().empty()


def _current(contents: Any) -> dict[str, StoredRecord]:
    """Decode records of the last hour; others, as of another release, are left out."""
    oldest = time.time() - KEEP_SECONDS
    records = {}
    for content in contents:
        try:
            record = msgspec.json.decode(content, type=StoredRecord)
        except msgspec.DecodeError:
            continue
        if record.at >= oldest:
            records[record.key] = record
    return records


# The answers of which an operator can choose one. '' stores the records.
ANSWERS = ("invalid", "auth", "throttled", "error", "down", "lost")
INVALID, AUTH, THROTTLED, ERROR, DOWN, LOST = ANSWERS
_TEXTS = {
    INVALID: gettext_noop("The sandbox refuses these values, as it was told to."),
    AUTH: gettext_noop("The sandbox refuses the credentials, as it was told to."),
    THROTTLED: gettext_noop("HTTP 429: the sandbox wants fewer calls, as it was told to."),
    ERROR: gettext_noop("HTTP 500: the sandbox fails, as it was told to."),
    DOWN: gettext_noop("The sandbox is down, as it was told to be."),
    LOST: gettext_noop("The answer of the sandbox was lost, as it was told to."),
}  # fmt: skip


class SandboxSettings(base.AdapterSettings, frozen=True, kw_only=True):
    __doc__ = gettext_noop(
        "CRMs with the same `space` share records and behaviour; without `fields` they take all."
    )

    space: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")] = "sandbox"
    fields: list[Annotated[str, msgspec.Meta(min_length=1, max_length=100)]] = []


class SandboxCredentials(base.AdapterCredentials, frozen=True, kw_only=True):
    __doc__ = gettext_noop("The sandbox needs none.")


class SandboxAdapter(base.CRMAdapter):
    """Records in the work Redis."""

    name = "sandbox"
    title = gettext_lazy("The sandbox")
    Settings = SandboxSettings
    Credentials = SandboxCredentials
    batch_size = 100
    is_upsert = True

    settings: SandboxSettings

    def __init__(self, settings: Mapping[str, Any], credentials: Mapping[str, Any]) -> None:
        super().__init__(settings, credentials)
        if not sandbox.is_on():
            raise InvalidInput(_(sandbox.OFF), "adapter")
        self._records = Records(self.settings.space)

    # -- reading ---------------------------------------------------------------------------------
    def fields(self) -> Mapping[str, base.Field] | None:
        self._require_answer()
        return {name: base.Field(name) for name in self.settings.fields} or None

    def read(self, keys: Collection[str]) -> Mapping[str, base.Stored]:
        self._require_answer()
        try:
            records = self._records.get(keys)
        except RedisError as error:
            raise Unavailable(_("Redis does not answer: %s") % error) from None
        return {
            key: base.Stored(key, record.fields, version=record.version)
            for key, record in records.items()
        }

    def _require_answer(self) -> None:
        """Raises as `fields` does while the chosen answer is a failure. The call is not counted."""
        try:
            behaviour = self._records.behaviour()
        except RedisError as error:
            raise Unavailable(_("Redis does not answer: %s") % error) from None
        if behaviour.answer == AUTH:
            raise base.CredentialsRefused(_(_TEXTS[AUTH]))
        if behaviour.answer == THROTTLED:
            wait = behaviour.retry_after or THROTTLED_SECONDS
            raise base.TooManyCalls(_(_TEXTS[THROTTLED]), wait)
        if behaviour.answer in (ERROR, DOWN):
            raise Unavailable(_(_TEXTS[behaviour.answer]))

    # -- writing ---------------------------------------------------------------------------------
    def deliver(self, batch: Sequence[base.Record]) -> Sequence[Outcome]:
        try:
            behaviour = self._records.take_behaviour()
            # A call must end long before the lease of its records does.
            time.sleep(min(behaviour.delay, platform_settings.CRM_LEASE_SECONDS / 4))
            records = []  # values that are no JSON are kept as text
            for record in batch[:MAX_SENT]:
                fields = {name: _plain(value) for name, value in record.fields.items()}
                records.append(SentRecord(record.key, record.version, fields, record.deleted))
            self._records.keep(Call(behaviour.answer, len(batch), records, behaviour.delay))
            if behaviour.answer in ("", LOST):
                outcomes = self._store(batch)
                unknown = Unknown(_(_TEXTS[LOST]))
                return [unknown] * len(batch) if behaviour.answer == LOST else outcomes
        except RedisError as error:
            return [Retry(0.0, _("Redis does not answer: %s") % error)] * len(batch)
        return [_failure(behaviour)] * len(batch)

    def _store(self, batch: Sequence[base.Record]) -> list[Outcome]:
        present_records = self._records.get([record.key for record in batch])
        changes: dict[str, StoredRecord | None] = {}
        outcomes: list[Outcome] = []
        for record in batch:
            before = present_records.get(record.key)
            problem = self._problem(record)
            outcomes.append(problem or Ok(record.key, created=before is None))
            if problem:
                continue
            if record.deleted:
                changes[record.key] = None
            elif before is None or before.version <= record.version:  # a correction is equal
                fields = {**(before.fields if before else {}), **record.fields}
                changes[record.key] = StoredRecord(record.key, record.version, fields, time.time())
        try:
            self._records.put(changes)
        except RecordsFull:
            text = _("The sandbox holds %d records, and takes no more: empty it.") % MAX_RECORDS
            return [Retry(0.0, text)] * len(batch)
        return outcomes

    def _problem(self, record: base.Record) -> Invalid | None:
        """Why the sandbox never takes this record; None when it does."""
        for name in record.fields if self.settings.fields else ():
            if name not in self.settings.fields:
                return Invalid(name, _("The sandbox has no field %s.") % name)
        try:
            size = len(msgspec.json.encode([record.key, record.fields]))
        except NOT_JSON as error:
            return Invalid("", describe_not_json(error))
        text = _("A record of the sandbox has %d KiB at most.") % (MAX_RECORD_BYTES // 1024)
        return Invalid("", text) if size > MAX_RECORD_BYTES else None


def _failure(behaviour: Behaviour) -> Outcome:
    text = _(_TEXTS.get(behaviour.answer, _TEXTS[ERROR]))
    if behaviour.answer == INVALID:
        return Invalid("", text)
    if behaviour.answer == AUTH:
        return Auth(text)
    if behaviour.answer == THROTTLED:
        return Throttled(float(behaviour.retry_after) or THROTTLED_SECONDS)
    return Retry(float(behaviour.retry_after), text)


def _plain(value: Any) -> Any:
    try:
        return value if len(msgspec.json.encode(value)) <= MAX_RECORD_BYTES // 8 else "…"
    except NOT_JSON:
        return ascii(value)[:200]


def records_of(settings: Mapping[str, Any]) -> Records:
    """The store of a sandbox CRM with these settings."""
    return Records(read_settings(SandboxSettings, settings).space)
