"""The column `traceparent` of tables that were made before it."""

from django.db import migrations, models

from notify.agent.schema import AddTraceparent


class Migration(migrations.Migration):

    dependencies = [
        ('outbox', '0001_initial'),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[AddTraceparent()],
            state_operations=[
                migrations.AddField(
                    model_name='outbox',
                    name='traceparent',
                    field=models.CharField(blank=True, db_default='', max_length=55, verbose_name='traceparent'),
                ),
            ],
        ),
    ]
