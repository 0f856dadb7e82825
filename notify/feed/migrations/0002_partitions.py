"""Partitions by id range, where the database has them; the cleaner adds days and months."""

from django.db import migrations

from msgplatform.core.archive.description import DAILY
from msgplatform.core.archive.partitions import make_operation


class Migration(migrations.Migration):
    initial = True

    dependencies = [("feed", "0001_initial")]

    operations = [
        make_operation("eventqueue", column="qid", step=DAILY),
        make_operation("feed_broadcast", column="feed_id"),
    ]
