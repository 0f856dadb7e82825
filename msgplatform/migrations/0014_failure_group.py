from django.db import migrations, models


class Migration(migrations.Migration):
    """The model is called as its rows are; the table keeps its name, so nothing is copied."""

    dependencies = [
        ("msgplatform", "0013_exact_names"),
    ]

    operations = [
        migrations.AlterModelTable(name="givenup", table="msgplatform_givenup"),
        migrations.RenameModel(old_name="GivenUp", new_name="FailureGroup"),
        migrations.AlterField(
            model_name="failuregroup",
            name="count",
            field=models.BigIntegerField(default=0, verbose_name="failures"),
        ),
        migrations.AlterField(
            model_name="acknowledgement",
            name="count",
            field=models.BigIntegerField(verbose_name="failures"),
        ),
    ]
