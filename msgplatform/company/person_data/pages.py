"""One person's data: find it, export it, erase it; and the erasures, each with its progress.

Identifiers are never in an address: they would stand in logs and in the browser's history.
"""

import json
from collections.abc import Collection
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.core.serializers.json import DjangoJSONEncoder
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _, gettext_lazy
from msgspec.structs import replace

from msgplatform import person_limits
from msgplatform.company.person_data import erasures, people
from msgplatform.company.person_data.models import MAX_REASON, Erasure
from msgplatform.core import personal
from msgplatform.core.errors import InvalidInput, NotNow
from msgplatform.core.person.identity import KINDS, Person
from msgplatform.doors.admin import Textarea, confirmed, sees_personal
from msgplatform.doors.console.views.page import page, staff_view

FIND, ERASE = "msgplatform.find_person", "msgplatform.erase_person"
VIEW = "msgplatform.view_erasure"
_OF_PAGE = (FIND, ERASE, VIEW)  # each of them opens it
_SHOWN = 20
_LINES = {"rows": 2, "class": "lines", "spellcheck": "false", "autocomplete": "off"}


def _lines(label: Any, help_text: Any) -> forms.CharField:
    return forms.CharField(
        label=label, help_text=help_text, required=False, max_length=5000, widget=Textarea(_LINES)
    )


class PersonForm(forms.Form):
    phones = _lines(
        gettext_lazy("Phone numbers"),
        gettext_lazy("One on each line, in any usual spelling: +86 138-0013-8000"),
    )
    emails = _lines(gettext_lazy("E-mail addresses"), gettext_lazy("One on each line"))
    users = _lines(
        gettext_lazy("User ids"),
        gettext_lazy("Business system and id, one on each line: shop/1001"),
    )
    leads = _lines(gettext_lazy("Leads"), gettext_lazy("Ids of leads, one on each line"))

    def person(self) -> Person | None:
        """The person that the form names; None with errors in the form."""
        if not self.is_valid():
            return None
        try:
            return people.person_of({kind: self.cleaned_data[kind].splitlines() for kind in KINDS})
        except InvalidInput as error:
            self.add_error(error.field if error.field in self.fields else None, str(error))
            return None


def may_open(request: HttpRequest, permissions: Collection[str] = _OF_PAGE) -> bool:
    """True if the person has one of these permissions and is not limited to business systems: a
    person's data may belong to any system."""
    has_one = any(request.user.has_perm(name) for name in permissions)
    return has_one and person_limits.systems_of(request) is None


def _require(request: HttpRequest, *permissions: str) -> None:
    """Raises PermissionDenied."""
    if not may_open(request, permissions):
        raise PermissionDenied


@staff_view("GET", "POST")
@confirmed
def person_data(request: HttpRequest) -> HttpResponse | StreamingHttpResponse:
    """The form, what is found, and the latest erasures."""
    _require(request, *_OF_PAGE)
    form = PersonForm(request.POST if request.method == "POST" else None)
    person, preview = None, None
    if request.method == "POST":
        _require(request, FIND, ERASE)
        person = form.person()
        if person and "export" in request.POST:
            if not _can_export(request):
                raise PermissionDenied
            people.record(request.user.get_username(), "person_exported", person)
            return StreamingHttpResponse(
                people.export(person),
                content_type="application/json",
                headers={"Content-Disposition": 'attachment; filename="person.json"'},
            )
        if person and "erase" in request.POST:
            row = _start(request, person, form)
            if row:
                return redirect("console:erasure", row.key)
        if person:
            people.record(request.user.get_username(), "person_found", person)
            preview = people.preview(person)
    # Earlier erasures that share one of the person's identifiers.
    hashes = set(people.hashes(person.identifiers)) if person else set()
    latest_rows = Erasure.objects.defer("identifiers")[:1000] if person else ()
    earlier_rows = [row for row in latest_rows if hashes & set(row.hashes)]
    return page(
        request,
        "person_data.html",
        _("One person's data"),
        form=form,
        preview=None if preview is None else [_describe_hits(request, hits) for hits in preview],
        is_whole=all(hits.is_whole for hits in preview or ()),
        shown=_mark(person) if person else "",
        earlier=earlier_rows,
        erasures=Erasure.objects.all()[:_SHOWN],
        can_find=request.user.has_perm(FIND),
        can_export=_can_export(request),
        can_erase=request.user.has_perm(ERASE),
        max_reason=MAX_REASON,
        reason=request.POST.get("reason", ""),
        ends_open="ends_open" in request.POST,
    )


def _can_export(request: HttpRequest) -> bool:
    """True if this person may see personal data: an export masks nothing."""
    return request.user.has_perm(FIND) and sees_personal(request)


def _start(request: HttpRequest, person: Person, form: PersonForm) -> Erasure | None:
    """The requested erasure; None with an error in the form."""
    _require(request, ERASE)
    if request.POST.get("shown") != _mark(person):
        words = _("Something was changed since it was found: look at it, then erase.")
        form.add_error(None, words)
        return None
    actor = request.user.get_username()
    try:
        row = erasures.start(
            person.identifiers, request.POST.get("reason", ""), "ends_open" in request.POST, actor
        )
    except InvalidInput as error:
        form.add_error(None, str(error))
        return None
    except OSError as error:
        form.add_error(None, _("The list of erasures cannot be written: %s") % error.strerror)
        return None
    messages.success(request, _("The erasure has begun."))
    return row


def _mark(person: Person) -> str:
    """A mark of the person whose data the page shows: the form may have been changed since."""
    return " ".join(people.hashes(person.identifiers))


def _describe_hits(request: HttpRequest, hits: people.Hits) -> tuple[people.Hits, Any, list[str]]:
    """Hits without their sample, the title of their flow, and the sample as this person may see
    it."""
    flow = people.flow_of(hits.store)
    sample = [row.data for row in hits.sample]
    if not sees_personal(request):
        # As in `core/personal.py`: payloads and texts keep their shape.
        sample = [
            {
                name: (personal.mask_content if name == "payload" else personal.mask_value)(value)
                for name, value in json.loads(json.dumps(dict(data), cls=DjangoJSONEncoder)).items()
            }
            for data in sample
        ]
    texts = [
        json.dumps(data, cls=DjangoJSONEncoder, ensure_ascii=False, indent=1)[:2000]
        for data in sample
    ]
    return replace(hits, sample=()), flow.title if flow else _("Platform"), texts


@staff_view("GET", "POST")
def erasure(request: HttpRequest, key: str) -> HttpResponse:
    """One erasure: its progress, what it waits for, and the proof."""
    _require(request, *_OF_PAGE)
    row = Erasure.objects.filter(key=key).first()
    if row is None:
        raise Http404(_("There is no such erasure."))
    if request.method == "POST":
        return _change(request, row)
    titles = {}
    for store in people.all_stores():
        flow = people.flow_of(store)
        titles[store.name] = f"{flow.title}: {store.title}" if flow else str(store.title)
    context = {
        "erasure": row,
        "erased": [(titles.get(name, name), count) for name, count in sorted(row.erased.items())],
        "open": [(titles.get(name, name), count) for name, count in sorted(row.open.items())],
        "place": titles.get(row.store, ""),
        "can_erase": request.user.has_perm(ERASE),
        "seconds": 2 if row.is_open else 0,
    }
    if "live" in request.GET:
        return render(request, "console/erasure_live.html", context)
    return page(request, "erasure.html", _("Erasure"), **context)


@confirmed
def _change(request: HttpRequest, row: Erasure) -> HttpResponse:
    _require(request, ERASE)
    actor = request.user.get_username()
    try:
        if "end" in request.POST:
            erasures.end_open(row.key, actor)
        elif "cancel" in request.POST:
            erasures.cancel(row.key, actor)
    except NotNow as error:
        messages.warning(request, str(error))
    except OSError as error:
        messages.error(request, _("The list of erasures cannot be written: %s") % error.strerror)
    return redirect("console:erasure", row.key)
