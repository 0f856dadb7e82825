"""Business systems to which a management key is limited."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('msgplatform', '0004_platform_file'),
    ]

    operations = [
        migrations.AddField(
            model_name='apikey',
            name='systems',
            field=models.JSONField(blank=True, default=list, help_text='A management key that is limited to business systems sees and changes only what belongs to them. Empty: no limit', null=True, verbose_name='limited to'),
        ),
    ]
