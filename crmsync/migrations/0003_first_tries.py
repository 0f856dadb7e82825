"""Operations of which every record was stored at its first try note that, instead of items."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("crmsync", "0002_triggers_and_partitions")]

    operations = [
        migrations.AddField("operation", "first_try_at", models.BigIntegerField(null=True)),
        migrations.AddField("operation", "first_try_ms", models.PositiveIntegerField(null=True)),
    ]
