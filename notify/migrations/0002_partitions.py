"""The archive of Notify has partitions by id range, where the database has them."""

from typing import Any

from django.db import migrations

from msgplatform.core.archive import partitions


def partition(_apps: Any, schema_editor: Any) -> None:
    """Make the months; the archiver adds the next ones."""
    partitions.partition(
        schema_editor.connection, "biz_msg_cold", "receive_msg_cold", "attempt_cold"
    )


class Migration(migrations.Migration):
    initial = True

    dependencies = [("notify", "0001_initial")]

    operations = [
        # The model's name tells the router to which database this belongs.
        migrations.RunPython(
            partition, migrations.RunPython.noop, atomic=False, hints={"model_name": "coldbizmsg"}
        ),
    ]
