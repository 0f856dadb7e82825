"""Which trace a message belongs to."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('msgplatform', '0010_person_data'),
    ]

    operations = [
        migrations.CreateModel(
            name='MessageTrace',
            fields=[
                ('id', models.BigIntegerField(primary_key=True, serialize=False)),
                ('traceparent', models.CharField(max_length=55, verbose_name='traceparent')),
            ],
            options={
                'verbose_name': 'traced message',
                'verbose_name_plural': 'traced messages',
                'db_table': 'message_trace',
                'default_permissions': (),
            },
        ),
    ]
