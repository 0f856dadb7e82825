"""The roles that the platform ships, as Django groups: viewer, operator, administrator.

A viewer looks, and sees personal data masked. An operator also acts on messages (sends again,
acknowledges, pauses, resumes) and changes no setting. An administrator may do everything. `migrate`
keeps the groups up to date, so that the permissions of a new flow are in them; other groups are
left alone.
"""

from typing import Any

from django.apps import AppConfig, apps
from django.contrib.auth.management import create_permissions
from django.contrib.auth.models import Group, Permission
from django.contrib.contenttypes.models import ContentType
from django.db import connections, router

from msgplatform.core import flows, personal
from msgplatform.models import Role

VIEWER, OPERATOR, ADMINISTRATOR = "viewer", "operator", "administrator"
# Operators' permissions for the platform's own rows; `Flow.operator_permissions` has a flow's.
OPERATE = (
    "msgplatform.add_bulkjob",
    "msgplatform.change_bulkjob",
    "msgplatform.change_alert",
    "msgplatform.view_queues",
    personal.PERMISSION,
)


def update(sender: AppConfig, using: str, **_: Any) -> None:
    """post_migrate: once all apps have their permissions, give the roles theirs."""
    configs_with_models = [config for config in apps.get_app_configs() if config.models_module]
    if sender is not configs_with_models[-1] or not router.allow_migrate_model(using, Group):
        return
    # Only one app may have been migrated, before the apps of these tables.
    tables = {model._meta.db_table for model in (ContentType, Permission, Group, Role)}
    if not tables <= set(connections[using].introspection.table_names()):
        return
    # Django may make the permissions of this last app later: that depends on INSTALLED_APPS.
    create_permissions(sender, verbosity=0, using=using)
    make(using)


def make(using: str = "default") -> None:
    """Make the groups that are missing, and give each its permissions."""
    labels = {flow.permission.partition(".")[0] for flow in flows.all()} | {"msgplatform", "auth"}
    rows = Permission.objects.using(using).filter(content_type__app_label__in=labels)
    operator_names = {
        *OPERATE, *(name for flow in flows.all() for name in flow.operator_permissions)
    }  # fmt: skip
    all_ids, view_ids, operator_ids = set[int](), set[int](), set[int]()
    columns = ("pk", "content_type__app_label", "codename", "content_type__model")
    for pk, label, codename, model in rows.values_list(*columns):
        all_ids.add(pk)
        # Not every permission that begins with "view": that for personal data does too.
        if label != "auth" and codename == f"view_{model}":
            view_ids.add(pk)
        if f"{label}.{codename}" in operator_names:
            operator_ids.add(pk)
    ids_by_role = {VIEWER: view_ids, OPERATOR: view_ids | operator_ids, ADMINISTRATOR: all_ids}
    for role, ids in ids_by_role.items():
        row = Role.objects.using(using).filter(name=role).select_related("group").first()
        if row is None:
            name = role.capitalize()
            # A group of this name that people have made is left alone.
            if Group.objects.using(using).filter(name__iexact=name).exists():
                name = f"{name} (msgplatform)"
            group, _is_new = Group.objects.using(using).get_or_create(name=name)
            row = Role.objects.using(using).create(name=role, group=group)
        if set(row.group.permissions.values_list("pk", flat=True)) != ids:
            row.group.permissions.set(ids)
