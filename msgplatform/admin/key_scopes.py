"""Which scopes a person may give to an API key: nobody gives away more than they have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgplatform.api.access import keys
from msgplatform.core import flows, personal

_PLATFORM = {
    "manage:systems": ("msgplatform.add_biz", "msgplatform.change_biz"),
    "manage:keys": ("msgplatform.add_apikey", "msgplatform.change_apikey"),
    "manage:jobs": ("msgplatform.add_bulkjob", "msgplatform.change_bulkjob"),
    "manage:statistics": ("msgplatform.view_minutecounter",),
}


def permissions(scope: str) -> set[str]:
    """The permissions of the console that allow as much as the scope."""
    if scope == "manage:keys":  # it makes keys with any scope of a business system
        return {*_PLATFORM[scope], *(name for own in keys.scopes() for name in permissions(own))}
    if scope in _PLATFORM:
        return {*_PLATFORM[scope], *_of_every_flow(scope)}
    return {
        name
        for flow in flows.all()
        if scope in flow.scopes or scope in flow.management_scopes
        for name in (flow.scope_permissions.get(scope) or _of_reading(flow))
    }


def may_give(user: Any, scope: str) -> bool:
    return bool(user.has_perms(permissions(scope)))


def _of_every_flow(scope: str) -> set[str]:
    """What the keys with this scope may do in each flow."""
    looks = {flow.permission for flow in flows.all()}
    acts = {flow.bulk_permission or flow.resend_permission for flow in flows.all()} - {""}
    return {"manage:jobs": looks | acts, "manage:statistics": looks}.get(scope, set())


def _of_reading(flow: flows.Flow) -> Sequence[str]:
    # The API masks nothing.
    return (flow.permission, personal.PERMISSION)
