"""The roles that the platform ships, as Django groups: viewer, operator, administrator.

A viewer looks, and sees personal data masked. An operator also acts on messages (sends again,
acknowledges, pauses, resumes) and changes no setting. An administrator may do everything. `migrate`
keeps the groups up to date, so that the permissions of a new flow are in them; other groups are
left alone.
"""

from collections.abc import Callable
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


def flow_apps() -> set[str]:
    """The labels of the apps of all flows."""
    return {flow.permission.partition(".")[0] for flow in flows.all()}


def _views(label: str, codename: str, model: str) -> bool:
    # Not every permission that begins with "view": that for personal data does too.
    return label != "auth" and codename == f"view_{model}"


def _operates(label: str, codename: str, model: str) -> bool:
    acts = {*OPERATE, *(name for flow in flows.all() for name in flow.operator_permissions)}
    return _views(label, codename, model) or f"{label}.{codename}" in acts


def _administers(label: str, codename: str, model: str) -> bool:
    return True


_HAS: dict[str, Callable[[str, str, str], bool]] = {
    VIEWER: _views,
    OPERATOR: _operates,
    ADMINISTRATOR: _administers,
}


def update(sender: AppConfig, using: str, **_: Any) -> None:
    """post_migrate: once all apps have their permissions, give the roles theirs."""
    with_models = [config for config in apps.get_app_configs() if config.models_module]
    if sender is not with_models[-1] or not router.allow_migrate_model(using, Group):
        return
    # Somebody may have migrated one app only, before those of these tables.
    tables = {model._meta.db_table for model in (ContentType, Permission, Group, Role)}
    if not tables <= set(connections[using].introspection.table_names()):
        return
    # Django may not have done it for this last app yet: that depends on INSTALLED_APPS.
    create_permissions(sender, verbosity=0, using=using)
    make(using)


def make(using: str = "default") -> None:
    """Make the groups that are missing, and give each its permissions."""
    labels = {"msgplatform", "auth", *flow_apps()}
    rows = Permission.objects.using(using).filter(content_type__app_label__in=labels)
    permissions = list(
        rows.values_list("pk", "content_type__app_label", "codename", "content_type__model")
    )
    for role, has in _HAS.items():
        ids = {pk for pk, *names in permissions if has(*names)}
        group = _group(role, using)
        # Write nothing if it has exactly these already.
        if set(group.permissions.values_list("pk", flat=True)) != ids:
            group.permissions.set(ids)


def _group(role: str, using: str) -> Group:
    """The role's group; made anew if it is missing."""
    role_row = Role.objects.using(using).filter(name=role).select_related("group").first()
    if role_row:
        return role_row.group
    name = role.capitalize()
    # Somebody's own group of this name stays theirs.
    if Group.objects.using(using).filter(name__iexact=name).exists():
        name = f"{name} (msgplatform)"
    group, _is_new = Group.objects.using(using).get_or_create(name=name)
    Role.objects.using(using).create(name=role, group=group)
    return group
