from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('msgplatform', '0007_bulk_outcomes_and_saved_filters'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='auditlog',
            index=models.Index(fields=['target', 'id'], name='audit_log_target'),
        ),
    ]
