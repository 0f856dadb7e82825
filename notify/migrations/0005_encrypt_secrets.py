from django.db import migrations

from msgplatform.core.secrets import reencrypt


def encrypt(apps, schema_editor):
    """What was stored in clear; repeatable, and each page is a transaction of its own."""
    model = apps.get_model('notify', 'Receive')
    for column in reencrypt.columns_of(model, schema_editor.connection.alias):
        for _ in reencrypt.renew(column):
            pass


class Migration(migrations.Migration):

    atomic = False

    dependencies = [
        ('notify', '0004_encrypted_columns'),
    ]

    operations = [
        migrations.RunPython(encrypt, atomic=False, hints={'model_name': 'receive'}),
    ]
