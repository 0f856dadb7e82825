"""The database remembers which cell it belongs to."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("msgplatform", "0002_resend_and_replay")]

    operations = [
        migrations.CreateModel(
            name="CellRecord",
            fields=[
                ("id", models.PositiveSmallIntegerField(default=1, primary_key=True, serialize=False)),
                ("number", models.PositiveSmallIntegerField()),
                ("cells", models.PositiveSmallIntegerField()),
                ("since", models.DateTimeField()),
            ],
            options={"verbose_name": "cell", "db_table": "cell"},
        ),
    ]
