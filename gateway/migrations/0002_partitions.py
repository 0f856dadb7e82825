"""The archive of SMS has partitions by id range, where the database has them."""

from typing import Any

from django.db import migrations

from msgplatform.core.archive import partitions


def partition(_apps: Any, schema_editor: Any) -> None:
    """Make the months; the pump adds the next ones."""
    partitions.partition(
        schema_editor.connection,
        *("sgip_mt", "sgip_mt_part", "sgip_report", "sgip_mo", "sgip_user_rpt"),
    )


class Migration(migrations.Migration):
    initial = True

    dependencies = [("gateway", "0001_initial")]

    operations = [
        migrations.RunPython(partition, migrations.RunPython.noop, atomic=False),
    ]
