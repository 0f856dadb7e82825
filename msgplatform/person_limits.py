"""The business systems to which a person of the console is limited: read for each request, and set
on the page of the person, over the API, and by single sign-on from the person's groups.

A limited person, also a superuser, sees and changes only what belongs to these systems.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.http import HttpRequest
from django.urls import Resolver404, resolve
from django.utils.translation import gettext as _

from msgplatform.core.errors import InvalidInput
from msgplatform.models import AuditLog, Biz, PersonLimit

# Name of a business system → its id.
Systems = Mapping[str, int]

# Views of the admin site that show nothing stored, or only rows of an admin's `get_queryset`.
_SITE_VIEWS = frozenset({
    "login", "logout", "i18n_javascript", "password_change_done", "autocomplete_view", "app_index",
})  # fmt: skip
_View = TypeVar("_View", bound=Callable[..., Any])
_by_request: WeakKeyDictionary[HttpRequest, Systems | None] = WeakKeyDictionary()


def answers_limited_people(view: _View) -> _View:
    """Declares that a view of the console shows and changes only what belongs to the systems of
    `systems_of`. A limited person is refused by every view that does not declare it."""
    view.answers_limited_people = True  # type: ignore[attr-defined]
    return view


def is_declared(view: Callable[..., Any]) -> bool:
    """True if the view answers limited people."""
    if getattr(getattr(view, "view_class", view), "answers_limited_people", False):
        return True
    if getattr(view, "admin_site", None) is not None and view.__name__ in _SITE_VIEWS:
        return True
    model_admin = getattr(view, "model_admin", None)
    return model_admin is not None and view.__name__ in model_admin.limited_views


def may_open(request: HttpRequest, address: str) -> bool:
    """True if no limit keeps the person of this request from the page at this address. Links to
    other pages are not shown."""
    if not is_limited(request):
        return True
    try:
        return is_declared(resolve(urlsplit(address).path).func)
    except Resolver404:
        return False


def systems_of(request: HttpRequest) -> Systems | None:
    """The business systems that the person of this request may see; None: all of them. One
    statement for each request."""
    if request not in _by_request:
        user: Any = request.user
        _by_request[request] = limit_of(user) if user.is_authenticated else None
    return _by_request[request]


def names_of(request: HttpRequest) -> frozenset[str]:
    """The names of these systems in the form of an API key's limit, where an empty set is no limit:
    a limited person without a system has the name '', which no system has."""
    systems = systems_of(request)
    return frozenset() if systems is None else frozenset(systems or {""})


def ids_of(request: HttpRequest) -> frozenset[int] | None:
    """The ids of the business systems that the person of this request may see; None: all."""
    systems = systems_of(request)
    return None if systems is None else frozenset(systems.values())


def is_limited(request: HttpRequest) -> bool:
    """True if the person of this request sees some business systems only."""
    return systems_of(request) is not None


def limit_of(user: Any) -> Systems | None:
    """The business systems to which a person is limited, by name; None: no limit. One statement."""
    rows = PersonLimit.objects.filter(pk=user.pk).order_by("systems__name")
    pairs = list(rows.values_list("systems__name", "systems__pk"))
    # A limit without a system has one pair of nothing.
    return {name: pk for name, pk in pairs if pk is not None} if pairs else None


def lock(user: AbstractBaseUser) -> None:
    """Lock the person's row until the end of the transaction, so that of two changes of roles or
    limit the later one finds what the other one has stored."""
    rows = type(user)._default_manager.select_for_update()
    rows.filter(pk=user.pk).values_list("pk").first()


@transaction.atomic
def limit_person(user: Any, system_names: Iterable[str] | None, actor: str) -> bool:
    """Limit a person to the business systems of these names, perhaps none; None takes the limit
    away. `actor` is the name that the audit log shows, such as "OIDC".

    True if the limit changed, which an entry `user_limited` of the audit log records. The change
    takes effect with the person's next request. Raises InvalidInput for a name that no business
    system has, and changes nothing.
    """
    changes = set_limit(user, system_names)
    if changes is None:
        return False
    AuditLog.record(actor, "user_limited", user.get_username(), changes={"systems": changes})
    return True


@transaction.atomic
def set_limit(user: AbstractBaseUser, system_names: Iterable[str] | None) -> list[Any] | None:
    """Like `limit_person`, without an entry in the audit log. Returns the names before and after,
    None when nothing changed."""
    lock(user)
    names = None if system_names is None else sorted(set(system_names))
    systems = list(Biz.objects.filter(name__in=names or ()))
    if unknown_names := sorted({*(names or ())} - {system.name for system in systems}):
        words = _("There is no business system %s.") % ", ".join(unknown_names)
        raise InvalidInput(words, "systems")
    limit = limit_of(user)
    names_before = None if limit is None else list(limit)
    if names == names_before:
        return None
    if names is None:
        PersonLimit.objects.filter(pk=user.pk).delete()
    else:
        row, _is_new = PersonLimit.objects.get_or_create(pk=user.pk)
        row.systems.set(systems)
    return [names_before, names]
