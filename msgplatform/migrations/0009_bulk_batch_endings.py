from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('msgplatform', '0008_audit_log_target'),
    ]

    operations = [
        migrations.AddField(
            model_name='bulkbatch',
            name='endings',
            field=models.TextField(blank=True, default=''),
        ),
    ]
