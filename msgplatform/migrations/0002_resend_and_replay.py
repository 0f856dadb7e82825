"""Actions have one name each: resend (one or some messages), replay (a period), backfill."""

from django.db import migrations, models

# Flow → old name of an action → new one; the order counts where a name moves.
RENAMED = {
    "notify": [("requeue", "resend"), ("resplit", "backfill")],
    "crmsync": [("resend", "replay"), ("retry", "resend")],
    "feed": [("replay", "resend")],
}


# Its audit entry tells a second run, after a kill before the migration was recorded, that the names
# have moved: to move them twice would make resends of replays.
DONE = "bulk_actions_renamed"


def rename(apps, schema_editor):
    jobs = apps.get_model("msgplatform", "BulkJob")
    filters = apps.get_model("msgplatform", "SavedFilter")
    entries = apps.get_model("msgplatform", "AuditLog")
    if entries.objects.filter(action=DONE).exists():
        return
    count = 0
    for flow, names in RENAMED.items():
        for old, new in names:
            count += jobs.objects.filter(flow=flow, action=old).update(action=new)
            count += filters.objects.filter(flow=flow, page=old).update(page=new)
    entries.objects.filter(action="message_sent_again").update(action="message_resent")
    if count:
        entries.objects.create(actor="migrate", action=DONE, target="", detail={"count": count})


class Migration(migrations.Migration):
    dependencies = [("msgplatform", "0001_tables")]

    operations = [
        migrations.AlterField(
            model_name="bulkjob",
            name="action",
            field=models.CharField(default="resend", max_length=32, verbose_name="action"),
        ),
        migrations.RunPython(rename, migrations.RunPython.noop),
    ]
