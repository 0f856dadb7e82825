from django.db import migrations

from msgplatform.core.archive import partitions


def partition(apps, schema_editor):
    """Partitions by id range, where the database has them; the poller adds the months."""
    partitions.partition(
        schema_editor.connection, 'sync_run', 'sync_operation', 'sync_item', 'exception_log',
    )


class Migration(migrations.Migration):

    dependencies = [
        ('crmsync', '0004_hive_source'),
    ]

    operations = [
        migrations.RunPython(partition, migrations.RunPython.noop, atomic=False),
    ]
