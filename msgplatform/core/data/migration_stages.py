"""Migrations of two stages: *before* runs while programs of the release before work, *after* runs
once none of these programs is left. And whether a database has its migrations and their tables.

A migration is of the stage *before* unless its class says `stage = "after"`. A *before* migration
only adds, so that programs that do not know it go on, and the way back is open until *after* has
run. Migrations with Django's `initial = True` made the first release: no program is older.

`migrations/newest.lock` has a line for each app with its newest migration, so that two branches
that add one meet in git.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core import checks
from django.db import migrations, router
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.migration import Migration
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

from msgplatform import env

AFTER = "after"
LOCK_FILE = Path(__file__).resolve().parents[2] / "migrations" / "newest.lock"
Key = tuple[str, str]  # app and name of a migration
_MAX_NAMED = 5  # tables in a sentence
# Characters of utf8mb4 that fit into the 255 bytes of a VARCHAR with a length of one byte.
_MAX_SHORT = 63

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
                parents = loader.graph.node_map[key].parents
                needs_late = any(parent.key in late for parent in parents)
                is_late = needs_late or is_after(loader.graph.nodes[key])
                (late if is_late else early)[key] = None
    return list(early), list(late)


def count_open(connection: BaseDatabaseWrapper) -> int:
    """The number of migrations that are not applied and that programs need: those of the stage
    *before*."""
    return len(split(MigrationLoader(connection))[0])


def migrate_command(alias: str) -> str:
    return f"{env.COMMAND} migrate --database {alias}"


def tables_of_migrations(connection: BaseDatabaseWrapper) -> set[str]:
    """Names of the tables that the applied migrations of a database made."""
    loader = MigrationLoader(connection)
    records = loader.applied_migrations or {}
    nodes = [node for node in loader.graph.nodes if node in records]
    return {
        model._meta.db_table
        for model in loader.project_state(nodes).apps.get_models(include_auto_created=True)
        if model._meta.managed and router.allow_migrate_model(connection.alias, model)
    }


def database_errors(alias: str) -> str:
    """The errors of Django's checks of a database, one on each line; '' for none."""
    messages = checks.run_checks(tags=[checks.Tags.database], databases=[alias])
    return "\n".join(str(m) for m in messages if m.is_serious() and not m.is_silenced())


def enumerate_tables(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return f"{', '.join(names[:_MAX_NAMED])}{more}"


def missing_tables(connection: BaseDatabaseWrapper) -> str:
    """A sentence with missing tables of applied migrations; '' if none is missing.

    A dump has django_migrations before most other tables, so that a load which ends early leaves a
    database with nothing to migrate.
    """
    table_names = connection.introspection.table_names()
    missing_names = sorted(tables_of_migrations(connection).difference(table_names))
    if not missing_names:
        return ""
    return (
        f"The database {connection.alias} lacks tables that its migrations made "
        f"({enumerate_tables(missing_names)}): the load of a dump was cut short. Drop the "
        "database and load the dump again, and look at the exit status of the load."
    )


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
    app, new_models = migration.app_label, set[str]()
    for operation in migration.operations:
        for part in getattr(operation, "database_operations", [operation]):
            model = _model(part)
            # A table that the same migration makes is not used by any older program.
            if model not in new_models and (
                text := _fault(part, state, (app, model), is_after(migration))
            ):
                yield f"{app}.{migration.name}: {part.describe()}: {text}"
            if isinstance(part, migrations.CreateModel):
                new_models.add(model)
        operation.state_forwards(app, state)


def lock() -> dict[str, str]:
    """App → its newest migration. Flows that are switched off are in it, too."""
    text = LOCK_FILE.read_text(encoding="utf-8")
    return dict(line.split(" ", 1) for line in text.splitlines())


def write_lock() -> None:
    names = lock() | _newest(MigrationLoader(None, ignore_no_migrations=True))
    text = "".join(f"{app} {names[app]}\n" for app in sorted(names))
    LOCK_FILE.write_text(text, encoding="utf-8")


def _newest(loader: MigrationLoader) -> dict[str, str]:
    labels = sorted({app for app, _ in _own_migrations(loader)})
    return {app: name for label in labels for app, name in loader.graph.leaf_nodes(label)}


def _own_migrations(loader: MigrationLoader) -> dict[Key, Migration]:
    packages = ("msgplatform.", *(f"{flow}." for flow in settings.FLOWS))
    return {
        key: migration
        for key, migration in (loader.disk_migrations or {}).items()
        if type(migration).__module__.startswith(packages)
    }


def _model(operation: Operation) -> str:
    """The name of the operation's model in lower case; '' for one without a model."""
    return str(getattr(operation, "model_name_lower", getattr(operation, "name_lower", "")))


def _is_optional(field: Any) -> bool:
    """True if a row can be inserted without the field."""
    return bool(field.many_to_many or field.null or field.has_db_default())


def _fault(operation: Operation, state: ProjectState, model: Key, is_late: bool) -> str:
    """Why programs of the release before would fail beside this operation, or those of the new one
    until it has run (`is_late`); '' if they go on."""
    if is_late:
        if isinstance(operation, migrations.RemoveField):
            field = state.models[model].fields[operation.name]
            if not _is_optional(field):
                return f"{_INSERTS}: let a migration before it give it null=True or db_default"
        if isinstance(operation, migrations.CreateModel | migrations.AddField):
            return "programs of the new release need it: move it to a migration that runs before"
        return ""
    if isinstance(operation, _HARMLESS) or getattr(operation, "is_safe_before", False):
        return ""
    if isinstance(operation, migrations.AddField):
        field = operation.field
        if not _is_optional(field):
            return f"{_INSERTS}: give it null=True or db_default"
        if getattr(field, "db_constraint", False) and not field.many_to_many:
            return "a foreign key locks the table while it is checked: give it db_constraint=False"
        return ""
    if isinstance(operation, migrations.AlterField):
        # The column may stay as it is, or take more than before.
        old_field, new_field = state.models[model].fields[operation.name], operation.field
        (_, *old_kind, old), (_, *new_kind, new) = old_field.deconstruct(), new_field.deconstruct()
        harmless_names = {*new_field.non_db_attrs, "default", "db_default"}
        harmless_names |= {"null"} if new_field.null else set()
        old_length, new_length = (options.get("max_length") or 0 for options in (old, new))
        if new_length > old_length > 0:
            if new_length > _MAX_SHORT >= old_length:
                return (
                    f"beyond {_MAX_SHORT} characters MariaDB and MySQL copy the table, and nobody "
                    f"writes to it meanwhile: {_INSTEAD[migrations.RenameField]}"
                )
            harmless_names.add("max_length")
        old_options, new_options = (
            {name: value for name, value in options.items() if name not in harmless_names}
            for options in (old, new)
        )
        is_same = (old_kind, old_options) == (new_kind, new_options)
        return "" if is_same else f"it changes the column: {_LATER}"
    return _INSTEAD.get(type(operation), f"it takes something away or refuses rows: {_LATER}")


class Undo:
    """Takes back what a failed migration of the stage *before* has done, where the database commits
    each change of a table by itself: then it can be repeated. `keys` have not been applied."""

    def __init__(self, connection: BaseDatabaseWrapper, keys: Sequence[Key]) -> None:
        self._connection, self._keys = connection, keys
        self._former_places = {place for place, _ in self._existing(MigrationLoader(connection))}

    def take_back(self) -> None:
        """Remove what is there now and was not before, of the first migration that is not
        applied. SQLite has rolled the migration back: a later change is another `migrate`'s."""
        if self._connection.features.can_rollback_ddl:
            return
        loader = MigrationLoader(self._connection)
        applied_keys = loader.applied_migrations or {}
        failed_key = next((key for key in self._keys if key not in applied_keys), None)
        for (key, number), operation in reversed(list(self._existing(loader))):
            if key != failed_key or (key, number) in self._former_places:
                continue
            app = key[0]
            state = loader.project_state(key, at_end=False)
            for earlier_operation in loader.graph.nodes[key].operations[:number]:
                earlier_operation.state_forwards(app, state)
            state_after = state.clone()
            operation.state_forwards(app, state_after)
            with self._connection.schema_editor() as editor:
                operation.database_backwards(app, editor, state_after, state)

    def _existing(self, loader: MigrationLoader) -> Iterator[tuple[tuple[Key, int], Operation]]:
        """The operations whose table, column or index is there, with their places."""
        introspection = self._connection.introspection
        tables = introspection.table_names()
        for key in self._keys:
            state = loader.project_state(key, at_end=False)
            for number, operation in enumerate(loader.graph.nodes[key].operations):
                operation.state_forwards(key[0], state)
                model = _model(operation)
                if (key[0], model) not in state.models:
                    continue
                table = state.models[key[0], model].options.get("db_table") or f"{key[0]}_{model}"
                names: set[str] = set()
                if isinstance(operation, migrations.CreateModel):
                    name, names = table, set(tables)
                elif isinstance(operation, migrations.AddIndex) and table in tables:
                    with self._connection.cursor() as cursor:
                        names = set(introspection.get_constraints(cursor, table))
                    name = operation.index.name
                elif isinstance(operation, migrations.AddField) and table in tables:
                    with self._connection.cursor() as cursor:
                        columns = introspection.get_table_description(cursor, table)
                    names = {column.name for column in columns}
                    field = operation.field.clone()
                    field.set_attributes_from_name(operation.name)
                    name = field.column or ""
                else:
                    continue
                if name in names:
                    yield (key, number), operation
