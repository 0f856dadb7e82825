"""Consumers: where messages go, and the secret that signs them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import formats, timezone
from django.utils.translation import gettext, gettext_lazy as _

from msgplatform.core.errors import Conflict, Undecryptable
from msgplatform.core.lazy_text import translate_text
from msgplatform.doors.admin import (
    AdminPage,
    ResourceAdmin,
    ResourceForm,
    SecretPageAdmin,
    audit,
    cells,
    confirmed,
    next_page,
)
from msgplatform.doors.admin.fields import LinesField
from msgplatform.doors.admin.pages import show_page
from notify import operations
from notify.models import BizReceive, Receive
from notify.setup.consumers import Consumer
from notify.subscriptions import limits


class HeadersField(LinesField):
    """`Name: value` on each line, with an error for each wrong line. Stored values are masked; a
    value that stays masked is not changed.

    The form sets `stored_headers`, the headers as they are in the database.
    """

    is_secret = True  # values may be tokens
    note = _(
        "One on each line: X-Api-Key: value. Stored values are not shown again; leave ••• to keep "
        "one."
    )

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.stored_headers: Mapping[str, str] = {}
        self.masked_names: list[str] = []  # names of headers that the last input left masked

    def prepare_value(self, value: Any) -> Any:
        if isinstance(value, dict):
            return "\n".join(f"{name}: {limits.MASK}" for name in value)
        return value

    def to_python(self, value: Any) -> Any:
        headers: dict[str, str] = {}
        self.masked_names = []
        stored_values = {name.lower(): content for name, content in self.stored_headers.items()}

        def read(line: str) -> None:
            name, colon, content = (part.strip() for part in line.partition(":"))
            if not colon:
                raise ValidationError(gettext("write it as Name: value"))
            if content == limits.MASK:
                if name.lower() not in stored_values:
                    raise ValidationError(gettext("no value of %s is stored; write it out") % name)
                content = stored_values[name.lower()]
                self.masked_names.append(name)
            if name.lower() in (key.lower() for key in headers):
                raise ValidationError(gettext("%s is listed twice") % name)
            self.check_item({name: content})
            headers[name] = content

        list(self.read_lines(str(value or ""), read))  # raises the errors of all lines
        return headers


class ConsumerForm(ResourceForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields.get("headers")
        if not isinstance(field, HeadersField):
            return
        try:
            field.stored_headers = dict(self.instance.headers)
        except Undecryptable as error:
            # The headers must be entered again: the consumer may recognise the platform by them.
            self.initial["headers"] = {}
            field.required = True
            field.error_messages["required"] = translate_text(error.args[0])
            field.help_text = _("The stored headers cannot be decrypted: write all of them again.")

    def kept_secrets(self) -> set[str]:
        field = self.fields.get("headers")
        return {"headers"} if isinstance(field, HeadersField) and field.masked_names else set()


class RotationForm(forms.Form):
    hours = forms.FloatField(
        label=_("Hours for which the old secret signs too"),
        min_value=0,
        max_value=operations.MAX_ROTATION_HOURS,
        help_text=_("0 to 168; 0 ends it at once, as after a leak"),
    )
    seen = forms.CharField(widget=forms.HiddenInput)


@admin.register(Receive)
class ReceiveAdmin(SecretPageAdmin, ResourceAdmin):
    resource = Consumer
    may_delete = False
    limited_views = frozenset({"changelist_view", "change_view"})
    form = ConsumerForm
    form_fields = {"headers": partial(HeadersField, check=limits.headers)}
    shown_instead = {"url": "address", "headers": "header_names"}
    list_display = ["name", "title", "address", "secret_state", "created_at"]
    search_fields = ["name", "title", "url"]
    readonly_fields = ["address", "header_names", "secret_state", "created_at"]
    change_form_outer_before_template = "notify/consumer_bar.html"
    further_pages = [AdminPage("<int:pk>/rotate/", "notify_receive_rotate", "rotate_view")]

    def get_fieldsets(self, request: HttpRequest, obj: Receive | None = None) -> Any:
        fieldsets = super().get_fieldsets(request, obj)
        secret = (_("Secret"), {"fields": ["secret_state", "created_at"]})
        return [*fieldsets, secret] if obj else fieldsets

    def limited_rows(
        self, rows: QuerySet[Receive], system_ids: frozenset[int]
    ) -> QuerySet[Receive]:
        """The consumers of these systems' subscriptions. A consumer belongs to no system, and the
        consumers of other systems are hidden."""
        subscriptions = BizReceive.objects.filter(biz__in=system_ids)
        return rows.filter(pk__in=subscriptions.values("receive"))

    def get_search_fields(self, request: HttpRequest) -> list[str]:
        """The search fields, without the URL for people who may only look: a search would reveal
        the URL letter by letter."""
        may_change = self.has_change_permission(request)
        return [*self.search_fields] if may_change else ["name", "title"]

    address = cells.column(
        _("URL"),
        lambda row: gettext("a listener") if row.is_listened else limits.shown_url(row.url),
    )

    @admin.display(description=_("headers"))
    def header_names(self, consumer: Receive) -> str:
        try:
            return ", ".join(consumer.headers)
        except Undecryptable as error:
            return str(translate_text(error.args[0]))

    @admin.display(description=_("signing secret"))
    def secret_state(self, consumer: Receive) -> str:
        if not consumer.has_two_secrets:
            return gettext("one secret signs")
        until = formats.date_format(
            timezone.localtime(consumer.previous_secret_until), "DATETIME_FORMAT"
        )
        return gettext("two secrets sign, the old one until %s") % until

    def audit_changes(self, form: forms.ModelForm[Receive], change: bool) -> dict[str, Any]:
        """The changes, with headers by their names."""
        changes = super().audit_changes(form, change)
        if "headers" in changes:
            old_headers = (form.initial.get("headers") if change else None) or {}
            headers = form.instance.headers
            # The name of a header with a new value is marked.
            names = [
                name if old_headers.get(name) in (None, value) else f"{name} *"
                for name, value in headers.items()
            ]
            changes["headers"] = [sorted(old_headers), sorted(names)]
        return changes

    def response_add(
        self, request: HttpRequest, obj: Receive, post_url_continue: str | None = None
    ) -> HttpResponse:
        next_address = next_page(request) or reverse("admin:notify_receive_changelist")
        return self._show(request, obj, next_address)

    def _show(
        self, request: HttpRequest, consumer: Receive, next_address: str, form_key: str = ""
    ) -> HttpResponse:
        return self.show_secret(
            request,
            gettext("Signing secret of %(consumer)s") % {"consumer": consumer},
            gettext("The secret is shown this once; give it to the consumer:"),
            consumer.secret,
            next_address,
            form_key=form_key,
        )

    @confirmed
    def rotate_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        consumer = self.row_for(request, pk)
        change_page = reverse("admin:notify_receive_change", args=[pk])
        # `seen` names the secret that this page shows: see operations.rotate_secret().
        form_values = request.POST if request.method == "POST" else None
        start = {"hours": settings.NOTIFY_ROTATION_HOURS, "seen": operations.secret_mark(consumer)}
        form = RotationForm(form_values, initial=start)
        if form.is_valid():
            hours, mark = form.cleaned_data["hours"], form.cleaned_data["seen"]
            form_key = f"{pk} {mark}"
            try:
                with transaction.atomic():
                    consumer = operations.rotate_secret(pk, mark, hours, partial(audit, request))
                    answer = self._show(request, consumer, change_page, form_key)
                    # With the row: of a form that is sent twice, the browser shows the second
                    # answer alone, and that one has waited for the row.
                    request.session.save()
            except Conflict:
                if secret_page := self.show_secret_of(request, form_key):
                    return secret_page
                text = gettext("The secret was rotated meanwhile; nothing was changed. Look again.")
                messages.error(request, text)
                return redirect(change_page)
            return answer
        return show_page(
            self, request, "notify/rotate.html", gettext("Rotate secret"), form=form,
            back=change_page, consumer=consumer,
        )  # fmt: skip
