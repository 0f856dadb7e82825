from django.db import migrations, models

import notify.subscriptions.limits


class Migration(migrations.Migration):

    dependencies = [
        ('notify', '0004_log_policy'),
    ]

    operations = [
        migrations.AddField(
            model_name='receive',
            name='delivery',
            field=models.CharField(choices=[('push', 'pushed to its URL'), ('listen', 'fetched by a listener')], db_default='push', default='push', help_text="listen: for development. It has no URL; a program on an engineer's machine (msgp listen) fetches its messages one after the other.", max_length=8, verbose_name='delivery'),
        ),
        migrations.AlterField(
            model_name='receive',
            name='url',
            field=models.CharField(blank=True, default='', help_text='Every message is POSTed to this address.', max_length=1000, validators=[notify.subscriptions.limits.url], verbose_name='URL'),
        ),
    ]
