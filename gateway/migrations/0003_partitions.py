from django.db import migrations

from msgplatform.core.archive import partitions


def partition(apps, schema_editor):
    """Partitions by id range, where the database has them; the pump adds the months."""
    partitions.partition(
        schema_editor.connection,
        'sgip_mt', 'sgip_mt_part', 'sgip_report', 'sgip_mo', 'sgip_user_rpt',
    )


class Migration(migrations.Migration):

    dependencies = [
        ('gateway', '0002_connections_help'),
    ]

    operations = [
        migrations.RunPython(partition, migrations.RunPython.noop, atomic=False),
    ]
