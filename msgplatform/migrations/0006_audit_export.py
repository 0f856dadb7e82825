"""The exported line of an audit entry, and the cursor of the exporter."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('msgplatform', '0005_limited_keys'),
    ]

    operations = [
        migrations.CreateModel(
            name='AuditExport',
            fields=[
                ('id', models.PositiveSmallIntegerField(default=1, primary_key=True, serialize=False)),
                ('line', models.BigIntegerField(default=0)),
                ('last_hash', models.CharField(blank=True, default='', max_length=64)),
                ('pending', models.TextField(blank=True, default='')),
                ('moved_at', models.DateTimeField()),
                ('claimed_by', models.CharField(blank=True, default='', max_length=32)),
                ('lease_until', models.DateTimeField(null=True)),
            ],
            options={
                'verbose_name': 'export of the audit log',
                'db_table': 'audit_export',
                'default_permissions': (),
            },
        ),
        migrations.AddField(
            model_name='auditlog',
            name='line',
            field=models.BigIntegerField(blank=True, editable=False, null=True, verbose_name='exported line'),
        ),
        migrations.AddIndex(
            model_name='auditlog',
            index=models.Index(fields=['line'], name='audit_log_line'),
        ),
    ]
