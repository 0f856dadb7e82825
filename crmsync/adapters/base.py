"""The contract of a CRM adapter.

An adapter takes records whose fields have the CRM's names already and returns an outcome for each.
One thread at a time uses it. A new kind of CRM fills in `Settings`, `Credentials`, `fields`,
`deliver` and `read`; this module exports every name that it needs, `outcomes` the outcomes.
"""

import difflib
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import msgspec
from django.utils.functional import Promise
from django.utils.translation import gettext as _

from crmsync.adapters.outcomes import (
    Auth,
    Conflict,
    Invalid,
    Ok,
    Outcome,
    Refused,
    Retry,
    Throttled,
    Unknown,
)
from crmsync.adapters.records import Field, Record, Stored, compare, keep_empty_fields
from crmsync.adapters.settings import AdapterCredentials, AdapterSettings, read_settings
from msgplatform.core.data import chunks
from msgplatform.core.errors import InvalidInput, Permanent, Unavailable

__all__ = [
    "AdapterCredentials", "AdapterSettings", "CRMAdapter", "Check", "CredentialsRefused",
    "Field", "Record", "RequestRefused", "Stored", "TooManyCalls", "UnknownField",
]  # fmt: skip

_MAX_TEXT = 500  # characters of a message
# A shorter secret is masked only where it stands alone: other words contain it, too.
_MIN_SECRET = 4


class CredentialsRefused(Permanent):
    """The CRM does not accept the credentials; `of_record`: perhaps only for this record."""

    of_record = False


class TooManyCalls(Unavailable):
    """The CRM wants fewer calls; `after` in seconds."""

    def __init__(self, message: str, after: float) -> None:
        super().__init__(message)
        self.after = after


class RequestRefused(InvalidInput):
    """The CRM refuses a call that reads, perhaps because of one of the records in it."""


class UnknownField(InvalidInput):
    """A mapping names a field that the CRM does not have; `field` is its name."""


def outcome_of_error(
    error: CredentialsRefused | Unavailable | InvalidInput, size: int = 0
) -> Outcome:
    """The outcome of records that were not sent because `fields` or `read` raised this error.
    `size`: the number of records that were read, of which one may be at fault."""
    if isinstance(error, CredentialsRefused):
        return Auth(str(error), error.of_record)
    if size and isinstance(error, InvalidInput):
        is_shared = size > 1 and isinstance(error, RequestRefused)  # halves show which it is
        return Refused(str(error)) if is_shared else Invalid("", str(error))
    return Throttled(error.after) if isinstance(error, TooManyCalls) else Retry(0.0, str(error))


class Check(msgspec.Struct, frozen=True):
    """The result of testing a CRM's settings; `message` is a sentence for people. `untested`: the
    settings look right, but the CRM has no call that tells whether it accepts them."""

    kind: Literal["ok", "untested", "unreachable", "credentials", "settings", "field"]
    message: str

    @property
    def is_usable(self) -> bool:
        """True if the CRM may be used with these settings."""
        return self.kind in ("ok", "untested")


class CRMAdapter(ABC):
    """A connection to one CRM.

    Class attributes: `name` stands in settings, `title` is for people; `batch_size` is the maximum
    of records in one call, `per_second` and `per_day` the maximum of calls (0: no limit);
    `is_upsert`: a repeated call makes no second record.
    """

    name: ClassVar[str]
    title: ClassVar[str | Promise]
    Settings: ClassVar[type[AdapterSettings]] = AdapterSettings
    Credentials: ClassVar[type[AdapterCredentials]] = AdapterCredentials
    settings: Any
    credentials: Any
    batch_size: int = 100
    per_second: float = 0.0
    per_day: int = 0
    is_upsert: bool = False

    def __init__(self, settings: Mapping[str, Any], credentials: Mapping[str, Any]) -> None:
        """Opens no connection. Raises InvalidInput that names the setting at fault."""
        self.settings = read_settings(type(self).Settings, settings)
        self.credentials = read_settings(type(self).Credentials, credentials)
        # Settings make batches smaller, never larger than the maximum of the CRM.
        self.batch_size = min(self.settings.batch_size or self.batch_size, type(self).batch_size)
        self.per_second = self.settings.per_second or self.per_second
        self.per_day = self.settings.per_day or self.per_day

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    # -- methods that an adapter defines ---------------------------------------------------------
    @abstractmethod
    def deliver(self, batch: Sequence[Record]) -> Sequence[Outcome]:
        """Send at most `batch_size` records with different keys, and return an Outcome for each of
        them, in their order. An error or silence of the CRM is an Outcome, never an exception."""

    @abstractmethod
    def fields(self) -> Mapping[str, Field] | None:
        """The CRM's fields by name; None when the CRM has no call that lists them.

        Raises Unavailable, CredentialsRefused, or InvalidInput for a setting that is wrong.
        """

    @abstractmethod
    def read(self, keys: Collection[str]) -> Mapping[str, Stored]:
        """The CRM's records by key; keys without a record are left out. Raises as `fields` does."""

    def read_ids(self, remote_ids: Collection[str], names: Collection[str]) -> Mapping[str, Stored]:
        """The CRM's records by their remote ids, with the fields `names`. It is called only after
        a Conflict: an adapter without conflicts need not define it. Raises as `fields` does."""
        words = _("%s cannot be asked which fields of a record that people made are empty.")
        raise InvalidInput(words % self.title)

    def release(self, records: Sequence[Record]) -> Mapping[str, Outcome]:
        """Take the key off records that people made in the CRM and that are deleted here: the CRM
        keeps them. Returns outcomes by key. The default changes nothing."""
        return {record.key: Ok(record.remote_id, created=False) for record in records}

    def calls(self, records: Sequence[Record], is_look_up: bool = False) -> int:
        """The number of calls that sending these records takes, or looking them up; rate limits
        count these. The first records of several take no more calls than all."""
        return -(-len(records) // self.batch_size)

    def secrets(self) -> Iterable[str]:
        """Texts that `clean` removes from messages: the values of the credentials."""
        values = msgspec.structs.asdict(self.credentials).values()
        return [value for value in values if isinstance(value, str)]

    def close(self) -> None:  # noqa: B027 - not every adapter has something to close
        """Close connections. The adapter is not used afterwards."""

    # -- methods that every adapter inherits -----------------------------------------------------
    def send(self, records: Sequence[Record]) -> list[Outcome]:
        """Send records in batches and return an outcome for each, in order.

        The newest of several versions of a record is sent. After Auth or Throttled the remaining
        records are not sent and get the same outcome. An exception is a fault of the adapter.
        """
        # An older version must not overwrite a newer one of the same call.
        newest: dict[str, Record] = {}
        for record in records:
            if record.version > newest.setdefault(record.key, record).version:
                newest[record.key] = record
        outcomes: dict[str, Outcome] = {}
        final_outcome: Outcome | None = None
        for batch in chunks(list(newest.values()), self.batch_size):
            batch_outcomes = (
                [final_outcome] * len(batch) if final_outcome else self._deliver_batch(batch)
            )
            outcomes.update(zip((record.key for record in batch), batch_outcomes, strict=True))
            # No further call can succeed: the CRM refuses the credentials or wants a pause.
            final_outcome = next(
                (o for o in batch_outcomes if isinstance(o, Auth | Throttled)), None
            )
        return [outcomes[record.key] for record in records]

    def look_up(self, records: Sequence[Record]) -> list[Outcome]:
        """Look up records whose outcome was Unknown, and return an outcome for each, in order.

        Ok: the CRM holds this version. Retry: the CRM does not hold it, so it can be sent again.
        Conflict: the CRM holds the record with other values; send it with that remote id. Unknown:
        the CRM cannot be asked. Throttled: the CRM cannot be asked yet. Refused: the CRM refuses to
        be asked for all of them; ask for halves.
        """
        try:
            stored_records = self.read({record.key for record in records})
        except (CredentialsRefused, TooManyCalls) as error:
            return [self._clean_outcome(outcome_of_error(error))] * len(records)
        except (Unavailable, InvalidInput) as error:
            kind = Refused if isinstance(error, RequestRefused) and len(records) > 1 else Unknown
            return [kind(self.clean(str(error)))] * len(records)
        return [compare(record, stored_records.get(record.key)) for record in records]

    def check(self, names: Collection[str] = ()) -> Check:
        """Test whether the CRM can be used and has the fields `names`. Sends no record."""
        try:
            self.check_mapping(names)
        except Unavailable as error:
            return Check("unreachable", self.clean(str(error)))
        except CredentialsRefused as error:
            return Check("credentials", self.clean(str(error)))
        except UnknownField as error:
            return Check("field", self.clean(str(error)))
        except InvalidInput as error:
            return Check("settings", self.clean(str(error)))
        return Check("ok", _("%s answers and accepts the credentials.") % self.title)

    def check_mapping(self, names: Collection[str]) -> None:
        """Raises UnknownField for a name that is no writable field, and as `fields` does."""
        fields = self.fields()
        if fields is None:
            return
        for name in names:
            if name not in fields:
                text = _("%(crm)s has no field %(name)s.")
                similar = difflib.get_close_matches(name, fields, n=1)
                if similar:
                    text = _("%(crm)s has no field %(name)s. Did you mean %(similar)s?")
                names_in_text = {"crm": self.title, "name": name, "similar": "".join(similar)}
                raise UnknownField(text % names_in_text, name)
            if not fields[name].writable:
                words = _("The field %(name)s of %(crm)s cannot be written.")
                raise UnknownField(words % {"name": name, "crm": self.title}, name)

    def clean(self, text: str) -> str:
        """A message to be stored and shown: without secrets, on one line, capped."""
        return " ".join(self.without_secrets(text).split())[:_MAX_TEXT]

    def without_secrets(self, text: str) -> str:
        # The longest secret first: one secret may be part of another.
        for secret in sorted(filter(None, self.secrets()), key=len, reverse=True):
            if len(secret) >= _MIN_SECRET:
                text = text.replace(secret, "•••")
            else:
                text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "•••", text)
        return text

    def _deliver_batch(self, batch: Sequence[Record]) -> Sequence[Outcome]:
        """Deliver a batch. A record that people made in the CRM gets values only in its empty
        fields, or is released when it is deleted here."""
        deletions = [record for record in batch if record.deleted and record.is_adopted]
        to_fill = [record for record in batch if record.should_fill_empty and not record.deleted]
        if not deletions and not to_fill:
            return self._deliver(batch)
        outcomes: dict[str, Outcome] = {}
        if deletions:
            outcomes = {k: self._clean_outcome(o) for k, o in self.release(deletions).items()}
        smaller_records: dict[str, Record] = {}
        if to_fill:
            names = {name for record in to_fill for name in record.fields}
            try:
                by_id = self.read_ids({record.remote_id for record in to_fill}, names)
                smaller_records = {
                    r.key: keep_empty_fields(r, by_id.get(r.remote_id)) for r in to_fill
                }
            except (CredentialsRefused, Unavailable, InvalidInput) as error:  # nothing is sent
                failure = self._clean_outcome(outcome_of_error(error, len(to_fill)))
                outcomes.update((record.key, failure) for record in to_fill)
        to_send = [
            smaller_records.get(record.key, record)
            for record in batch
            if record.key not in outcomes
        ]
        if to_send:
            outcomes.update(zip((r.key for r in to_send), self._deliver(to_send), strict=True))
        return [outcomes[record.key] for record in batch]

    def _deliver(self, batch: Sequence[Record]) -> Sequence[Outcome]:
        outcomes = self.deliver(batch)
        if len(outcomes) != len(batch):  # an outcome cannot be matched with its record
            problem = _("The adapter gave %(given)s outcomes for %(count)s records.")
            numbers = {"given": len(outcomes), "count": len(batch)}
            return [Unknown(problem % numbers)] * len(batch)
        return [self._clean_outcome(outcome) for outcome in outcomes]

    def _clean_outcome(self, outcome: Outcome) -> Outcome:
        match outcome:
            case Retry(why=text) if text:
                return msgspec.structs.replace(outcome, why=self.clean(text))
            case Invalid(message=text) | Auth(message=text) | Unknown(message=text):
                return msgspec.structs.replace(outcome, message=self.clean(text))
            case Refused(message=text):
                return msgspec.structs.replace(outcome, message=self.clean(text))
            case Ok() | Retry() | Throttled() | Conflict():
                return outcome
        raise TypeError(f"{type(self).__name__} gave {type(outcome).__name__} for an outcome")
