from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('notify', '0015_exact_names'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='bizmsg',
            index=models.Index(fields=['biz', 'state', 'id'], name='biz_msg_to_split_of_biz'),
        ),
    ]
