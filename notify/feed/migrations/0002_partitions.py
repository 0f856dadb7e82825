from django.db import migrations

from msgplatform.core.archive import partitions
from msgplatform.core.archive.description import DAILY


def partition(apps, schema_editor):
    """Partitions by id range, where the database has them; the cleaner adds days and months."""
    partitions.partition(schema_editor.connection, "eventqueue", column="qid", step=DAILY)
    partitions.partition(schema_editor.connection, "feed_broadcast", column="feed_id")


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("feed", "0001_initial"),
    ]

    operations = [
        migrations.RunPython(partition, migrations.RunPython.noop, atomic=False),
    ]
