"""The objects that platform files keep."""

import msgplatform.core.fields
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('msgplatform', '0003_cell'),
    ]

    operations = [
        migrations.CreateModel(
            name='KeptObject',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('section', msgplatform.core.fields.ExactCharField(max_length=64, verbose_name='section')),
                ('name', msgplatform.core.fields.ExactCharField(max_length=200, verbose_name='name')),
                ('label', models.CharField(max_length=100, verbose_name='label')),
                ('version', models.CharField(max_length=20)),
                ('applied_at', models.DateTimeField(verbose_name='applied')),
                ('applied_by', models.CharField(max_length=150, verbose_name='applied by')),
            ],
            options={
                'verbose_name': 'object that a file keeps',
                'verbose_name_plural': 'objects that files keep',
                'db_table': 'kept_object',
                'constraints': [models.UniqueConstraint(fields=('section', 'name'), name='kept_object_name')],
            },
        ),
    ]
