"""A recent proof of who a person is. It is asked for before secrets are shown, before people and
their roles are changed, and before actions that cannot be undone.

    @confirmed            a view of the console
    class X(Confirmed)    an admin: its forms that add, change and delete

A login is such a proof, unless the company's provider had remembered the person. The page
`console:confirm` asks for the second factor, else for the password; people of the company's
provider sign in there again.
"""

import time
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from urllib.parse import urlencode

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.signals import user_logged_in
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _

from msgplatform.doors.admin.base import ModelAdmin
from msgplatform.doors.api.problems.error_pages import page_of_form

# The session's key for the time of the last proof, in seconds since 1970.
_KEY = "confirmed_at"
P = ParamSpec("P")
R = TypeVar("R", bound=HttpResponseBase)


@receiver(user_logged_in, dispatch_uid="msgplatform.confirmation")
def record(request: HttpRequest, **_signal: Any) -> None:
    """Store that the person of this session has just proved who they are."""
    request.session[_KEY] = time.time()


def forget(request: HttpRequest) -> None:
    """Forget the proof after a login at which the provider had remembered the person."""
    request.session.pop(_KEY, None)


def is_recent(request: HttpRequest) -> bool:
    """True if the last proof is at most CONFIRM_MINUTES old."""
    at: float = request.session.get(_KEY, 0.0)
    return bool(0 <= time.time() - at <= settings.CONFIRM_MINUTES * 60)


def confirmed(view: Callable[P, R]) -> Callable[P, R | HttpResponse]:
    """A view that opens only after a recent proof. `staff_member_required` stands above it. A
    method of an admin can be such a view too.

    Without a proof a sent form does nothing: people come back to its page after the proof.
    """

    @wraps(view)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R | HttpResponse:
        request = next(argument for argument in args if isinstance(argument, HttpRequest))
        return view(*args, **kwargs) if is_recent(request) else ask(request)

    return wrapper


def ask(request: HttpRequest) -> HttpResponse:
    """Redirect to the page that asks for a proof, which leads back to the page of this request."""
    page = request.get_full_path()
    if request.method != "GET":
        messages.warning(
            request, _("Nothing was done yet: confirm that it is you, then do it again.")
        )
        page = page_of_form(request)
    return redirect(f"{reverse('console:confirm')}?{urlencode({'next': page})}")


class Confirmed(ModelAdmin):
    """An admin whose forms open only after a recent proof. People who may only look are not
    asked."""

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        can_write = object_id is None or self.has_change_permission(request)
        if can_write and not is_recent(request):
            return ask(request)
        return super().changeform_view(request, object_id, *args, **kwargs)

    @confirmed
    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return super().delete_view(request, object_id, extra_context)

    def changelist_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Ask here too: actions on ticked rows are sent to the list."""
        if request.method == "POST" and not is_recent(request):
            return ask(request)
        return super().changelist_view(request, *args, **kwargs)
