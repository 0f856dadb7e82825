"""The pages of sandboxes: the list with the form that makes a sandbox, and each sandbox's page, on
which people set its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext, gettext_lazy as _, pgettext_lazy

from msgplatform import person_limits
from msgplatform.core import sandbox
from msgplatform.core.connections import RedisError
from msgplatform.core.flows.text import Text
from msgplatform.core.sandbox import Behaviour, Sandbox
from msgplatform.doors.admin import AdminPage, Select, TextInput, audit
from msgplatform.doors.admin.pages import send_form, show_page

REFRESH_SECONDS = 3


class BehaviourForm(forms.Form):
    """How the sandbox answers, and for how long; `kind` says what the fields mean for it."""

    answer = forms.ChoiceField(label=_("Answer"), widget=Select, required=False)
    delay = forms.FloatField(
        label=pgettext_lazy("delay", "After"), min_value=0, max_value=sandbox.MAX_DELAY_SECONDS,
        required=False, widget=TextInput({"inputmode": "decimal"}),
    )  # fmt: skip
    retry_after = forms.IntegerField(
        label="Retry-After", min_value=0, max_value=sandbox.MAX_RETRY_AFTER, required=False,
        widget=TextInput({"inputmode": "numeric"}),
    )  # fmt: skip
    count = forms.IntegerField(
        min_value=1, max_value=sandbox.MAX_COUNT, required=False,
        widget=TextInput({"inputmode": "numeric"}), help_text=_("Empty: any number"),
    )  # fmt: skip
    minutes = forms.IntegerField(
        label=_("For so many minutes"), min_value=1, max_value=sandbox.MAX_MINUTES, initial=10,
        widget=TextInput({"inputmode": "numeric"}),
    )  # fmt: skip

    def __init__(self, kind: SandboxPages, data: Any) -> None:
        super().__init__(data)
        fields: Any = self.fields
        fields["answer"].choices = kind.answers
        fields["count"].label = kind.count_label
        for name, text in kind.help_texts.items():
            fields[name].help_text = text


class SandboxPages:
    """The pages of one kind of sandbox, about rows of a model. `templates` is the folder with
    sandboxes.html, sandbox.html and its two parts."""

    templates: str
    list_name: str  # prefix of the URLs
    page_name: str
    answers: Sequence[tuple[str, Text]]  # '' is the usual answer
    count_label: Text
    help_texts: Mapping[str, Text]  # field of the behaviour → its description
    make_form: type[forms.Form]
    make_permissions: Sequence[str]
    view_permissions: Sequence[str]  # to see the calls, beside the row's permission
    answers_limited_people = False

    def __init__(self, model_admin: Any) -> None:
        self.model_admin = model_admin

    @classmethod
    def pages(cls) -> list[AdminPage]:
        def list_page(model_admin: Any, request: HttpRequest) -> HttpResponse:
            return cls(model_admin).show_list(request)

        def sandbox_page(model_admin: Any, request: HttpRequest, pk: int) -> HttpResponse:
            return cls(model_admin).show(request, pk)

        if cls.answers_limited_people:
            person_limits.answers_limited_people(sandbox_page)
        return [
            AdminPage("sandbox/", cls.list_name, list_page),
            AdminPage("<int:pk>/sandbox/", cls.page_name, sandbox_page),
        ]

    # -- what the kind says ----------------------------------------------------------------------
    def make(self, request: HttpRequest, values: Mapping[str, Any]) -> Any:
        """The row of the sandbox that was made. Raises PlatformError."""
        raise NotImplementedError

    def list_context(self, request: HttpRequest) -> Mapping[str, Any]:
        """The list's `rows`, and the other variables of its template."""
        raise NotImplementedError

    def store(self, row: Any) -> Sandbox | None:
        """The store of a row's sandbox; None if the row is no sandbox."""
        raise NotImplementedError

    def context(self, request: HttpRequest, row: Any) -> Mapping[str, Any]:
        """The calls that came, as this person may see them. Raises RedisError."""
        raise NotImplementedError

    def describe(self, behaviour: Behaviour) -> Mapping[str, Any]:
        """The answer, for the audit log and for the page."""
        raise NotImplementedError

    # -- views -----------------------------------------------------------------------------------
    def show_list(self, request: HttpRequest) -> HttpResponse:
        """Show the list. A POST makes a sandbox and redirects to its page."""
        if not self.model_admin.has_view_permission(request):
            raise PermissionDenied
        may_make = request.user.has_perms(self.make_permissions) and sandbox.is_on()
        if request.method == "POST" and not may_make:
            raise PermissionDenied
        form = self.make_form(request.POST or None, initial=request.GET.dict())
        if row := send_form(form, partial(self.make, request)):
            return redirect(f"admin:{self.page_name}", row.pk)
        return show_page(
            self.model_admin, request, f"{self.templates}/sandboxes.html", gettext("Sandbox"),
            form=form, may_make=may_make, is_on=sandbox.is_on(), **self.list_context(request),
        )  # fmt: skip

    def show(self, request: HttpRequest, pk: int) -> HttpResponse:
        row = self.model_admin.get_queryset(request).filter(pk=pk).first()
        store = self.store(row) if row else None
        if row is None or store is None:
            raise Http404(gettext("There is no such sandbox."))
        is_viewer = self.model_admin.has_view_permission(request, row)
        if not (is_viewer and request.user.has_perms(self.view_permissions)):
            raise PermissionDenied
        may_operate = self.model_admin.has_operate_permission(request, row)
        form = BehaviourForm(self, request.POST if "minutes" in request.POST else None)
        if request.method == "POST":
            if not may_operate:
                raise PermissionDenied
            if self._change(request, row, store, form):
                return redirect(request.get_full_path())
        context: dict[str, Any]
        try:
            behaviour = store.behaviour()
            context = {
                "behaviour": behaviour, "is_usual": behaviour == sandbox.USUAL,
                **self.describe(behaviour), **self.context(request, row),
            }  # fmt: skip
        except RedisError:
            context = {"is_unavailable": True}
        template = f"{self.templates}/sandbox.html"
        if "live" in request.GET:
            template = "admin/sandbox_parts.html"
        return show_page(
            self.model_admin, request, template, gettext("Sandbox"), row=row, form=form,
            may_operate=may_operate, seconds=REFRESH_SECONDS, is_on=sandbox.is_on(),
            keep_minutes=sandbox.KEEP_SECONDS // 60, max_calls=sandbox.MAX_CALLS,
            behaviour_template=f"{self.templates}/sandbox_behaviour.html",
            content_template=f"{self.templates}/sandbox_content.html", **context,
        )  # fmt: skip

    def _change(self, request: HttpRequest, row: Any, store: Sandbox, form: BehaviourForm) -> bool:
        """Do what the form asks: empty the sandbox, or set its answer. Returns False if the form is
        wrong."""
        target = self.model_admin.audit_target(row)
        try:
            if "empty" in request.POST:
                store.empty()
                audit(request, "sandbox_emptied", target)
                messages.success(request, gettext("The sandbox is empty."))
                return True
            if "usual" in request.POST:
                behaviour, minutes = sandbox.USUAL, sandbox.MAX_MINUTES
            elif form.is_valid():
                minutes = form.cleaned_data.pop("minutes")
                behaviour = Behaviour.of(**form.cleaned_data)
            else:
                return False
            store.behave(behaviour, minutes)
            audit(request, "sandbox_behaviour", target, **self.describe(behaviour))
        except RedisError:
            text = gettext("Redis does not answer: nothing was changed. Try again.")
            messages.error(request, text)
        return True
