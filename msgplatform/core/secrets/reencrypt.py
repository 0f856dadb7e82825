"""Encrypted columns of all installed models: counts the states of values, and encrypts values with
the first key.

A page of rows is read, then written in one short transaction. A value that changed meanwhile stays
as it is. Every step can be repeated at any time.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
from django.apps import apps
from django.db import DEFAULT_DB_ALIAS, connections, models, router, transaction
from django.db.models.functions import SHA256

from msgplatform.core.data import chunks, engines, transactions
from msgplatform.core.errors import Undecryptable
from msgplatform.core.failpoints import failpoint
from msgplatform.core.secrets import encryption
from msgplatform.core.secrets.encryption import State
from msgplatform.core.secrets.fields import EncryptedTextField, SealedBinaryField

PAGE = 200  # rows of one transaction: a writer that meets it waits for milliseconds only
SEALED_PAGE = 50  # values may have a third of a megabyte
_SPAN = 2000  # rows that one statement looks through for sealed values
_RENEWED = (State.CLEAR, State.OLD)


class Column(msgspec.Struct, frozen=True):
    """An encrypted field of a model, in the database `using`."""

    model: type[models.Model]
    field: str
    using: str

    def __str__(self) -> str:
        return f"{self.model._meta.label}.{self.field}"

    @property
    def rows(self) -> models.QuerySet[Any]:
        rows: models.QuerySet[Any] = models.QuerySet(self.model, using=self.using)
        return rows.filter(**{f"{self.field}__isnull": False}).order_by("pk")

    @property
    def stored(self) -> models.ExpressionWrapper[Any]:
        """The column as it is in the database."""
        return models.ExpressionWrapper(models.F(self.field), output_field=models.TextField())


class JSONColumn(Column, frozen=True):
    """A field of JSON in which the texts under these keys are encrypted, as of a library's model
    whose fields cannot be ours."""

    keys: tuple[str, ...]


# Label of a model → its field and the keys in it; a key may be missing in a row. A model that is
# not installed is left out.
json_fields: dict[str, tuple[str, tuple[str, ...]]] = {}


def columns() -> list[Column]:
    """The encrypted columns of every installed model."""
    encrypted_columns: list[Column] = []
    for model in apps.get_models():
        using, options = router.db_for_write(model), model._meta
        # Local fields: an inherited field is a column of the parent's table, and found there.
        if options.managed and not options.proxy:
            encrypted_columns += [
                Column(model, field.name, using)
                for field in options.local_concrete_fields
                if isinstance(field, EncryptedTextField)
            ]
        if options.label in json_fields:
            field_name, keys = json_fields[options.label]
            encrypted_columns.append(JSONColumn(model, field_name, using, keys))
    return encrypted_columns


def count(column: Column) -> Counter[State]:
    """Count the values of each state; changes nothing."""
    counts: Counter[State] = Counter()
    if isinstance(column, JSONColumn):
        for data in column.rows.values_list(column.field, flat=True).iterator():
            counts.update(encryption.state(data[key]) for key in column.keys if key in data)
        return counts
    for page in _pages(column, PAGE):
        counts.update(encryption.state(stored_text) for _, stored_text in page)
    return counts


def renew(column: Column, size: int = PAGE) -> Iterator[int]:
    """Encrypt values in clear text or under an old key; yields the number of rows of each page.

    A value that no key decrypts stays as it is.
    """
    if isinstance(column, JSONColumn):
        for pks in chunks(list(column.rows.values_list("pk", flat=True)), size):
            for pk in pks:
                transactions.retrying(partial(_renew_row, column, pk), column.using)
            yield len(pks)
        return
    connection, was_clear = connections[column.using], False
    engine = engines.of(column.using)
    engine.overwrite_deleted(connection)  # else the old text would stay in free pages of a file
    for page in _pages(column, size):
        was_clear = was_clear or any(
            not encryption.is_encrypted(stored_text) for _, stored_text in page
        )
        changes = [
            (pk, stored_text, encryption.encrypt(encryption.decrypt(stored_text)))
            for pk, stored_text in page
            if encryption.state(stored_text) in _RENEWED
        ]
        if changes:
            transactions.retrying(partial(_write, column, changes), column.using)
        failpoint("reencrypt.page")
        yield len(page)
    if was_clear and not connection.in_atomic_block:
        engine.clear_log(connection)


def _renew_row(column: JSONColumn, pk: Any) -> None:
    """Encrypt the texts of a row. The row is locked, as the library writes the whole value back."""
    with transaction.atomic(column.using):
        row = column.rows.select_for_update().filter(pk=pk).first()
        if row is None:
            return
        data = getattr(row, column.field)
        old_keys = [k for k in column.keys if encryption.state(data.get(k, "")) in _RENEWED]
        for key in old_keys:
            data[key] = encryption.encrypt(encryption.decrypt(data[key]))
        if old_keys:
            row.save(using=column.using, update_fields=[column.field])


# -- sealed content ------------------------------------------------------------------------------
def sealed_columns() -> list[Column]:
    """The columns with sealed values, the archive's last, because most values move there. Their
    tables are large: reading a table takes a while."""
    all_columns: list[Column] = []
    for model in apps.get_models():
        using = router.db_for_write(model)
        all_columns += [
            Column(model, field.name, using)
            for field in model._meta.local_concrete_fields
            if isinstance(field, SealedBinaryField)
        ]
    return sorted(all_columns, key=lambda column: column.using != DEFAULT_DB_ALIAS)


def renew_sealed(column: Column) -> Iterator[Counter[State]]:
    """Seal values with the first key that are under an old one; yields the states of each page's
    values as they were. Values that no key decrypts, and values in clear text, stay as they are."""
    for page in _sealed_pages(column):
        states: Counter[State] = Counter()
        changes = []
        for pk, old in page:
            try:
                new = encryption.reseal(old)
            except Undecryptable:
                states[State.UNREADABLE] += 1
                continue
            states[State.CURRENT if new is None else State.OLD] += 1
            if new is not None:
                changes.append((pk, old, new))
        if changes:
            transactions.retrying(partial(_write_sealed, column, changes), column.using)
        failpoint("reencrypt.sealed_page")
        yield states


def _sealed_pages(column: Column) -> Iterator[list[tuple[Any, bytes]]]:
    """Read spans of the primary key: a single statement for the next sealed values among millions
    of others would exceed the time limit of statements."""
    start = models.Func(models.F(column.field), 1, len(encryption.PREFIX), function="SUBSTR",
                        output_field=models.BinaryField())  # fmt: skip
    sealed_rows = column.rows.alias(start=start).filter(start=encryption.PREFIX.encode())
    rows = column.rows
    while span := list(rows.values_list("pk", flat=True)[:_SPAN]):
        rows_of_span = sealed_rows.filter(pk__gte=span[0], pk__lte=span[-1])
        for pks in chunks(list(rows_of_span.values_list("pk", flat=True)), SEALED_PAGE):
            page = column.rows.filter(pk__in=pks)
            yield [(pk, bytes(value)) for pk, value in page.values_list("pk", column.field)]
        rows = column.rows.filter(pk__gt=span[-1])


def _write_sealed(column: Column, changes: list[tuple[Any, bytes, bytes]]) -> None:
    with transaction.atomic(column.using):
        for pk, old, new in changes:
            column.rows.filter(pk=pk, **{column.field: old}).update(**{column.field: new})


def _pages(column: Column, size: int) -> Iterator[list[tuple[Any, str]]]:
    # Page by primary key, because with an offset inserted or deleted rows would shift pages.
    rows = column.rows
    while page := list(rows.values_list("pk", column.stored)[:size]):
        yield page
        rows = column.rows.filter(pk__gt=page[-1][0])


def _write(column: Column, changes: list[tuple[Any, str, str]]) -> None:
    """Write the new texts over unchanged old texts. Old texts are compared by digest, which covers
    every byte on any database (collations do not), and puts no clear text into a statement."""
    with transaction.atomic(column.using):
        rows = column.rows.alias(stored_digest=SHA256(column.stored))
        for pk, old, new in changes:
            digest = hashlib.sha256(old.encode()).hexdigest()
            value = models.Value(new, output_field=models.TextField())
            rows.filter(pk=pk, stored_digest=digest).update(**{column.field: value})
        failpoint("reencrypt.write")
