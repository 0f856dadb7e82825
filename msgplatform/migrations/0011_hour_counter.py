from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('msgplatform', '0010_alert_said'),
    ]

    operations = [
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
                'indexes': [
                    models.Index(fields=['flow', 'subject', 'hour'], name='hour_counter_subject'),
                    models.Index(fields=['flow', 'hour', 'name', 'biz_id', 'subject', 'value'], name='hour_counter_flow'),
                ],
                'constraints': [models.UniqueConstraint(fields=('hour', 'flow', 'biz_id', 'subject', 'name'), name='hour_counter_key')],
            },
        ),
        migrations.AddIndex(
            model_name='daycounter',
            index=models.Index(fields=['flow', 'day', 'name', 'biz_id', 'subject', 'value'], name='day_counter_flow'),
        ),
        migrations.AddIndex(
            model_name='auditlog',
            index=models.Index(fields=['action', 'id'], name='audit_log_action'),
        ),
        migrations.AddIndex(
            model_name='auditlog',
            index=models.Index(fields=['at'], name='audit_log_at'),
        ),
    ]
