from django.db import migrations

from crmsync.models import lead_triggers


def create(apps, schema_editor):
    lead_triggers.create(schema_editor)


class Migration(migrations.Migration):
    # The triggers as they are now: versions go on after a restore.

    dependencies = [
        ('crmsync', '0007_one_permission_for_personal_data'),
    ]

    operations = [
        # The model's name tells the router to which database this belongs.
        migrations.RunPython(
            create, migrations.RunPython.noop, atomic=False, hints={'model_name': 'lead'}
        ),
    ]
