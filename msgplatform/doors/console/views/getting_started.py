"""Getting started: a checklist of a new installation, commands, and code for receivers.

The console stores no progress. Each line is looked up, so that the checklist fills itself in, also
for work that was done elsewhere.
"""

import json
from collections.abc import Sequence
from urllib.parse import urlencode

import msgspec
from django.conf import settings
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from msgplatform.core.errors import UNAVAILABLE
from msgplatform.core.flows.contract import Flow
from msgplatform.core.flows.page import Call
from msgplatform.core.flows.setup import FirstStep, Snippet
from msgplatform.doors.console.views.page import page, staff_view, visible
from msgplatform.models import ApiKey, Biz

_YEAR = 365 * 24 * 3600
DISMISSED_COOKIE = "getting_started"
DISMISSED = "dismissed"
# In place of the secret part of a key, which is shown only once.
_SECRET = "…"  # noqa: S105


class Part(msgspec.Struct, frozen=True):
    """The steps of the platform or of one flow, each with the address where it is done; '' for
    people who may not do it.

    `commands` bring the first message, with a key that has the `scope`; `snippet` is the one of
    the `snippets` that the page shows. `anchor` names the part in the page's address.
    """

    anchor: str
    title: str
    steps: Sequence[tuple[FirstStep, str]]
    commands: str = ""
    scope: str = ""
    snippets: Sequence[Snippet] = ()
    snippet: Snippet | None = None
    problem: str = ""

    @property
    def done_count(self) -> int:
        return sum(step.done for step, _link in self.steps)

    @property
    def is_complete(self) -> bool:
        return bool(self.steps) and self.done_count == len(self.steps)


@staff_view("GET")
def getting_started(request: HttpRequest) -> HttpResponse:
    """The page with every step, done or not; `language` chooses the code that is shown."""
    return page(
        request,
        "getting_started.html",
        _("Getting started"),
        parts=parts(request),
        public_url=settings.PUBLIC_URL,
    )


@staff_view("POST")
def dismiss(request: HttpRequest) -> HttpResponse:
    """Hide the checklist on the overview, in this browser."""
    response = redirect("console:overview")
    response.set_cookie(
        DISMISSED_COOKIE,
        DISMISSED,
        max_age=_YEAR,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )
    return response


def parts(request: HttpRequest) -> list[Part]:
    """The platform's part first, then those of the flows that this person may see."""
    steps = [
        FirstStep(
            _("A business system"),
            _("A program that hands over messages: a shop, an app, or another one of yours."),
            Biz.objects.exists(),
            "admin:msgplatform_biz_add",
            ("msgplatform.add_biz",),
        ),
        FirstStep(
            _("An API key"),
            _("With the scopes that the system needs. It is shown once: copy it."),
            _usable_keys().exists(),
            "admin:msgplatform_apikey_add",
            ("msgplatform.add_apikey",),
        ),
    ]
    platform_part = Part("platform", _("The platform"), _link_steps(request, steps, "platform"))
    return [platform_part, *(_part(request, flow) for flow in visible(request))]


def is_new(request: HttpRequest) -> bool:
    """True if the overview shows the checklist first: no flow has done its first work, and this
    person has not dismissed it."""
    if request.COOKIES.get(DISMISSED_COOKIE) == DISMISSED:
        return False
    try:
        checklists = [flow.setup.first_steps() for flow in visible(request)]
    except UNAVAILABLE:
        return False  # the overview says what is unavailable
    return any(checklists) and not any(
        steps and all(step.done for step in steps) for steps in checklists
    )


def _link_steps(
    request: HttpRequest, steps: Sequence[FirstStep], anchor: str
) -> list[tuple[FirstStep, str]]:
    checklist_url = f"{reverse('console:getting-started')}#{anchor}"
    pairs = []
    for step in steps:
        link = reverse(step.view) if step.view and request.user.has_perms(step.permissions) else ""
        if link and step.view.endswith("_add"):  # the form leads back to the checklist
            link = f"{link}?{urlencode({'next': checklist_url})}"
        pairs.append((step, link))
    return pairs


def _part(request: HttpRequest, flow: Flow) -> Part:
    try:
        steps = _link_steps(request, flow.setup.first_steps(), flow.name)
        calls = flow.setup.first_calls()
        scope = calls[0].scope if calls else ""
        key = f"mp_{_SECRET}"
        if calls and request.user.has_perm("msgplatform.view_apikey"):
            # The newest key with the scope, with only its public prefix.
            rows = _usable_keys().order_by("-id").values_list("prefix", "scopes")[:50]
            prefixes = (prefix for prefix, scopes in rows if scope in scopes)
            key = next((f"mp_{prefix}_{_SECRET}" for prefix in prefixes), key)
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        commands = "\n\n".join(
            Call("", call.path, headers, json.dumps(call.body, ensure_ascii=False)).command(
                settings.PUBLIC_URL
            )
            for call in calls
        )
    except UNAVAILABLE as error:
        return Part(flow.name, str(flow.title), (), problem=str(error)[:200])
    snippets = flow.setup.snippets()
    language = request.GET.get("language")
    matches = [snippet for snippet in snippets if snippet.name == language] or snippets
    snippet = matches[0] if matches else None
    return Part(flow.name, str(flow.title), steps, commands, scope, snippets, snippet)


def _usable_keys() -> QuerySet[ApiKey]:
    expiry_condition = Q(expires_at=None) | Q(expires_at__gt=timezone.now())
    return ApiKey.objects.filter(expiry_condition, revoked_at=None, biz__enabled=True)
