"""Where alerts go: channels and rules; and the messages that wait, were sent or failed."""

from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy as _

from msgplatform.company.alerting import outbox
from msgplatform.company.alerting.address_field import AddressField
from msgplatform.company.alerting.models import AlertChannel, AlertMessage, AlertRule
from msgplatform.company.alerting.setup import AlertChannelResource, AlertRuleResource
from msgplatform.core import personal
from msgplatform.core.errors import Undecryptable
from msgplatform.doors.admin import AdminPage, Select, cells
from msgplatform.doors.admin.auditing import audit
from msgplatform.doors.admin.base import sees_personal
from msgplatform.doors.admin.filters import AutocompleteFilter, ChoiceFilter
from msgplatform.doors.admin.resource_admin import ResourceAdmin, ResourceForm
from msgplatform.doors.admin.rows import RowsAdmin
from msgplatform.models.alerts import Severity


class NewChannelForm(ResourceForm):
    """A channel with the rule by which alerts go there: without one, nothing does."""

    rule = forms.ChoiceField(
        label=_("Alerts that go there"),
        required=False,
        choices=[("", _("none yet: a rule follows")), *reversed(Severity.choices)],
        widget=Select,
        help_text=_("Those as severe as this, and worse ones, by a rule of the channel's name."),
    )

    def clean(self) -> dict[str, Any]:
        values = super().clean()
        if values.get("rule") and values.get("heartbeat_seconds"):
            self.add_error("rule", gettext("A heartbeat gets no messages."))
        elif values.get("rule") and AlertRule.objects.filter(name=values.get("name")).exists():
            self.add_error("rule", gettext("There is a rule of this name: add the channel there."))
        return values


@admin.register(AlertChannel)
class AlertChannelAdmin(ResourceAdmin):
    resource = AlertChannelResource
    readonly_fields = ["shown"]
    shown_instead = {"url": "shown"}
    list_display = ["name", "shown", "state", "language", "summary", "last_sent_at"]
    search_fields = ["name"]
    sortable_by = ["name", "last_sent_at"]
    empty_text = _(
        "No channel yet: alerts are shown in the console only. Add a chat robot, a mailbox or a "
        "pager, then a rule that says what goes there."
    )
    change_form_outer_before_template = "admin/alert_channel_bar.html"
    further_pages = [
        AdminPage("<int:pk>/test/", "msgplatform_alertchannel_test", "test_view", is_post=True)
    ]

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        actions: dict[str, Any] = super().get_actions(request)
        actions.pop("delete_selected", None)  # it could delete all channels of a rule
        return actions

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any
    ) -> Any:
        if obj is not None:
            return super().get_form(request, obj, change, **kwargs)
        form: Any = super().get_form(request, obj, change, form=NewChannelForm, **kwargs)
        form.base_fields["url"] = AddressField(label=form.base_fields["url"].label)
        if not request.user.has_perm("msgplatform.add_alertrule"):
            del form.base_fields["rule"]
        elif not AlertRule.objects.exists():
            form.base_fields["rule"].initial = Severity.WARNING
        return form

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        first, *others = super().get_fieldsets(request, obj)
        if obj is not None or not request.user.has_perm("msgplatform.add_alertrule"):
            return [first, *others]
        return [(first[0], {**first[1], "fields": [*first[1]["fields"], "rule"]}), *others]

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        if severity := form.cleaned_data.get("rule"):
            rule = AlertRule.objects.create(name=obj.name, min_severity=severity)
            rule.channels.add(obj)
            changes = {"min_severity": [None, severity], "channels": [None, [obj.name]]}
            action = f"{AlertRuleResource.audit_word()}_created"
            audit(request, action, AlertRuleResource.title(rule), changes=changes)

    def test_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Send a test message to the channel as it is stored."""
        row = self.row_for(request, pk)
        audit(request, "alert_channel_tested", row.name)
        try:
            outcome = outbox.send_test(row)
        except Undecryptable as error:
            messages.error(request, str(error))
        else:
            if outcome.is_ok:
                messages.success(request, gettext("The test was sent: see whether it arrived."))
            else:
                words = gettext("The test was not sent: %s")
                messages.error(request, words % outcome.error)
        return redirect("admin:msgplatform_alertchannel_change", pk)

    @admin.display(description=_("state"))
    def state(self, row: AlertChannel) -> str:
        if not row.enabled:
            return cells.enabled(False)
        if outbox.is_failing(row):
            return cells.mark(gettext("fails"), "bad", below=cells.cut(row.last_error))
        if row.failures_in_row:
            return cells.mark(gettext("tried again"), "warn", below=cells.cut(row.last_error))
        return cells.mark(gettext("works"), "good") if row.last_sent_at else cells.mark(
            gettext("not used yet"), "plain"
        )  # fmt: skip

    @admin.display(description=_("at times"))
    def summary(self, row: AlertChannel) -> str:
        if row.is_heartbeat:
            return gettext("heartbeat each %d s") % row.heartbeat_seconds
        day: Any = row
        return day.get_summary_weekday_display() if row.summary_weekday else cells.NOTHING


@admin.register(AlertRule)
class AlertRuleAdmin(ResourceAdmin):
    resource = AlertRuleResource
    list_display = ["name", "state", "covered_alerts", "channel_names", "quiet_hours"]
    search_fields = ["name"]
    sortable_by = ["name"]
    autocomplete_fields = ["systems", "channels"]
    empty_text = _("No rule yet: alerts are shown in the console only.")

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).prefetch_related("systems", "channels")

    state = cells.column(_("state"), lambda row: cells.enabled(row.enabled))

    @admin.display(description=_("which alerts"))
    def covered_alerts(self, row: AlertRule) -> str:
        kinds = cells.cut(", ".join(row.kinds)) if row.kinds else gettext("all kinds")
        systems = ", ".join(str(system) for system in row.systems.all())
        severity = gettext("from: %s") % Severity(row.min_severity).label
        return cells.lines(kinds, ", ".join(filter(None, [severity, cells.cut(systems)])))

    @admin.display(description=_("alert channels"))
    def channel_names(self, row: AlertRule) -> str:
        names = ", ".join(str(channel) for channel in row.channels.all())
        return cells.cut(names) or cells.mark(gettext("none"), "warn")

    @admin.display(description=_("quiet hours"))
    def quiet_hours(self, row: AlertRule) -> str:
        if row.quiet_from is None or row.quiet_until is None:
            return cells.NOTHING
        hours = f"{row.quiet_from:%H:%M}–{row.quiet_until:%H:%M}"
        return cells.lines(hours, row.time_zone)


State = AlertMessage.State
_TONES = {State.WAITING: "warn", State.SENT: "good", State.FAILED: "bad", State.DROPPED: "plain"}
_MAX_NOTICES = 200


@admin.register(AlertMessage)
class AlertMessageAdmin(RowsAdmin):
    sentence_fields = ("title", "text", "error")
    empty_text = _("Nothing was sent yet: alerts go out by the rules, to channels.")
    list_display = ["subject", "channel", "kind_text", "state_mark", "created_at", "sent_at"]
    list_display_links = None
    list_filter = [("state", ChoiceFilter), ("channel", AutocompleteFilter)]
    search_help_text = _("A message's id")
    page_template = "admin/alert_message.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[AlertMessage]:
        rows: QuerySet[AlertMessage] = super().get_queryset(request)
        return rows.select_related("channel", "rule")

    def page(self, request: HttpRequest, row: AlertMessage) -> Mapping[str, Any]:
        notices = list(row.notices.select_related("alert").order_by("pk")[:_MAX_NOTICES])
        for notice in notices:
            notice.alert.translate()
            if not sees_personal(request):
                notice.alert.subject = personal.mask_sentence(notice.alert.subject)
        return {"notices": notices, "tone": _TONES[State(row.state)]}

    @admin.display(description=_("message"))
    def subject(self, row: AlertMessage) -> str:
        url = reverse("admin:msgplatform_alertmessage_change", args=[row.pk])
        return cells.link(url, row.title or gettext("not written yet"))

    kind_text = cells.column(_("what"), lambda row: str(AlertMessage.Kind(row.kind).label))

    @admin.display(description=_("state"))
    def state_mark(self, row: AlertMessage) -> str:
        state = State(row.state)
        below = cells.cut(row.error)
        if state == State.WAITING and not below:
            below = gettext("due %s") % cells.moment(row.due_at)
        return cells.mark(str(state.label), _TONES[state], below=below)
