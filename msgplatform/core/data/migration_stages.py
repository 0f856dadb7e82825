"""Migrations of two stages: *before* runs while programs of the release before work, *after* runs
once none of these programs is left.

A migration is of the stage *before* unless its class says `stage = "after"`. A *before* migration
only adds, so that programs that do not know it go on, and the way back is open until *after* has
run. Migrations with Django's `initial = True` made the first release: no program is older.

`migrations/newest.lock` has a line for each app with its newest migration, so that two branches
that add one meet in git.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import migrations, models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.migration import Migration
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

AFTER = "after"
LOCK_FILE = Path(__file__).resolve().parents[2] / "migrations" / "newest.lock"
Key = tuple[str, str]  # app and name of a migration

_INSERTS = "programs of the other release insert rows without it"
_LATER = 'move it to a migration with stage = "after"'
_HARMLESS = (
    migrations.CreateModel, migrations.AddIndex, migrations.AlterModelOptions,
    migrations.AlterModelManagers,
)  # fmt: skip
_INSTEAD = {
    migrations.RenameField: "add the new column, write both, remove the old one a release later",
    migrations.RenameModel: "add the new table, write both, remove the old one a release later",
    migrations.AlterModelTable: "add the new table, write both, remove the old one a release later",
    migrations.RunPython: "let programs fill the column in batches, or use a subclass with "
    "is_safe_before = True if programs may write meanwhile",
    migrations.RunSQL: "use a subclass with is_safe_before = True if it only adds",
}


def is_after(migration: Migration) -> bool:
    return getattr(migration, "stage", "") == AFTER


def split(loader: MigrationLoader) -> tuple[list[Key], list[Key]]:
    """The migrations that are not applied: those that run before; and those that run after, because
    they, or one that they need, say so. Each list is in an order in which they can be applied."""
    applied_keys = loader.applied_migrations or {}
    early, late = dict[Key, None](), dict[Key, None]()
    for leaf in loader.graph.leaf_nodes():
        for key in loader.graph.forwards_plan(leaf):
            if key not in applied_keys and key not in late:
                needs = loader.graph.node_map[key].parents
                is_late = is_after(loader.graph.nodes[key]) or any(row.key in late for row in needs)
                (late if is_late else early)[key] = None
    return list(early), list(late)


def faults() -> Iterator[str]:
    """A sentence for each operation that is not safe in its stage, with what to write instead."""
    loader = MigrationLoader(None, ignore_no_migrations=True)
    for key, migration in sorted(_own_migrations(loader).items()):
        if not migration.initial:
            yield from faults_of(migration, loader.project_state(key, at_end=False))
    names = lock()
    if any(names.get(app, name) != name for app, name in _newest(loader).items()):
        yield f"{LOCK_FILE.name} is not up to date: manage.py makemigrations writes it"


def faults_of(migration: Migration, state: ProjectState) -> Iterator[str]:
    """The faults of one migration; `state` is that of the models before it, and is changed."""
    judge = _fault_after if is_after(migration) else _fault_before
    app, new_models = migration.app_label, set[str]()
    for operation in migration.operations:
        for part in getattr(operation, "database_operations", [operation]):
            model = str(getattr(part, "model_name_lower", getattr(part, "name_lower", "")))
            # A table that the same migration makes is not used by any older program.
            if model not in new_models and (text := judge(part, state, (app, model))):
                yield f"{app}.{migration.name}: {part.describe()}: {text}"
            if isinstance(part, migrations.CreateModel):
                new_models.add(model)
        operation.state_forwards(app, state)


def lock() -> dict[str, str]:
    """App → its newest migration. Flows that are switched off are in it, too."""
    return dict(line.split(" ", 1) for line in LOCK_FILE.read_text().splitlines())


def write_lock() -> None:
    names = lock() | _newest(MigrationLoader(None, ignore_no_migrations=True))
    LOCK_FILE.write_text("".join(f"{app} {names[app]}\n" for app in sorted(names)))


def _newest(loader: MigrationLoader) -> dict[str, str]:
    labels = sorted({app for app, _ in _own_migrations(loader)})
    return {app: name for label in labels for app, name in loader.graph.leaf_nodes(label)}


def _own_migrations(loader: MigrationLoader) -> dict[Key, Migration]:
    packages = ("msgplatform.", *(f"{flow}." for flow in settings.FLOWS))
    rows = (loader.disk_migrations or {}).items()
    return {key: row for key, row in rows if type(row).__module__.startswith(packages)}


def _fault_before(operation: Operation, state: ProjectState, model: Key) -> str:
    """Why programs of the release before would fail beside this operation; '' if they go on."""
    if isinstance(operation, _HARMLESS) or getattr(operation, "is_safe_before", False):
        return ""
    if isinstance(operation, migrations.AddField):
        field = operation.field
        if not (field.many_to_many or field.null or field.has_db_default()):
            return f"{_INSERTS}: give it null=True or db_default"
        if field.remote_field and not field.many_to_many and field.db_constraint:
            return "a foreign key locks the table while it is checked: give it db_constraint=False"
        return ""
    if isinstance(operation, migrations.AlterField):
        old_field = state.models[model].fields[operation.name]
        return "" if _is_wider(old_field, operation.field) else f"it changes the column: {_LATER}"
    return _INSTEAD.get(type(operation), f"it takes something away or refuses rows: {_LATER}")


def _fault_after(operation: Operation, state: ProjectState, model: Key) -> str:
    """Why programs of the new release would fail until this operation has run; '' if they go on."""
    if isinstance(operation, migrations.RemoveField):
        field = state.models[model].fields[operation.name]
        if not (field.many_to_many or field.null or field.has_db_default()):
            return f"{_INSERTS}: let a migration before it give the column null=True or db_default"
    if isinstance(operation, migrations.CreateModel | migrations.AddField):
        return "programs of the new release need it: move it to a migration that runs before"
    return ""


def _is_wider(old_field: models.Field[Any, Any], new_field: models.Field[Any, Any]) -> bool:
    """True if the column stays as it is, or only takes more than before."""
    (_, old_path, old_args, old), (_, new_path, new_args, new) = (
        field.deconstruct() for field in (old_field, new_field)
    )
    for name in (*new_field.non_db_attrs, "default", "db_default"):
        old.pop(name, None)
        new.pop(name, None)
    if new_field.null:
        old.pop("null", None)
        new.pop("null", None)
    if (new.get("max_length") or 0) > (old.get("max_length") or 0) > 0:
        old["max_length"] = new["max_length"]
    return (old_path, old_args, old) == (new_path, new_args, new)


class Undo:
    """Takes back what a failed migration of the stage *before* has done, where the database commits
    each change of a table by itself: then it can be repeated. `keys` have not been applied."""

    def __init__(self, connection: BaseDatabaseWrapper, keys: Sequence[Key]) -> None:
        self._connection, self._keys = connection, keys
        self._existed = {place for place, _ in self._existing(MigrationLoader(connection))}

    def take_back(self) -> None:
        """Remove what is there now and was not before, of the first migration that is not
        applied."""
        loader = MigrationLoader(self._connection)
        applied_keys = loader.applied_migrations or {}
        failed_key = next((key for key in self._keys if key not in applied_keys), None)
        rows = [row for row in self._existing(loader) if row[0][0] == failed_key]
        for (key, number), operation in reversed(rows):
            if (key, number) in self._existed:
                continue
            state = loader.project_state(key, at_end=False)
            for earlier in loader.graph.nodes[key].operations[:number]:
                earlier.state_forwards(key[0], state)
            after = state.clone()
            operation.state_forwards(key[0], after)
            with self._connection.schema_editor() as editor:
                operation.database_backwards(key[0], editor, after, state)

    def _existing(self, loader: MigrationLoader) -> Iterator[tuple[tuple[Key, int], Operation]]:
        """The operations whose table, column or index is there, with their places."""
        for key in self._keys:
            state = loader.project_state(key, at_end=False)
            for number, operation in enumerate(loader.graph.nodes[key].operations):
                operation.state_forwards(key[0], state)
                if self._is_there(operation, state, key[0]):
                    yield (key, number), operation

    def _is_there(self, operation: Operation, state: ProjectState, app: str) -> bool:
        if not isinstance(
            operation, migrations.CreateModel | migrations.AddField | migrations.AddIndex
        ):
            return False
        is_table = isinstance(operation, migrations.CreateModel)
        model = operation.name_lower if is_table else operation.model_name_lower
        table = state.models[app, model].options.get("db_table") or f"{app}_{model}"
        introspection = self._connection.introspection
        with self._connection.cursor() as cursor:
            if is_table or table not in introspection.table_names(cursor):
                return is_table and table in introspection.table_names(cursor)
            if isinstance(operation, migrations.AddIndex):
                return operation.index.name in introspection.get_constraints(cursor, table)
            field = operation.field.clone()
            field.set_attributes_from_name(operation.name)
            columns = introspection.get_table_description(cursor, table)
            return field.column in {column.name for column in columns}
