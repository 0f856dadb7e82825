"""Sessions of people: a page on which a person sees and ends their own, and one on which an
administrator ends anybody's, and takes lost second factors from them."""

import time
from datetime import timedelta
from typing import Any

from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in
from django.core.exceptions import PermissionDenied
from django.db.models.signals import post_save
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils.translation import gettext as _, ngettext

from msgplatform.company.signing_in import accounts, second_factor
from msgplatform.doors.admin import confirmed
from msgplatform.doors.admin.auditing import audit
from msgplatform.doors.console.views.page import page, staff_view

# Seconds between writes of the time of a session's last request.
_SEEN_SECONDS = 300
_KEY = "seen_at"


@receiver(user_logged_in, dispatch_uid="msgplatform.session_end")
def limit(sender: Any, request: HttpRequest, **other: Any) -> None:
    """A session ends SESSION_COOKIE_AGE after its login, however often it is stored meanwhile."""
    request.session.set_expiry(timedelta(seconds=settings.SESSION_COOKIE_AGE))


@receiver(post_save, sender=User, dispatch_uid="msgplatform.disabled_person")
def end_sessions_of_disabled(sender: Any, instance: User, **other: Any) -> None:
    """End the sessions of a disabled person, which would be valid again when they are enabled."""
    if not instance.is_active:
        for session in UserSession.objects.filter(user=instance):
            session.end()


def note(request: HttpRequest) -> None:
    """Note that the session of this request is in use, and list it the first time."""
    now = time.time()
    session = request.session
    old_key, key = session.get("seen_key"), session.session_key
    if old_key == key and 0 <= now - session.get(_KEY, 0.0) < _SEEN_SECONDS:
        return
    session[_KEY] = now
    session["seen_key"] = key
    UserSession.objects.create_from_request(request)
    if old_key not in (None, key):
        # After a change of the password a session has a new key. It keeps what a logout at the
        # provider looks for.
        old_row = UserSession.objects.filter(session_key=old_key).first()
        row = UserSession.objects.filter(session_key=key).first()
        if old_row and row and not row.data:
            row.data = old_row.data
            row.save(update_fields=["data"])
            old_row.delete()


@staff_view("GET", "POST", answers_limited_people=True)
def own_sessions(request: HttpRequest) -> HttpResponse:
    user: Any = request.user
    if request.method == "POST":
        _end(request, user)
        return redirect("console:sessions")
    linked_ids = {row.provider for row in SocialAccount.objects.filter(user=user)}
    names = accounts.provider_names()
    return _page(
        request, user, _("Your sessions"),
        linked=[name for provider_id, name in names.items() if provider_id in linked_ids],
        unlinked=[
            (provider_id, name) for provider_id, name in names.items()
            if provider_id not in linked_ids and not accounts.is_left_to_company(user, provider_id)
        ],
    )  # fmt: skip


@staff_view("GET", "POST")
def sessions_of(request: HttpRequest, person_id: int) -> HttpResponse:
    user = _person(request, person_id)
    if user == request.user:
        return redirect("console:sessions")
    if request.method == "POST":
        _end(request, user)
        return redirect("console:person-sessions", person_id)
    title = _("Sessions of %s") % user.get_username()
    return _page(request, user, title, factors=Authenticator.objects.filter(user=user))


@staff_view("POST")
@confirmed
def reset_factors(request: HttpRequest, person_id: int) -> HttpResponse:
    """Remove all of a person's second factors: some of them are of no use without the others."""
    user = _person(request, person_id)
    if second_factor.remove_all(user, request.user.get_username()):
        messages.success(request, _("The second factors of %s are removed.") % user.get_username())
    return redirect("console:person-sessions", person_id)


def _person(request: HttpRequest, person_id: int) -> User:
    """Raises Http404, or PermissionDenied unless this person may change the other."""
    user = get_object_or_404(User, pk=person_id)
    users: Any = admin.site.get_model_admin(User)
    if not users.has_change_permission(request, user):
        raise PermissionDenied
    return user


def _page(request: HttpRequest, user: Any, title: str, **context: Any) -> HttpResponse:
    sessions = sorted(
        UserSession.objects.purge_and_list(user), key=lambda row: row.last_seen_at, reverse=True
    )
    own_key = request.session.session_key
    for session in sessions:
        session.is_own = session.session_key == own_key
    context |= {"person": user, "sessions": sessions, "is_self": user == request.user}
    return page(request, "sessions.html", title, **context)


def _end(request: HttpRequest, user: Any) -> None:
    """End the session that the form names, or all of the person's except that of this request."""
    rows = UserSession.objects.filter(user=user).exclude(session_key=request.session.session_key)
    if (session_id := request.POST.get("session", "")) != "all":
        is_valid = session_id.isdecimal() and len(session_id) < 19
        rows = rows.filter(pk=session_id if is_valid else 0)
    sessions = list(rows)
    for session in sessions:
        audit(request, "session_ended", user.get_username(), address=session.ip,
              browser=session.user_agent)  # fmt: skip
        session.end()
    if sessions:
        text = ngettext("%d session is ended.", "%d sessions are ended.", len(sessions))
        messages.success(request, text % len(sessions))
    else:
        messages.info(request, _("There was no such session any more."))
