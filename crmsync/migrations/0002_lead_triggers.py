from django.db import migrations

from crmsync.models import lead_triggers


def create(apps, schema_editor):
    lead_triggers.create(schema_editor)


def drop(apps, schema_editor):
    lead_triggers.drop(schema_editor)


class Migration(migrations.Migration):
    # Apart from the tables, so that it can be run again where the database refused it.

    dependencies = [
        ('crmsync', '0001_initial'),
    ]

    operations = [
        # The model's name tells the router to which database this belongs.
        migrations.RunPython(create, drop, atomic=False, hints={'model_name': 'lead'}),
    ]
