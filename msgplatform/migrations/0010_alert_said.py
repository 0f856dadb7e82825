from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('msgplatform', '0009_bulk_batch_endings'),
    ]

    operations = [
        migrations.AddField(
            model_name='alert',
            name='said',
            field=models.JSONField(default=dict, editable=False),
        ),
    ]
