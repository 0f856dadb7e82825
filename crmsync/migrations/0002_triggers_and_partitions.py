"""The triggers of leads, the source that every platform has, and partitions of the records of runs.

Apart from the tables, so that it can be run again where the database refused the triggers.
"""

from typing import Any

from django.db import migrations

from crmsync.models import lead_triggers
from msgplatform.core.archive.partitions import make_operation


def create_triggers(_apps: Any, schema_editor: Any) -> None:
    lead_triggers.create(schema_editor)


def drop_triggers(_apps: Any, schema_editor: Any) -> None:
    lead_triggers.drop(schema_editor)


def add_hive(apps: Any, schema_editor: Any) -> None:
    """Add the source that every platform has: its own store of leads."""
    sources = apps.get_model("crmsync", "Source").objects
    sources.using(schema_editor.connection.alias).update_or_create(
        name="hive",
        defaults={
            "database": "",
            "table": "lead",
            "key_column": "id",
            "time_column": "UpdateTime",
            "deleted_column": "IsDelete",
            "version_column": "version",
            "value_columns": ["biz_id", "appkey", "uid", "name", "phone", "extra"],
        },
    )


class Migration(migrations.Migration):
    initial = True

    dependencies = [("crmsync", "0001_initial")]

    operations = [
        # The model's name tells the router to which database an operation belongs.
        migrations.RunPython(
            create_triggers, drop_triggers, atomic=False, hints={"model_name": "lead"}
        ),
        migrations.RunPython(add_hive, migrations.RunPython.noop, hints={"model_name": "source"}),
        # The months, where the database has partitions; the poller adds the next ones.
        make_operation(
            "sync_run", "sync_operation", "sync_item", "exception_log", model="operation"
        ),
    ]
