#!/usr/bin/env python3
"""Bring the databases of a tree before the migrations were joined (commit b2c95deb) to this one.

The tables are the same, so only `django_migrations` changes. A database that lacks one of the
earlier migrations is refused: run `migrate` of that commit first.
"""

import os
import sys
from pathlib import Path

import django

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "msgplatform.settings")
django.setup()

from django.db import connections, transaction  # noqa: E402 - needs the settings
from django.db.migrations.recorder import MigrationRecorder  # noqa: E402 - needs the settings

# App → its last migration, which needs all others of the app.
LAST = {
    "msgplatform": "0013_alert_give_up",
    "gateway": "0003_report_batches",
    "notify": "0006_person_data",
    "crmsync": "0003_first_tries",
}

for alias in connections:
    recorder = MigrationRecorder(connections[alias])
    names = recorder.applied_migrations()
    apps = [app for app in LAST if (app, "0001_tables") in names]
    if missing := [f"{app}.{LAST[app]}" for app in apps if (app, LAST[app]) not in names]:
        sys.exit(f"The database {alias} lacks {', '.join(missing)}: run migrate of b2c95deb first.")
    with transaction.atomic(using=alias):
        recorder.migration_qs.filter(app__in=apps).exclude(name__startswith="0002_").delete()
        recorder.migration_qs.filter(app="msgplatform", name="0002_resend_and_replay").delete()
        for app in apps:
            recorder.record_applied(app, "0001_initial")
    print(f"{alias}: {', '.join(apps) or 'nothing to do'}")
