"""How long which data is kept, and which is deleted next."""

from __future__ import annotations

from django.contrib.admin.views.decorators import staff_member_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from msgplatform import person_limits
from msgplatform.doors.console.views.page import page, visible
from msgplatform.monitor import retention as kept


def may_open(request: HttpRequest) -> bool:
    """True for people who may see the messages of some flow, of all business systems."""
    return bool(visible(request)) and person_limits.systems_of(request) is None


@staff_member_required
@require_GET
def retention(request: HttpRequest) -> HttpResponse:
    if not may_open(request):
        raise PermissionDenied
    return page(request, "retention.html", _("Retention"), lines=list(kept.lines()))
