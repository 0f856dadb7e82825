"""The tables of Notify, and those of its archive."""

import django.core.validators
import django.db.models.deletion
import msgplatform.core.fields
import msgplatform.core.secrets.fields
import notify.models.subscriptions
import notify.personal_fields
import notify.subscriptions.limits
import notify.subscriptions.signing
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('msgplatform', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='Receive',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', msgplatform.core.fields.ExactSlugField(max_length=64, unique=True, verbose_name='name')),
                ('title', models.CharField(blank=True, default='', max_length=200, verbose_name='title')),
                ('delivery', models.CharField(choices=[('push', 'pushed to its URL'), ('listen', 'fetched by a listener')], db_default='push', default='push', help_text="Fetched by a listener (listen): for development. It has no URL; a program on an engineer's machine (msgp listen) fetches its messages one after the other.", max_length=8, verbose_name='delivery')),
                ('url', models.CharField(blank=True, default='', help_text='Every message is POSTed to this address.', max_length=1000, validators=[notify.subscriptions.limits.url], verbose_name='URL')),
                ('secret', msgplatform.core.secrets.fields.EncryptedTextField(default=notify.subscriptions.signing.new_secret, editable=False, verbose_name='signing secret')),
                ('previous_secret', msgplatform.core.secrets.fields.EncryptedTextField(blank=True, default='', editable=False, verbose_name='previous secret')),
                ('previous_secret_until', models.DateTimeField(blank=True, editable=False, null=True, verbose_name='previous secret until')),
                ('header_prefix', models.CharField(default='webhook', help_text='webhook is the standard: webhook-id, webhook-timestamp, webhook-signature. Another prefix is for consumers that were written for another platform.', max_length=32, validators=[notify.subscriptions.limits.header_prefix], verbose_name='prefix of the signature headers')),
                ('headers', msgplatform.core.secrets.fields.EncryptedJSONField(blank=True, default=dict, help_text='Sent with every message.', validators=[notify.subscriptions.limits.headers], verbose_name='headers')),
                ('networks', models.JSONField(blank=True, default=list, help_text='Where this consumer may be: 10.2.0.0/16. Empty: wherever the platform may deliver to. It narrows what OUTBOUND_ALLOW opens, it opens nothing.', validators=[notify.subscriptions.limits.networks], verbose_name='allowed networks')),
                ('created_at', models.DateTimeField(auto_now_add=True, verbose_name='created')),
            ],
            options={
                'verbose_name': 'consumer',
                'verbose_name_plural': 'consumers',
                'db_table': 'receive',
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='BizMsg',
            fields=[
                ('id', models.BigIntegerField(primary_key=True, serialize=False)),
                ('event_type', msgplatform.core.fields.ExactCharField(max_length=128, verbose_name='event type')),
                ('channel', msgplatform.core.fields.ExactCharField(blank=True, default='', max_length=64, verbose_name='channel')),
                ('payload', models.BinaryField(verbose_name='payload')),
                ('state', models.PositiveSmallIntegerField(choices=[(0, 'accepted'), (1, 'distributed')], default=0, verbose_name='state')),
                ('created_at', models.DateTimeField(verbose_name='accepted')),
                ('biz', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, to='msgplatform.biz', verbose_name='system')),
            ],
            options={
                'verbose_name': 'message',
                'verbose_name_plural': 'messages',
                'db_table': 'biz_msg',
                'ordering': ['-id'],
            },
        ),
        migrations.CreateModel(
            name='ColdAttempt',
            fields=[
                ('id', models.BigIntegerField(primary_key=True, serialize=False)),
                ('copy_id', models.BigIntegerField()),
                ('claim', models.CharField(max_length=32)),
                ('number', models.PositiveSmallIntegerField()),
                ('at', models.DateTimeField()),
                ('seconds', models.FloatField()),
                ('http_status', models.PositiveSmallIntegerField()),
                ('error', models.CharField(blank=True, default='', max_length=32)),
                ('detail', models.CharField(blank=True, default='', max_length=300)),
                ('response_headers', models.TextField(blank=True, default='')),
                ('response_body', models.TextField(blank=True, default='')),
            ],
            options={
                'verbose_name': 'archived attempt',
                'verbose_name_plural': 'archived attempts',
                'db_table': 'attempt_cold',
                'default_permissions': (),
                'indexes': [models.Index(fields=['copy_id'], name='attempt_cold_of_copy')],
            },
        ),
        migrations.CreateModel(
            name='ColdBizMsg',
            fields=[
                ('id', models.BigIntegerField(primary_key=True, serialize=False)),
                ('biz_id', models.BigIntegerField()),
                ('event_type', msgplatform.core.fields.ExactCharField(max_length=128)),
                ('channel', msgplatform.core.fields.ExactCharField(blank=True, default='', max_length=64)),
                ('payload', models.BinaryField()),
                ('created_at', models.DateTimeField()),
                ('key', msgplatform.core.fields.ExactCharField(blank=True, default='', max_length=128)),
                ('archived_at', models.DateTimeField()),
                ('restored_at', models.DateTimeField(null=True)),
            ],
            options={
                'verbose_name': 'archived message',
                'verbose_name_plural': 'archived messages',
                'db_table': 'biz_msg_cold',
                'default_permissions': (),
                'indexes': [models.Index(fields=['biz_id', 'id'], name='biz_msg_cold_of_biz'), models.Index(fields=['biz_id', 'event_type', 'id'], name='biz_msg_cold_of_both'), models.Index(fields=['event_type', 'id'], name='biz_msg_cold_of_type'), models.Index(fields=['key'], name='biz_msg_cold_of_key')],
            },
        ),
        migrations.CreateModel(
            name='ColdReceiveMsg',
            fields=[
                ('id', models.BigIntegerField(primary_key=True, serialize=False)),
                ('msg_id', models.BigIntegerField()),
                ('biz_id', models.BigIntegerField()),
                ('biz_receive_id', models.BigIntegerField()),
                ('status', models.PositiveSmallIntegerField()),
                ('send_times', models.PositiveSmallIntegerField()),
                ('generation', models.PositiveSmallIntegerField()),
                ('http_status', models.PositiveSmallIntegerField()),
                ('error', models.CharField(blank=True, default='', max_length=200)),
                ('created_at', models.DateTimeField()),
                ('updated_at', models.DateTimeField()),
            ],
            options={
                'verbose_name': 'archived delivery',
                'verbose_name_plural': 'archived deliveries',
                'db_table': 'receive_msg_cold',
                'default_permissions': (),
                'indexes': [models.Index(fields=['msg_id'], name='receive_msg_cold_of_msg'), models.Index(fields=['biz_receive_id', 'msg_id'], name='receive_msg_cold_of_sub'), models.Index(fields=['status', 'msg_id'], name='receive_msg_cold_status')],
            },
        ),
        migrations.CreateModel(
            name='EventType',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('owner', models.PositiveBigIntegerField(default=0, editable=False)),
                ('name', msgplatform.core.fields.ExactCharField(help_text='As it is published: order.paid', max_length=128, validators=[notify.subscriptions.limits.event_type], verbose_name='event type')),
                ('description', models.TextField(blank=True, default='', help_text='When it is published, and what its fields mean', max_length=10000, verbose_name='description')),
                ('example', models.JSONField(blank=True, help_text='A payload as JSON. Test sends begin with it; it must match the schema.', null=True, verbose_name='example')),
                ('schema', models.JSONField(blank=True, help_text='Optional, of draft 2020-12 unless $schema names another. Payloads of systems that validate their events must match it, or are refused.', null=True, verbose_name='JSON Schema')),
                ('personal_fields', models.JSONField(blank=True, default=list, help_text="JSON Pointers to fields with personal data: /customer/phone, /passengers/*/name. They are erased with a person's data.", null=True, validators=[notify.personal_fields.validate], verbose_name='personal fields')),
                ('created_at', models.DateTimeField(auto_now_add=True, verbose_name='created')),
                ('changed_at', models.DateTimeField(auto_now=True, verbose_name='changed')),
                ('biz', models.ForeignKey(blank=True, help_text="Empty: shared by all systems. A system's own entry goes before a shared one.", null=True, on_delete=django.db.models.deletion.CASCADE, to='msgplatform.biz', verbose_name='system')),
            ],
            options={
                'verbose_name': 'event type',
                'verbose_name_plural': 'event types',
                'db_table': 'event_type',
                'ordering': ['name', 'owner'],
            },
        ),
        migrations.CreateModel(
            name='IdempotencyKey',
            fields=[
                ('id', models.BigIntegerField(primary_key=True, serialize=False)),
                ('bucket', models.PositiveSmallIntegerField()),
                ('biz_id', models.BigIntegerField()),
                ('key', msgplatform.core.fields.ExactCharField(max_length=128)),
                ('payload_hash', models.CharField(max_length=64)),
                ('created_at', models.DateTimeField()),
            ],
            options={
                'db_table': 'idempotency',
                'constraints': [models.UniqueConstraint(fields=('bucket', 'biz_id', 'key'), name='idempotency_key')],
            },
        ),
        migrations.CreateModel(
            name='BizReceive',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('status', models.PositiveSmallIntegerField(choices=[(0, 'normal'), (1, 'paused'), (2, 'discarded'), (3, 'resuming, held deliveries are skipped'), (4, 'disabled by the platform')], default=0, help_text='Paused: deliveries are made and held; back to normal releases them. Discarded: no deliveries are made, and those that wait are skipped.', verbose_name='status')),
                ('event_types', models.JSONField(blank=True, default=list, help_text='Patterns: order.* or stock.empty. Empty: every event type.', validators=[notify.subscriptions.limits.event_types], verbose_name='event types')),
                ('channels', models.JSONField(blank=True, default=list, help_text='Exact names. Empty: every channel.', validators=[notify.subscriptions.limits.channels], verbose_name='channels')),
                ('format', models.CharField(choices=[('standard', 'Standard Webhooks'), ('cloudevents', 'CloudEvents, structured'), ('cloudevents-binary', 'CloudEvents, binary')], db_default='standard', default='standard', help_text='How a message is written. CloudEvents 1.0: all in the body, or (binary) attributes in headers and the payload alone as the body. Each is signed.', max_length=20, verbose_name='format')),
                ('timeout', models.FloatField(blank=True, help_text="Seconds for one whole request. Empty: the platform's default.", null=True, validators=[notify.subscriptions.limits.timeout], verbose_name='timeout')),
                ('schedule', models.JSONField(blank=True, default=notify.models.subscriptions.default_schedule, help_text='How long to wait after each failed attempt.', validators=[notify.subscriptions.limits.schedule], verbose_name='retry schedule')),
                ('attempts_limit', models.PositiveSmallIntegerField(blank=True, help_text='Requests for one message before it is exhausted; if the schedule is shorter, its last wait is repeated. Empty: one more than the schedule has waits.', null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(51)], verbose_name='attempts limit')),
                ('in_flight_limit', models.PositiveSmallIntegerField(default=32, help_text='Requests in flight at the same time.', validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000)], verbose_name='in-flight limit')),
                ('rate_limit', models.FloatField(blank=True, help_text='Requests a second, spread evenly. Empty: no limit.', null=True, validators=[django.core.validators.MinValueValidator(0.01), django.core.validators.MaxValueValidator(100000)], verbose_name='rate limit')),
                ('own_process', models.BooleanField(db_default=False, default=False, help_text='Only a sender that is started for it delivers, and nothing else: manage.py up starts one; elsewhere start run_sender with --subscription and its id.', verbose_name='own process')),
                ('log_answers', models.CharField(choices=[('all', 'of all attempts'), ('failures', 'of failed attempts only'), ('none', 'none')], db_default='all', default='all', help_text="Headers and body of the consumer's answer, kept with each attempt. Its status and time are kept in any case. None: those of earlier attempts are removed, too.", max_length=8, verbose_name='answers kept')),
                ('log_days', models.PositiveSmallIntegerField(blank=True, help_text='Then headers and body are removed; empty: kept as long as the message.', null=True, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(3650)], verbose_name='answers kept for days')),
                ('answers_removed_below', models.BigIntegerField(db_default=0, default=0, editable=False)),
                ('failing_since', models.DateTimeField(blank=True, editable=False, null=True, verbose_name='failing since')),
                ('failures', models.PositiveIntegerField(default=0, editable=False, verbose_name='failures in a row')),
                ('disabled_reason', models.CharField(blank=True, default='', editable=False, max_length=200, verbose_name='why it is disabled')),
                ('disabled_said', models.JSONField(default=dict, editable=False)),
                ('created_at', models.DateTimeField(auto_now_add=True, verbose_name='created')),
                ('biz', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='msgplatform.biz', verbose_name='system')),
                ('receive', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='notify.receive', verbose_name='consumer')),
            ],
            options={
                'verbose_name': 'subscription',
                'verbose_name_plural': 'subscriptions',
                'db_table': 'biz_receive',
                'permissions': [('operate_bizreceive', 'Can pause and resume subscriptions')],
            },
        ),
        migrations.CreateModel(
            name='ReceiveMsg',
            fields=[
                ('id', models.BigIntegerField(primary_key=True, serialize=False)),
                ('status', models.PositiveSmallIntegerField(choices=[(0, 'pending'), (1, 'queued'), (2, 'held'), (3, 'delivered'), (4, 'exhausted'), (5, 'poison'), (6, 'skipped')], default=0, verbose_name='status')),
                ('send_times', models.PositiveSmallIntegerField(default=0, verbose_name='attempts')),
                ('next_at', models.DateTimeField(verbose_name='next look')),
                ('claimed_by', models.CharField(blank=True, default='', max_length=32)),
                ('generation', models.PositiveSmallIntegerField(default=0, verbose_name='generation')),
                ('http_status', models.PositiveSmallIntegerField(default=0, verbose_name='HTTP status')),
                ('error', models.CharField(blank=True, default='', max_length=200, verbose_name='error')),
                ('created_at', models.DateTimeField(verbose_name='accepted')),
                ('updated_at', models.DateTimeField(verbose_name='last change')),
                ('biz', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, to='msgplatform.biz', verbose_name='system')),
                ('biz_receive', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, to='notify.bizreceive', verbose_name='subscription')),
                ('msg', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='deliveries', to='notify.bizmsg', verbose_name='message')),
            ],
            options={
                'verbose_name': 'delivery',
                'verbose_name_plural': 'deliveries',
                'db_table': 'receive_msg',
                'ordering': ['-id'],
            },
        ),
        migrations.CreateModel(
            name='Attempt',
            fields=[
                ('id', models.BigIntegerField(primary_key=True, serialize=False)),
                ('claim', models.CharField(max_length=32)),
                ('number', models.PositiveSmallIntegerField(verbose_name='attempt')),
                ('at', models.DateTimeField(verbose_name='time')),
                ('seconds', models.FloatField(verbose_name='seconds')),
                ('http_status', models.PositiveSmallIntegerField(default=0, verbose_name='HTTP status')),
                ('error', models.CharField(blank=True, default='', max_length=32, verbose_name='error')),
                ('detail', models.CharField(blank=True, default='', max_length=300, verbose_name='detail')),
                ('response_headers', models.TextField(blank=True, default='', verbose_name='response headers')),
                ('response_body', models.TextField(blank=True, default='', verbose_name='response body')),
                ('copy', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='attempts', to='notify.receivemsg', verbose_name='delivery')),
            ],
            options={
                'verbose_name': 'attempt',
                'verbose_name_plural': 'attempts',
                'db_table': 'attempt',
                'ordering': ['id'],
            },
        ),
        migrations.CreateModel(
            name='RestoredMsg',
            fields=[
                ('id', models.BigIntegerField(primary_key=True, serialize=False)),
                ('restored_at', models.DateTimeField()),
                ('look_at', models.DateTimeField()),
            ],
            options={
                'verbose_name': 'restored message',
                'verbose_name_plural': 'restored messages',
                'db_table': 'restored_msg',
                'default_permissions': (),
                'indexes': [models.Index(fields=['look_at'], name='restored_msg_look')],
            },
        ),
        migrations.AddIndex(
            model_name='bizmsg',
            index=models.Index(fields=['state', 'id'], name='biz_msg_to_split'),
        ),
        migrations.AddIndex(
            model_name='bizmsg',
            index=models.Index(fields=['biz', 'state', 'id'], name='biz_msg_to_split_of_biz'),
        ),
        migrations.AddIndex(
            model_name='bizmsg',
            index=models.Index(fields=['biz', 'id'], name='biz_msg_of_biz'),
        ),
        migrations.AddIndex(
            model_name='bizmsg',
            index=models.Index(fields=['biz', 'event_type', 'id'], name='biz_msg_of_both'),
        ),
        migrations.AddIndex(
            model_name='bizmsg',
            index=models.Index(fields=['event_type', 'id'], name='biz_msg_of_type'),
        ),
        migrations.AddConstraint(
            model_name='eventtype',
            constraint=models.UniqueConstraint(fields=('owner', 'name'), name='event_type_key'),
        ),
        migrations.AddConstraint(
            model_name='bizreceive',
            constraint=models.UniqueConstraint(fields=('biz', 'receive'), name='biz_receive_pair'),
        ),
        migrations.AddIndex(
            model_name='receivemsg',
            index=models.Index(fields=['status', 'biz_receive', 'next_at'], name='receive_msg_due'),
        ),
        migrations.AddConstraint(
            model_name='receivemsg',
            constraint=models.UniqueConstraint(fields=('msg', 'biz_receive'), name='receive_msg_once'),
        ),
        migrations.AddConstraint(
            model_name='attempt',
            constraint=models.UniqueConstraint(fields=('copy', 'claim'), name='attempt_once'),
        ),
    ]
