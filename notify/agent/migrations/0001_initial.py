"""Both tables, from `ddl/`; the models are only what Django knows of them."""

import django.db.models.functions.datetime
from django.db import migrations, models

from notify.agent.schema import CreateTables


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[CreateTables()],
            state_operations=[
                migrations.CreateModel(
                    name='Outbox',
                    fields=[
                        ('id', models.BigAutoField(primary_key=True, serialize=False)),
                        ('msg_key', models.CharField(max_length=128, verbose_name='key')),
                        ('event_type', models.CharField(max_length=128, verbose_name='event type')),
                        ('channel', models.CharField(blank=True, db_default='', max_length=64, verbose_name='channel')),
                        ('payload', models.TextField(verbose_name='payload')),
                        ('attempts', models.IntegerField(db_default=0, verbose_name='attempts')),
                        ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name='created')),
                        ('next_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name='next')),
                        ('claimed_by', models.CharField(blank=True, db_default='', max_length=32, verbose_name='claimed by')),
                        ('last_error', models.CharField(blank=True, db_default='', max_length=500, verbose_name='last error')),
                        ('traceparent', models.CharField(blank=True, db_default='', max_length=55, verbose_name='traceparent')),
                    ],
                    options={
                        'verbose_name': 'outbox row',
                        'verbose_name_plural': 'outbox',
                        'db_table': 'outbox',
                    },
                ),
                migrations.CreateModel(
                    name='OutboxDead',
                    fields=[
                        ('id', models.BigAutoField(primary_key=True, serialize=False)),
                        ('msg_key', models.CharField(max_length=128, verbose_name='key')),
                        ('event_type', models.CharField(max_length=128, verbose_name='event type')),
                        ('channel', models.CharField(blank=True, db_default='', max_length=64, verbose_name='channel')),
                        ('payload', models.TextField(verbose_name='payload')),
                        ('attempts', models.IntegerField(db_default=0, verbose_name='attempts')),
                        ('created_at', models.DateTimeField(verbose_name='created')),
                        ('code', models.CharField(max_length=32, verbose_name='code')),
                        ('reason', models.CharField(max_length=500, verbose_name='reason')),
                        ('died_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name='died')),
                    ],
                    options={
                        'verbose_name': 'dead outbox row',
                        'verbose_name_plural': 'dead outbox rows',
                        'db_table': 'outbox_dead',
                    },
                ),
            ],
        ),
    ]
