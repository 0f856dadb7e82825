"""Groups of the provider's token → the roles and the business systems that a person has here
(OIDC_ROLES, OIDC_SYSTEMS). They are set at each login, as the token has them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.db.models import Q

from msgplatform import person_limits
from msgplatform.core import logging
from msgplatform.models import AuditLog, Biz

log = logging.get(__name__)

EVERY_SYSTEM = "*"
ACTOR = "OIDC"
_MAX_GROUPS = 1000


@dataclass(frozen=True)
class Grant:
    """`roles` are groups of the console; `systems` the names of business systems, None for no
    limit; `missing` are roles and systems of the settings that do not exist here."""

    roles: tuple[Group, ...]
    systems: tuple[str, ...] | None
    missing: tuple[str, ...]


def groups_of(claims: dict[str, Any]) -> list[str]:
    """The person's groups: the claim of OIDC_GROUPS_CLAIM, whose name may have dots for objects
    inside of objects (`realm_access.roles`). A text is one group; anything else is none."""
    value: Any = claims.get(settings.OIDC_GROUPS_CLAIM)
    if value is None:
        value = claims
        for part in settings.OIDC_GROUPS_CLAIM.split("."):
            value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        return []
    return [name for name in value[:_MAX_GROUPS] if isinstance(name, str)]


def grant(claims: dict[str, Any]) -> Grant:
    """The roles and systems of these claims; groups that the settings do not name count for
    nothing."""
    groups = groups_of(claims)
    role_names = _mapped(groups, settings.OIDC_ROLES)
    rows = Group.objects.filter(Q(role__name__in=role_names) | Q(name__in=role_names))
    roles = tuple(rows.select_related("role").order_by("name"))
    known_names = {row.name for row in roles}
    known_names |= {row.role.name for row in roles if hasattr(row, "role")}
    missing = [f"role {name}" for name in role_names if name not in known_names]
    systems: tuple[str, ...] | None = None
    if settings.OIDC_SYSTEMS:
        names = _mapped(groups, settings.OIDC_SYSTEMS)
        if EVERY_SYSTEM not in names:
            systems = tuple(
                Biz.objects.filter(name__in=names).order_by("name").values_list("name", flat=True)
            )
            missing += [f"system {name}" for name in names if name not in systems]
    if missing:
        log.warning("sign_in_unknown_names", missing=missing)
    return Grant(roles, systems, tuple(missing))


def _mapped(groups: Iterable[str], mapping: dict[str, list[str]]) -> list[str]:
    return sorted({name for group in groups for name in mapping.get(group, ())})


@transaction.atomic
def apply(user: User, granted: Grant) -> None:
    """Give the person exactly these roles, without permissions beside them, and this limit if
    OIDC_SYSTEMS names any; what changed goes into the audit log. Without a role the person no
    longer enters the console."""
    before = sorted(user.groups.values_list("name", flat=True))
    after = sorted(group.name for group in granted.roles)
    changes: dict[str, list[list[str]]] = {}
    if before != after:
        user.groups.set(granted.roles)
        changes["groups"] = [before, after]
    rows = user.user_permissions.values_list("content_type__app_label", "codename")
    if permissions := sorted(f"{app}.{name}" for app, name in rows):
        user.user_permissions.clear()
        changes["user_permissions"] = [permissions, []]
    if changes:
        _audit(user, "user_changed", changes=changes)
    # A superuser is one by hand, and has other ways in.
    if user.is_staff != bool(after) and not user.is_superuser:
        user.is_staff = bool(after)
        user.save(update_fields=["is_staff"])
    if settings.OIDC_SYSTEMS and after:
        person_limits.limit_person(user, granted.systems, ACTOR)
    if granted.missing:
        _audit(user, "sign_in_unknown_names", missing=list(granted.missing))


def _audit(user: User, action: str, **detail: Any) -> None:
    AuditLog.objects.create(
        actor=ACTOR, action=action, target=user.get_username()[:200], detail=detail
    )
