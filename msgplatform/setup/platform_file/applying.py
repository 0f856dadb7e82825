"""Bring the platform to what files say: one PUT by name for each entry, in one transaction.

Kinds are taken in the order of their references, so that an object may refer to another one of the
same files. A fault undoes everything. A trial run does the same and is then undone, so that it
shows the real changes and no estimate. Meanwhile SQLite lets nobody else write, so there the time
is bounded.
"""

import math
import re
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from django.db import DataError, IntegrityError, OperationalError, connection, transaction
from django.utils import timezone

from msgplatform.core.data import engines, transactions
from msgplatform.core.errors import Changed, NotNow
from msgplatform.models import AuditLog, KeptObject
from msgplatform.setup.declaration import value_at
from msgplatform.setup.fields import fields_of
from msgplatform.setup.platform_file import kinds
from msgplatform.setup.platform_file.kinds import Kind
from msgplatform.setup.platform_file.outcome import Action, Change, Fault, FileFaults, Outcome
from msgplatform.setup.platform_file.reading import Description, Entry
from msgplatform.setup.refusals import REFUSALS, field_errors
from msgplatform.setup.resource import Resource, Stored

_REFUSALS_OF_DATABASE = (IntegrityError, DataError)
# The error's own text names tables and may contain values of other objects.
_REFUSED = (
    "The database refuses it: another object has a value that may be there once only, or what it "
    "refers to is not there any more."
)
# Callers and programs that write to SQLite wait for it up to 20 s.
_WRITER_SECONDS = 5.0
_TOO_LONG = (
    f"After {_WRITER_SECONDS:g} s the rest is not applied yet, and nobody else can write to SQLite "
    "meanwhile: divide the file, or use a database server. Nothing was changed."
)
# Each apply of a file locks this row. No object has these names.
_TURN = {"section": "", "name": ""}
_BUSY = "Another platform file is being applied: repeat it later."
_turn_of_file = threading.Lock()
MAX_LABEL = 100
_AUDIT_BATCH = 500  # entries of one statement
_PART = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


class Options(msgspec.Struct, frozen=True):
    """How to apply.

    `systems` are the business systems whose objects may be changed (empty: all), `label` names
    where the files come from, such as a commit. `removable` are the titles of objects that may be
    removed; None: all. `plan` is that of an earlier trial; '': any. With `is_move` the objects come
    from another cell.
    """

    actor: str
    is_trial: bool = False
    should_prune: bool = False
    systems: frozenset[str] = frozenset()
    label: str = ""
    removable: Collection[str] | None = None
    plan: str = ""
    is_move: bool = False


def apply(description: Description, options: Options) -> Outcome:
    """Create and replace objects, and with `should_prune` remove those of the same sections that
    the files do not have. Raises FileFaults, NotNow while another application runs, and Changed
    when the changes are not those of the plan; then nothing was changed."""
    with _turn():
        try:
            with transaction.atomic():
                _lock_turn()
                application = _Application(description, options)
                outcome = application.run()
                if options.plan not in ("", outcome.plan):
                    raise Changed(
                        "The platform has changed since the plan was made: make it again."
                    )
                application.store_audit_entries()
                if options.is_trial:
                    transaction.set_rollback(True)
        except _REFUSALS_OF_DATABASE:  # reports a reference that is checked at the end
            raise FileFaults([Fault("", 0, "", _REFUSED)]) from None
    return outcome


@contextmanager
def _turn() -> Iterator[None]:
    """Hold the turn for the block, with the row for `_lock_turn`. Writers of SQLite wait for each
    other, so a process lets only one file wait among them. Raises NotNow."""
    is_server = engines.of().is_server
    if not (is_server or _turn_of_file.acquire(blocking=False)):
        raise NotNow(_BUSY)
    try:
        KeptObject.objects.get_or_create(**_TURN, defaults={"applied_at": timezone.now()})
        yield
    finally:
        if not is_server:
            _turn_of_file.release()


def _lock_turn() -> None:
    """Lock the row until the end of the transaction, so that nobody else applies a file. Raises
    NotNow if it is locked; SQLite waits instead, as for every write."""
    can_refuse = connection.features.has_select_for_update_nowait
    try:
        KeptObject.objects.select_for_update(nowait=can_refuse).get(**_TURN)
    except OperationalError as error:
        if not transactions.is_of_lock(error):
            raise
        raise NotNow(_BUSY) from None


class _Application:
    def __init__(self, description: Description, options: Options) -> None:
        self._options, self._outcome, self._faults = options, Outcome(), list[Fault]()
        self._audit_entries: list[AuditLog] = []
        is_shared = engines.of().is_server or options.is_move
        self._deadline = math.inf if is_shared else time.monotonic() + _WRITER_SECONDS
        self._sections = description.sections
        self._entries: dict[Kind, list[Entry]] = {}
        for entry in description.entries:
            self._entries.setdefault(entry.kind, []).append(entry)

    def run(self) -> Outcome:
        for kind in kinds.kinds():
            entries = self._entries.get(kind, ())
            kept_rows = KeptObject.objects.filter(section=kinds.section_of(kind))
            kept_objects = {row.name: row for row in kept_rows} if entries else {}
            refused_entries = [
                entry
                for entry in entries
                if self._put(entry, kept_objects.get(kinds.kept_name(entry.name)))
            ]
            # Try these again after the others: one may need what another one gives up, such as the
            # place of a system's default account.
            for entry in refused_entries:
                self._faults += self._put(entry, kept_objects.get(kinds.kept_name(entry.name)))
        if self._faults:
            raise FileFaults(self._faults)
        for kind in reversed(kinds.kinds()):
            if kinds.section_of(kind) in self._sections:
                self._prune(kind)
        if self._faults:
            raise FileFaults(self._faults)
        return self._outcome

    def store_audit_entries(self) -> None:
        """Store the entries of the audit log with the last statements before COMMIT: a caller who
        follows the log by ids would miss an entry that is committed long after it got its id."""
        AuditLog.objects.bulk_create(self._audit_entries, batch_size=_AUDIT_BATCH)

    def _resource(self, kind: Kind, address: dict[str, str]) -> Resource:
        resource = kind(self._options.actor, **address)
        resource.systems, resource.audit_entries = self._options.systems, []
        resource.is_moved = self._options.is_move
        return resource

    def _put(self, entry: Entry, kept_object: KeptObject | None) -> Sequence[Fault]:
        """Create or replace an object, in a savepoint. Returns the faults; then nothing is done."""
        if time.monotonic() > self._deadline:
            raise FileFaults([*self._faults, entry.fault((), _TOO_LONG)])
        resource = self._resource(entry.kind, entry.address)
        try:
            row, body = resource.rows().first(), entry.body
            version = resource.version(row) if row is not None and kept_object is not None else ""
            if row is not None and resource.is_removed(row):
                body = dict(resource.body_of_removed(body))
            stored = resource.put(body)
        except REFUSALS as error:
            faults = []
            for field_error in field_errors(error):
                parts = _PART.findall(field_error["field"])
                path = tuple(int(index) if index else name for index, name in parts)
                faults.append(entry.fault(path, field_error["message"]))
            return faults
        except _REFUSALS_OF_DATABASE:
            return [entry.fault((), _REFUSED)]
        note = ""
        if kept_object is not None and version not in ("", kept_object.version):
            note = f"It was changed by hand since {kept_object.label} was applied."
        self._outcome.changes.append(_change(resource, entry, stored, note))
        _keep(resource, stored.row, kept_object, self._options.label)
        self._audit_entries += resource.audit_entries or ()
        return []

    def _prune(self, kind: Kind) -> None:
        """Remove the stored objects of this kind that the files do not have, or list them. With a
        label also forget that a file kept them."""
        section = kinds.section_of(kind)
        listed_names = {entry.name for entry in self._entries.get(kind, ())}
        systems, released_names = self._options.systems, list[str]()
        if systems and not kind.system_lookup:
            return
        for row in kind.join_relations(kind.all_rows()).order_by("pk"):
            if time.monotonic() > self._deadline:
                raise FileFaults([*self._faults, Fault("", 0, section, _TOO_LONG)])
            if systems and value_at(row, kind.system_lookup) not in systems:
                continue
            address = kinds.address_of(kind, row)
            name = kinds.name_of(address)
            if name in listed_names:
                continue
            if self._options.label:
                released_names.append(kinds.kept_name(name))
            if kind.is_removed(row):
                continue
            action, note = Action.UNLISTED, ""
            removable = self._options.removable
            if not self._options.should_prune:
                pass
            elif not kinds.can_name(kind, address):
                note = "A file cannot name it: it stays."
            elif removable is not None and f"{section} {name}" not in removable:
                words = "It came meanwhile, and nobody was asked whether to remove it. Repeat."
                self._faults.append(Fault("", 0, f"{section}.{name}", words))
            else:
                resource = self._resource(kind, address)
                try:
                    resource.delete()
                except NotNow as error:  # the database needs it: what refers to it stays for good
                    note = str(error)
                else:
                    action = Action.REMOVED
                    released_names.append(kinds.kept_name(name))
                    self._audit_entries += resource.audit_entries or ()
            self._outcome.changes.append(Change(action, section, name, note=note))
        KeptObject.objects.filter(section=section, name__in=released_names).delete()


def _keep(resource: Resource, row: Any, kept_object: KeptObject | None, label: str) -> None:
    """Note that the row is as a file says. Without a label no new row is noted; an object that is
    kept already keeps its label."""
    if kept_object is None and not label:
        return
    version = resource.version(row)
    label = label or (kept_object.label if kept_object else "")
    if kept_object is not None and (kept_object.label, kept_object.version) == (label, version):
        return
    KeptObject.objects.update_or_create(
        section=kinds.section_of(type(resource)),
        name=kinds.kept_name(kinds.name_of(resource.address)),
        defaults={
            "label": label, "version": version, "applied_at": timezone.now(),
            "applied_by": resource.actor[:150],
        },
    )  # fmt: skip


def titles_with_secrets(description: Description) -> list[str]:
    """The titles of the objects that have a secret in the files."""
    return [
        f"{entry.section} {entry.name}"
        for entry in description.entries
        if _secret_names(entry.kind) & entry.body.keys()
    ]


def _secret_names(kind: Kind) -> set[str]:
    fields = fields_of(kind.serializer_class).items()
    return {name for name, field in fields if field.source in kind.secret_fields}


def _change(resource: Resource, entry: Entry, stored: Stored, note: str) -> Change:
    section, name = entry.section, entry.name
    if stored.is_new:
        secret_names = _secret_names(entry.kind)
        body = {
            field_name: _readable_value(resource, field_name, value)
            for field_name, value in entry.body.items()
            if field_name not in secret_names
        }
        secrets = sorted(secret_names & entry.body.keys())
        return Change(Action.ADDED, section, name, body, {}, secrets, "", stored.shown_once)
    if not stored.differences and not stored.changed_secrets:
        return Change(Action.UNCHANGED, section, name)
    differences = {
        field_name: {side: _readable_value(resource, field_name, sides[side]) for side in sides}
        for field_name, sides in stored.differences.items()
    }
    return Change(Action.CHANGED, section, name, {}, differences, stored.changed_secrets, note)


def _readable_value(resource: Resource, name: str, value: Any) -> Any:
    """A value for other readers, such as in the log of a pipeline."""
    return value if value is None else resource.audit_value(name, value)
