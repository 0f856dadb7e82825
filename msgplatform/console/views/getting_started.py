"""Getting started: a checklist that fills itself in, commands, and code for receivers."""

from __future__ import annotations

from django.conf import settings
from django.contrib.admin.views.decorators import staff_member_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from msgplatform.console import getting_started as checklist
from msgplatform.console.views.page import page

_YEAR = 365 * 24 * 3600


@staff_member_required
@require_GET
def getting_started(request: HttpRequest) -> HttpResponse:
    """What is done and what comes next; `language` chooses the code that is shown."""
    return page(
        request,
        "getting_started.html",
        _("Getting started"),
        parts=checklist.parts(request),
        public_url=settings.PUBLIC_URL,
    )


@staff_member_required
@require_POST
def dismiss(request: HttpRequest) -> HttpResponse:
    """From now on the overview begins without the checklist, in this browser."""
    answer = redirect("console:overview")
    answer.set_cookie(
        checklist.DISMISSED_COOKIE,
        checklist.DISMISSED,
        max_age=_YEAR,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )
    return answer
