"""The tables of the platform: systems, keys, people, jobs, counters, failures, alerts."""

import django.db.models.deletion
import msgplatform.core.fields
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
    ]

    operations = [
        migrations.CreateModel(
            name='Alert',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(max_length=64, verbose_name='kind')),
                ('subject', models.CharField(max_length=200, verbose_name='subject')),
                ('text', models.TextField(blank=True, default='', verbose_name='text')),
                ('open_key', msgplatform.core.fields.ExactCharField(blank=True, editable=False, max_length=200, null=True, unique=True)),
                ('key', msgplatform.core.fields.ExactCharField(db_index=True, max_length=200, verbose_name='key')),
                ('count', models.PositiveIntegerField(default=1, verbose_name='count')),
                ('first_at', models.DateTimeField(verbose_name='first seen')),
                ('last_at', models.DateTimeField(verbose_name='last seen')),
                ('resolved_at', models.DateTimeField(blank=True, null=True, verbose_name='resolved')),
                ('acknowledged_at', models.DateTimeField(blank=True, null=True, verbose_name='acknowledged')),
                ('acknowledged_by', models.CharField(blank=True, db_default='', default='', max_length=150, verbose_name='acknowledged by')),
                ('note', models.CharField(blank=True, db_default='', default='', max_length=500, verbose_name='note')),
                ('said', models.JSONField(default=dict, editable=False)),
            ],
            options={
                'verbose_name': 'alert',
                'verbose_name_plural': 'alerts',
                'ordering': ['-last_at'],
            },
        ),
        migrations.CreateModel(
            name='AuditLog',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField(auto_now_add=True, verbose_name='time')),
                ('actor', models.CharField(max_length=150, verbose_name='who')),
                ('action', models.CharField(max_length=64, verbose_name='action')),
                ('target', models.CharField(max_length=200, verbose_name='on what')),
                ('detail', models.JSONField(blank=True, default=dict, verbose_name='detail')),
            ],
            options={
                'verbose_name': 'audit entry',
                'verbose_name_plural': 'audit log',
                'ordering': ['-id'],
                'indexes': [models.Index(fields=['target', 'id'], name='audit_log_target'), models.Index(fields=['action', 'id'], name='audit_log_action'), models.Index(fields=['at'], name='audit_log_at')],
            },
        ),
        migrations.CreateModel(
            name='Biz',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', msgplatform.core.fields.ExactSlugField(help_text='Short, stable, lower case: orders', max_length=64, unique=True, verbose_name='name')),
                ('title', models.CharField(blank=True, default='', max_length=200, verbose_name='title')),
                ('enabled', models.BooleanField(default=True, help_text='Off: its API keys are refused.', verbose_name='enabled')),
                ('created_at', models.DateTimeField(auto_now_add=True, verbose_name='created')),
                ('validates_events', models.BooleanField(db_default=False, default=False, help_text='Its events are refused unless they match the JSON Schema of their event type in the catalogue; event types without a schema pass.', verbose_name='validates events')),
            ],
            options={
                'verbose_name': 'business system',
                'verbose_name_plural': 'business systems',
                'db_table': 'biz',
                'ordering': ['name'],
                'permissions': [('view_personal', 'Can see payloads, texts and personal data in clear'), ('view_queues', 'Can see the queues and their orders')],
            },
        ),
        migrations.CreateModel(
            name='IdNode',
            fields=[
                ('node', models.PositiveSmallIntegerField(primary_key=True, serialize=False)),
                ('holder', models.CharField(blank=True, default='', max_length=32)),
                ('lease_until', models.DateTimeField(null=True)),
                ('last_tick', models.BigIntegerField(default=0)),
            ],
            options={
                'verbose_name': 'id node',
                'db_table': 'id_node',
            },
        ),
        migrations.CreateModel(
            name='ApiKey',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(help_text='Where it is used', max_length=100, verbose_name='name')),
                ('prefix', msgplatform.core.fields.ExactCharField(editable=False, max_length=16, unique=True, verbose_name='prefix')),
                ('hash', models.CharField(editable=False, max_length=64)),
                ('scopes', models.JSONField(blank=True, default=list, verbose_name='scopes')),
                ('created_at', models.DateTimeField(auto_now_add=True, verbose_name='created')),
                ('expires_at', models.DateTimeField(blank=True, null=True, verbose_name='expires')),
                ('revoked_at', models.DateTimeField(blank=True, null=True, verbose_name='revoked')),
                ('last_used_at', models.DateTimeField(blank=True, editable=False, null=True, verbose_name='last used')),
                ('biz', models.ForeignKey(blank=True, help_text='Empty: a management key, which sets up the platform and sends nothing', null=True, on_delete=django.db.models.deletion.CASCADE, related_name='api_keys', to='msgplatform.biz', verbose_name='system')),
            ],
            options={
                'verbose_name': 'API key',
                'verbose_name_plural': 'API keys',
                'ordering': ['-id'],
            },
        ),
        migrations.CreateModel(
            name='BulkJob',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('flow', models.CharField(max_length=32, verbose_name='flow')),
                ('action', models.CharField(default='requeue', max_length=32, verbose_name='action')),
                ('filter', models.JSONField(default=dict, verbose_name='filter')),
                ('state', models.CharField(choices=[('pending', 'pending'), ('running', 'running'), ('paused', 'paused'), ('cancelled', 'cancelled'), ('done', 'done'), ('failed', 'failed')], default='pending', max_length=16, verbose_name='state')),
                ('total', models.PositiveBigIntegerField(default=0, verbose_name='total')),
                ('done', models.PositiveBigIntegerField(default=0, verbose_name='done')),
                ('cursor', models.CharField(blank=True, default='', max_length=200)),
                ('rate', models.PositiveIntegerField(default=0, help_text='0: as fast as it goes', verbose_name='messages per second')),
                ('error', models.TextField(blank=True, default='', verbose_name='error')),
                ('created_by', models.CharField(max_length=150, verbose_name='created by')),
                ('created_at', models.DateTimeField(auto_now_add=True, verbose_name='created')),
                ('finished_at', models.DateTimeField(blank=True, null=True, verbose_name='finished')),
                ('claimed_by', models.CharField(blank=True, default='', max_length=32)),
                ('lease_until', models.DateTimeField(blank=True, null=True)),
                ('more', models.BooleanField(db_default=False, default=False, verbose_name='or more')),
                ('started_from', msgplatform.core.fields.ExactCharField(editable=False, max_length=32, null=True, unique=True)),
                ('waits', models.BooleanField(db_default=False, default=False, editable=False)),
            ],
            options={
                'verbose_name': 'bulk job',
                'verbose_name_plural': 'bulk jobs',
                'ordering': ['-id'],
                'indexes': [models.Index(fields=['state', 'lease_until'], name='bulk_job_claim')],
            },
        ),
        migrations.CreateModel(
            name='MinuteCounter',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('minute', models.DateTimeField(verbose_name='minute')),
                ('flow', models.CharField(max_length=16, verbose_name='flow')),
                ('biz_id', models.BigIntegerField(verbose_name='system')),
                ('subject', models.BigIntegerField(default=0, help_text='The subscription, gateway or CRM; 0: none', verbose_name='subject')),
                ('name', models.CharField(max_length=32, verbose_name='counter')),
                ('value', models.BigIntegerField(default=0, verbose_name='value')),
            ],
            options={
                'verbose_name': 'counter',
                'verbose_name_plural': 'counters',
                'constraints': [models.UniqueConstraint(fields=('minute', 'flow', 'biz_id', 'subject', 'name'), name='minute_counter_key')],
                'indexes': [models.Index(fields=['flow', 'subject', 'minute'], name='minute_counter_subject')],
            },
        ),
        migrations.CreateModel(
            name='DayCounter',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('day', models.DateField(verbose_name='day')),
                ('flow', models.CharField(max_length=16, verbose_name='flow')),
                ('biz_id', models.BigIntegerField(verbose_name='system')),
                ('subject', models.BigIntegerField(default=0, help_text='The subscription, gateway or CRM; 0: none', verbose_name='subject')),
                ('name', models.CharField(max_length=32, verbose_name='counter')),
                ('value', models.BigIntegerField(default=0, verbose_name='value')),
            ],
            options={
                'verbose_name': 'daily counter',
                'verbose_name_plural': 'daily counters',
                'indexes': [models.Index(fields=['flow', 'subject', 'day'], name='day_counter_subject'), models.Index(fields=['flow', 'day', 'name', 'biz_id', 'subject', 'value'], name='day_counter_flow')],
                'constraints': [models.UniqueConstraint(fields=('day', 'flow', 'biz_id', 'subject', 'name'), name='day_counter_key')],
            },
        ),
        migrations.CreateModel(
            name='Preferences',
            fields=[
                ('user', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='preferences', serialize=False, to=settings.AUTH_USER_MODEL)),
                ('language', models.CharField(blank=True, default='', max_length=16, verbose_name='language')),
                ('time_zone', models.CharField(blank=True, default='', max_length=64, verbose_name='time zone')),
            ],
            options={
                'verbose_name': 'preferences',
                'verbose_name_plural': 'preferences',
            },
        ),
        migrations.CreateModel(
            name='Role',
            fields=[
                ('name', models.CharField(max_length=32, primary_key=True, serialize=False)),
                ('group', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='role', to='auth.group')),
            ],
            options={
                'verbose_name': 'role',
                'verbose_name_plural': 'roles',
            },
        ),
        migrations.CreateModel(
            name='Acknowledgement',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('flow', models.CharField(max_length=16, verbose_name='flow')),
                ('subject', models.BigIntegerField(verbose_name='subject')),
                ('place', models.CharField(max_length=200, verbose_name='where')),
                ('answer', models.CharField(max_length=200, verbose_name='answer')),
                ('count', models.BigIntegerField(verbose_name='failures')),
                ('until', models.DateTimeField(verbose_name='until')),
                ('note', models.CharField(max_length=500, verbose_name='note')),
                ('actor', models.CharField(max_length=150, verbose_name='who')),
                ('at', models.DateTimeField(auto_now_add=True, verbose_name='time')),
            ],
            options={
                'verbose_name': 'acknowledgement',
                'verbose_name_plural': 'acknowledgements',
                'ordering': ['-id'],
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='BulkBatch',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('cursor', msgplatform.core.fields.ExactCharField(max_length=200)),
                ('ids', models.TextField(blank=True, default='')),
                ('size', models.PositiveIntegerField()),
                ('arrived', models.PositiveIntegerField(default=0)),
                ('failed', models.PositiveIntegerField(default=0)),
                ('waiting', models.PositiveIntegerField(default=0)),
                ('created_at', models.DateTimeField()),
                ('look_at', models.DateTimeField(null=True)),
                ('job', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='batches', to='msgplatform.bulkjob')),
                ('endings', models.TextField(blank=True, default='')),
            ],
            options={
                'verbose_name': 'batch of a bulk job',
                'verbose_name_plural': 'batches of bulk jobs',
                'default_permissions': (),
                'indexes': [models.Index(fields=['look_at'], name='bulk_batch_look')],
                'constraints': [models.UniqueConstraint(fields=('job', 'cursor'), name='bulk_batch_once')],
            },
        ),
        migrations.CreateModel(
            name='SavedFilter',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('flow', models.CharField(max_length=32, verbose_name='flow')),
                ('page', models.CharField(max_length=32, verbose_name='page')),
                ('name', models.CharField(max_length=60, verbose_name='name')),
                ('shared', models.BooleanField(default=False, help_text='Everybody who may see these messages can use it', verbose_name='shared')),
                ('query', models.JSONField(default=dict, verbose_name='filter')),
                ('created_at', models.DateTimeField(auto_now=True, verbose_name='saved')),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL, verbose_name='owner')),
            ],
            options={
                'verbose_name': 'saved filter',
                'verbose_name_plural': 'saved filters',
                'ordering': ['name'],
                'default_permissions': (),
                'indexes': [models.Index(fields=['flow', 'page'], name='saved_filter_of_page')],
                'constraints': [models.UniqueConstraint(fields=('owner', 'flow', 'page', 'name'), name='saved_filter_name')],
            },
        ),
        migrations.CreateModel(
            name='HourCounter',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('hour', models.DateTimeField(verbose_name='hour')),
                ('flow', models.CharField(max_length=16, verbose_name='flow')),
                ('biz_id', models.BigIntegerField(verbose_name='system')),
                ('subject', models.BigIntegerField(default=0, help_text='The subscription, gateway or CRM; 0: none', verbose_name='subject')),
                ('name', models.CharField(max_length=32, verbose_name='counter')),
                ('value', models.BigIntegerField(default=0, verbose_name='value')),
            ],
            options={
                'verbose_name': 'hourly counter',
                'verbose_name_plural': 'hourly counters',
                'default_permissions': (),
                'indexes': [models.Index(fields=['flow', 'subject', 'hour'], name='hour_counter_subject'), models.Index(fields=['flow', 'hour', 'name', 'biz_id', 'subject', 'value'], name='hour_counter_flow')],
                'constraints': [models.UniqueConstraint(fields=('hour', 'flow', 'biz_id', 'subject', 'name'), name='hour_counter_key')],
            },
        ),
        migrations.CreateModel(
            name='FailureGroup',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('flow', models.CharField(max_length=16, verbose_name='flow')),
                ('subject', models.BigIntegerField(verbose_name='subject')),
                ('answer', msgplatform.core.fields.ExactCharField(max_length=64, verbose_name='answer')),
                ('count', models.BigIntegerField(default=0, verbose_name='failures')),
                ('lost', models.BigIntegerField(default=0)),
                ('since', models.DateTimeField(verbose_name='since')),
                ('last_at', models.DateTimeField(verbose_name='last')),
                ('sample', models.BigIntegerField()),
                ('said', models.CharField(blank=True, default='', max_length=300)),
                ('counted_since', models.DateTimeField()),
            ],
            options={
                'verbose_name': 'failure',
                'verbose_name_plural': 'failures',
                'default_permissions': (),
                'indexes': [models.Index(fields=['flow', 'count'], name='givenup_open')],
                'constraints': [models.UniqueConstraint(fields=('flow', 'subject', 'answer'), name='givenup_key')],
                'db_table': 'msgplatform_givenup',
            },
        ),
    ]
