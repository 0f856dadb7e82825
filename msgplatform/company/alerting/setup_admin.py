"""Where alerts go: channels and rules."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import redirect
from django.urls import URLPattern, path
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from msgplatform.admin import cells
from msgplatform.admin.auditing import audit
from msgplatform.admin.base import ModelAdmin
from msgplatform.admin.fields import LinesField, SecretTextField
from msgplatform.company.alerting import addresses, outbox
from msgplatform.core.errors import Unavailable, Undecryptable
from msgplatform.models import AlertChannel, AlertRule
from msgplatform.models.alerts_out import MAX_URL, Severity
from msgplatform.monitor import runbooks


class ChannelForm(forms.ModelForm):  # type: ignore[type-arg]  # it takes none at run time
    url = SecretTextField(
        label=_("Address"),
        max_length=MAX_URL,
        help_text=_(
            "As apprise writes it: dingtalk://SECRET@TOKEN/, wecombot://KEY, "
            "feishu://TOKEN?secret=SECRET, slack://A/B/C, "
            "mailtos://user:password@example.com?to=ops@example.com, or the webhook of the robot's "
            "own page. Encrypted."
        ),
    )

    class Meta:
        model = AlertChannel
        fields = ["name", "enabled", "url", "language", "time_zone", "summary_weekday",
                  "heartbeat_seconds"]  # fmt: skip

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        url = self.fields.get("url")
        if isinstance(url, SecretTextField) and self.instance.pk:
            stored_url = AlertChannel._meta.get_field("url").value_from_object(self.instance)
            url.keep(stored_url, self.instance.shown)
        self.initial.pop("url", None)

    def clean(self) -> dict[str, Any]:
        form_values = super().clean() or {}
        names = {"url", "heartbeat_seconds"}
        if not self.errors and names.intersection(self.changed_data) and names <= set(form_values):
            is_heartbeat = bool(form_values["heartbeat_seconds"])
            try:
                checked = addresses.check(form_values["url"], is_heartbeat)
            except Unavailable as error:
                checked = addresses.Checked(str(error))
            if checked.fault:
                self.add_error("url", checked.fault)
            else:
                form_values["url"] = form_values["url"].strip()
                self.instance.shown = checked.shown
        return form_values


@admin.register(AlertChannel)
class AlertChannelAdmin(ModelAdmin):
    audit_name = "alert_channel"
    form = ChannelForm
    list_display = ["name", "shown", "state", "language", "summary", "last_sent_at"]
    search_fields = ["name"]
    sortable_by = ["name", "last_sent_at"]
    empty_text = _(
        "No channel yet: alerts are shown in the console only. Add a chat robot, a mailbox or a "
        "pager, then a rule that says what goes there."
    )
    change_form_outer_before_template = "admin/alert_channel_bar.html"
    fieldsets = [
        (None, {"fields": ["name", "enabled", "url", "language", "time_zone"]}),
        (_("At times"), {"fields": ["summary_weekday", "heartbeat_seconds"]}),
    ]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        if obj is None or self.has_change_permission(request, obj):
            return super().get_fieldsets(request, obj)
        names = ["name", "enabled", "shown", "language", "time_zone"]
        return [(None, {"fields": names}), *self.fieldsets[1:]]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return ["shown"]

    def get_urls(self) -> list[URLPattern]:
        test = self.admin_site.admin_view(self.test_view)
        name = "msgplatform_alertchannel_test"
        return [path("<int:pk>/test/", test, name=name), *super().get_urls()]

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        if change and {"url", "heartbeat_seconds"}.intersection(form.changed_data):
            obj.save(update_fields=["shown"])

    def test_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Send a test message to the channel as it is stored."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        row = AlertChannel.objects.filter(pk=pk).first()
        if row is None:
            raise Http404
        if not self.has_change_permission(request, row):
            raise PermissionDenied
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


def _check_kind(kind: str) -> None:
    """Raises ValidationError for a line that fits no kind of alert."""
    known = sorted(runbooks.by_kind())
    prefix = kind[:-1]
    is_known = any(k.startswith(prefix) for k in known) if kind.endswith("*") else kind in known
    if not is_known:
        flows = ", ".join(sorted({f"{name.partition('.')[0]}.*" for name in known}))
        raise ValidationError(
            gettext("There is no kind of alert “%(kind)s”: write one of the runbook's, or %(all)s.")
            % {"kind": kind[:64], "all": flows}
        )


class RuleForm(forms.ModelForm):  # type: ignore[type-arg]  # it takes none at run time
    kinds = LinesField(
        check=_check_kind,
        label=_("Kinds"),
        help_text=_("One on each line, such as sms.* or notify.failing. None: all kinds."),
    )

    class Meta:
        model = AlertRule
        fields = ["name", "enabled", "kinds", "min_severity", "systems", "channels",
                  "group_seconds", "repeat_minutes", "sends_resolved", "quiet_from",
                  "quiet_until", "time_zone", "quiet_passes_from",
                  "quiet_drops_below"]  # fmt: skip

    def clean_channels(self) -> Any:
        channels = self.cleaned_data["channels"]
        if names := [row.name for row in channels if row.is_heartbeat]:
            words = gettext("A heartbeat gets no messages: leave out %s.")
            raise ValidationError(words % ", ".join(names))
        return channels


@admin.register(AlertRule)
class AlertRuleAdmin(ModelAdmin):
    audit_name = "alert_rule"
    form = RuleForm
    list_display = ["name", "state", "what", "goes_to", "when"]
    search_fields = ["name"]
    sortable_by = ["name"]
    autocomplete_fields = ["systems", "channels"]
    empty_text = _("No rule yet: alerts are shown in the console only.")
    fieldsets = [
        (None, {"fields": ["name", "enabled"]}),
        (_("Which alerts"), {"fields": ["kinds", "min_severity", "systems"]}),
        (_("Where to"), {"fields": ["channels"]}),
        (_("How often"), {"fields": ["group_seconds", "repeat_minutes", "sends_resolved"]}),
        (_("Quiet hours"), {"fields": ["quiet_from", "quiet_until", "time_zone",
                                       "quiet_passes_from", "quiet_drops_below"]}),
    ]  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).prefetch_related("systems", "channels")

    @admin.display(description=_("state"))
    def state(self, row: AlertRule) -> str:
        return cells.enabled(row.enabled)

    @admin.display(description=_("which alerts"))
    def what(self, row: AlertRule) -> str:
        kinds = cells.cut(", ".join(row.kinds)) if row.kinds else gettext("all kinds")
        systems = ", ".join(str(system) for system in row.systems.all())
        severity = gettext("from: %s") % Severity(row.min_severity).label
        return cells.lines(kinds, ", ".join(filter(None, [severity, cells.cut(systems)])))

    @admin.display(description=_("alert channels"))
    def goes_to(self, row: AlertRule) -> str:
        names = ", ".join(str(channel) for channel in row.channels.all())
        return cells.cut(names) or cells.mark(gettext("none"), "warn")

    @admin.display(description=_("quiet hours"))
    def when(self, row: AlertRule) -> str:
        if row.quiet_from is None or row.quiet_until is None:
            return cells.NOTHING
        hours = f"{row.quiet_from:%H:%M}–{row.quiet_until:%H:%M}"
        return cells.lines(hours, row.time_zone)
