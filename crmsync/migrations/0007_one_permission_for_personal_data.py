"""`crmsync.view_personal` becomes `msgplatform.view_personal`: whoever had it keeps it."""

from __future__ import annotations

from typing import Any

from django.db import migrations

_CODENAME = "view_personal"


def move(apps: Any, editor: Any) -> None:
    """Hand the permission over, with the people and groups that have it."""
    using = editor.connection.alias
    permissions = apps.get_model("auth", "Permission").objects.using(using)
    old = permissions.filter(content_type__app_label="crmsync", codename=_CODENAME).first()
    if old is None:  # a new database: permissions are made after the last migration
        return
    types = apps.get_model("contenttypes", "ContentType").objects.using(using)
    of_biz, _made = types.get_or_create(app_label="msgplatform", model="biz")
    new, _made = permissions.get_or_create(
        content_type=of_biz, codename=_CODENAME,
        defaults={"name": "Can see payloads, texts and personal data in clear"},
    )  # fmt: skip
    new.user_set.add(*old.user_set.all())
    new.group_set.add(*old.group_set.all())
    old.delete()


class Migration(migrations.Migration):
    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
        ("msgplatform", "0003_people"),
        ("crmsync", "0006_view_personal"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="crm",
            options={
                "ordering": ["name"],
                "permissions": [("operate_crm", "Can resume CRMs")],
                "verbose_name": "CRM",
                "verbose_name_plural": "CRMs",
            },
        ),
        migrations.AlterModelOptions(
            name="lead",
            options={
                "ordering": ["-id"],
                "verbose_name": "lead",
                "verbose_name_plural": "leads",
            },
        ),
        migrations.AlterModelOptions(
            name="policy",
            options={
                "ordering": ["source__name", "crm__name"],
                "permissions": [("operate_policy", "Can ask for runs")],
                "verbose_name": "policy",
                "verbose_name_plural": "policies",
            },
        ),
        migrations.RunPython(move, migrations.RunPython.noop, hints={"model_name": "lead"}),
    ]
