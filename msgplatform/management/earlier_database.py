"""Bring a database of an earlier tree over: its tables stay, and its migrations get their new
names.

Until the first release each app had up to sixteen migrations; now it has at most two, which make
the same tables. So a database that has the last of an app's earlier migrations needs nothing but
the new names in `django_migrations`. A database that lacks it is refused.
"""

from __future__ import annotations

from django.apps import apps
from django.contrib.auth import get_user_model
from django.db import router, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from msgplatform.core.errors import Permanent

# App → its last earlier migrations, any of which will do: they differ in labels, and in the table
# of one-time passwords, which is dropped here.
_LAST = {
    "msgplatform": ("0013_exact_names", "0014_failure_group", "0015_link_for_the_first_user"),
    "notify": ("0016_turns_of_systems",),
    "gateway": ("0010_exact_names",),
    "crmsync": ("0010_exact_names",),
}
# The migrations that make the same tables; later ones are applied as to every database.
_TABLES = ("0001_tables", "0002_partitions", "0002_triggers_and_partitions")
# The commit whose `migrate` makes these migrations.
_COMMIT = "3f92bdf"
_MAX_NAMED = 5  # differences in the sentence
_ONE_TIME_PASSWORDS = "msgplatform_onetimepassword"


class EarlierDatabase(Permanent):
    """The database is of an earlier tree, and cannot be brought over as it is."""


def earlier_apps(connection: BaseDatabaseWrapper) -> list[str]:
    """The installed apps whose earlier migrations are recorded in the database."""
    names = _recorded_names(connection)
    return [app for app in _LAST if app in names and apps.is_installed(app)]


def bring_over(connection: BaseDatabaseWrapper) -> list[str]:
    """Record the migrations of earlier apps under their new names, in one transaction; the names of
    these apps. Raises EarlierDatabase if an app lacks its last earlier migration, or if a table is
    not as the new migrations make it; nothing has changed then."""
    labels = earlier_apps(connection)
    if not labels:
        return []
    names = _recorded_names(connection)
    for app in labels:
        if not names[app].intersection(_LAST[app]):
            raise EarlierDatabase(
                f"The database {connection.alias} is of an earlier tree: its last migration of "
                f"{app} is {max(names[app])}, and {_LAST[app][0]} is needed. Check out the commit "
                f"{_COMMIT}, run its manage.py migrate --database {connection.alias}, then come "
                "back to this release and run migrate again."
            )
    if differences := _differences(connection, labels):
        raise EarlierDatabase(
            f"The database {connection.alias} is of an earlier tree, and its tables are not as "
            f"that tree made them: {'; '.join(differences[:_MAX_NAMED])}. Repair the tables, or "
            "restore a backup, then run migrate again."
        )
    _end_one_time_passwords(connection)
    recorder = MigrationRecorder(connection)
    loader = MigrationLoader(None)
    with transaction.atomic(using=connection.alias):
        recorder.migration_qs.filter(app__in=labels).delete()
        for app, name in sorted(loader.disk_migrations):
            if app in labels and name in _TABLES:
                recorder.record_applied(app, name)
        if "django_content_type" in connection.introspection.table_names():
            # A model has another name since then, and one is gone.
            types = apps.get_model("contenttypes", "ContentType").objects.using(connection.alias)
            if not types.filter(app_label="msgplatform", model="failuregroup").exists():
                types.filter(app_label="msgplatform", model="givenup").update(model="failuregroup")
            types.filter(app_label="msgplatform", model="onetimepassword").delete()
    return labels


def _recorded_names(connection: BaseDatabaseWrapper) -> dict[str, set[str]]:
    """App → names of its earlier migrations that are recorded in the database."""
    names: dict[str, set[str]] = {}
    disk = MigrationLoader(None).disk_migrations
    for app, name in MigrationRecorder(connection).applied_migrations():
        if app in _LAST and (app, name) not in disk:
            names.setdefault(app, set()).add(name)
    return names


def _end_one_time_passwords(connection: BaseDatabaseWrapper) -> None:
    """Take away the passwords that `up` made for one login: it prints a link instead."""
    if _ONE_TIME_PASSWORDS not in connection.introspection.table_names():
        return
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT user_id FROM {_ONE_TIME_PASSWORDS}")  # noqa: S608
        user_ids = [user_id for (user_id,) in cursor.fetchall()]
        users = get_user_model()._default_manager.using(connection.alias)
        for user in users.filter(pk__in=user_ids):
            user.set_unusable_password()
            user.last_login = None
            user.save(update_fields=["password", "last_login"])
        cursor.execute(f"DROP TABLE {_ONE_TIME_PASSWORDS}")


def _differences(connection: BaseDatabaseWrapper, labels: list[str]) -> list[str]:
    """The tables of these apps that differ in their columns from the models."""
    differences = []
    loader = MigrationLoader(None)
    tables_of = [key for key in loader.disk_migrations if key[0] in labels and key[1] in _TABLES]
    state = loader.project_state(sorted(tables_of))
    with connection.cursor() as cursor:
        tables = set(connection.introspection.table_names(cursor))
        for model in state.apps.get_models(include_auto_created=True):
            is_ours = model._meta.app_label in labels and model._meta.managed
            if not is_ours or not router.allow_migrate_model(connection.alias, model):
                continue
            table = model._meta.db_table
            if table not in tables:
                differences.append(f"there is no table {table}")
                continue
            description = connection.introspection.get_table_description(cursor, table)
            columns = {column.name for column in description}
            fields = {str(field.column) for field in model._meta.local_concrete_fields}
            if missing := sorted(fields - columns):
                differences.append(f"the table {table} lacks {', '.join(missing)}")
            if extra := sorted(columns - fields):
                differences.append(f"the table {table} has {', '.join(extra)} besides")
    return differences
