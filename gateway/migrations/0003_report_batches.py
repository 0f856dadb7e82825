from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("gateway", "0002_partitions")]

    operations = [
        migrations.AddField(
            "smsaccount",
            "report_batches",
            models.BooleanField(
                db_default=False,
                default=False,
                help_text="Endings as events sms.reports, up to 200 in each, instead of one "
                "sms.report for each message",
                verbose_name="Reports in batches",
            ),
        ),
        migrations.AddField(
            "sgipmt", "event_id", models.BigIntegerField(null=True, verbose_name="event")
        ),
    ]
