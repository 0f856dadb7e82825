from django.contrib.auth.hashers import make_password
from django.db import migrations


def end_one_time_passwords(apps, schema_editor):
    """Nobody logs in with one any more: `up` prints a link instead."""
    users = apps.get_model("auth", "User").objects.using(schema_editor.connection.alias)
    rows = apps.get_model("msgplatform", "OneTimePassword").objects.using(
        schema_editor.connection.alias
    )
    for user in users.filter(pk__in=list(rows.values_list("user_id", flat=True))):
        user.password, user.last_login = make_password(None), None
        user.save(update_fields=["password", "last_login"])


class Migration(migrations.Migration):
    dependencies = [
        ("msgplatform", "0014_failure_group"),
        ("auth", "0012_alter_user_first_name_max_length"),
    ]

    operations = [
        migrations.RunPython(end_one_time_passwords, migrations.RunPython.noop),
        migrations.DeleteModel(name="OneTimePassword"),
    ]
