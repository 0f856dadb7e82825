"""The archive of Notify has partitions by id range, where the database has them: the months, to
which the archiver adds the next ones."""

from django.db import migrations

from msgplatform.core.archive.partitions import make_operation


class Migration(migrations.Migration):
    initial = True

    dependencies = [("notify", "0001_initial")]

    operations = [
        make_operation("biz_msg_cold", "receive_msg_cold", "attempt_cold", model="coldbizmsg"),
    ]
