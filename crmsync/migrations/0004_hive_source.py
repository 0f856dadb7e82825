from django.db import migrations

from msgplatform.core.archive.partitions import partition


def add_hive(apps, schema_editor):
    """The source that everybody has: the platform's own store of leads."""
    apps.get_model('crmsync', 'Source').objects.using(schema_editor.connection.alias).update_or_create(
        name='hive',
        defaults={
            'database': '',
            'table': 'lead',
            'key_column': 'id',
            'time_column': 'UpdateTime',
            'deleted_column': 'IsDelete',
            'version_column': 'version',
            'value_columns': ['biz_id', 'appkey', 'uid', 'name', 'phone', 'extra'],
        },
    )


def partition_tables(apps, schema_editor):
    partition(schema_editor.connection, 'sync_run', 'sync_operation', 'sync_item', 'exception_log')


class Migration(migrations.Migration):

    dependencies = [
        ('crmsync', '0003_sync'),
    ]

    operations = [
        migrations.RunPython(add_hive, migrations.RunPython.noop, hints={'model_name': 'source'}),
        migrations.RunPython(
            partition_tables, migrations.RunPython.noop, atomic=False, hints={'model_name': 'operation'}
        ),
    ]
