"""The archive of SMS has partitions by id range, where the database has them: the months, to which
the pump adds the next ones."""

from django.db import migrations

from msgplatform.core.archive.partitions import make_operation


class Migration(migrations.Migration):
    initial = True

    dependencies = [("gateway", "0001_initial")]

    operations = [
        make_operation("sgip_mt", "sgip_mt_part", "sgip_report", "sgip_mo", "sgip_user_rpt"),
    ]
