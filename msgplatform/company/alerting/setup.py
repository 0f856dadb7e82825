"""Where alerts go, as people set it up: channels, whose address is checked and shown without its
secrets, and rules."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.utils.crypto import salted_hmac
from django.utils.translation import gettext as _, gettext_lazy, pgettext_lazy
from rest_framework import serializers

from msgplatform.company.alerting import outbox
from msgplatform.company.alerting.models import MAX_URL, AlertChannel, AlertRule
from msgplatform.core.errors import InvalidInput, Undecryptable
from msgplatform.core.http import destinations
from msgplatform.models import Biz
from msgplatform.monitor import runbooks
from msgplatform.setup.declaration import Before, Faults
from msgplatform.setup.fields import NamedField, SecretTextField, TextListField, WholeSerializer
from msgplatform.setup.resource import Resource

SCOPE = "manage:alert-channels"


def check_address(url: str, is_heartbeat: bool) -> str:
    """Check an address without any traffic; this takes a second if apprise reads it. Returns what
    describes it: service, scheme, host and a fingerprint. Raises InvalidInput for an address that
    cannot be used."""
    url = url.strip()
    if not url:
        raise InvalidInput(_("Enter the address."))
    if len(url) > MAX_URL:
        raise InvalidInput(_("The address is longer than %d characters.") % MAX_URL)
    if is_heartbeat:
        return f"{destinations.parse(url).origin} · {fingerprint(url)}"
    outcome = outbox.check(url)
    details: Mapping[str, Any] = outcome.details or {}
    if outcome.is_ok:
        return f"{details['service']} {details['place']} · {fingerprint(url)}"[:200]
    match details.get("problem"):
        case "scheme":
            sentence = _(
                "No service is known for “%(scheme)s://”. The address is one of apprise, such as "
                "dingtalk://SECRET@TOKEN/, wecombot://KEY, feishu://TOKEN?secret=SECRET, "
                "slack://A/B/C or mailtos://user:password@example.com?to=ops@example.com, or the "
                "webhook that the robot's own page shows."
            )
            raise InvalidInput(sentence % {"scheme": details["scheme"]})
        case "form":
            sentence = _("The address is not complete, or a part of it is wrong. For %(service)s "
                         "it is written: %(forms)s")  # fmt: skip
            forms = _(" or ").join(details["forms"])
            raise InvalidInput(sentence % {"service": details["service"], "forms": forms})
    raise InvalidInput(_("The address could not be checked: %s.") % outcome.error.rstrip("."))


def fingerprint(url: str) -> str:
    """A keyed digest: it tells addresses apart and reveals nothing of them."""
    return salted_hmac("alert_channel", url, algorithm="sha256").hexdigest()[:8]


class AlertChannelSerializer(WholeSerializer):
    """A place where people read alerts."""

    url = SecretTextField(max_length=MAX_URL)
    failing = serializers.SerializerMethodField(
        help_text="true: the last attempts failed, and there is an alert about it"
    )

    class Meta:
        model = AlertChannel
        fields = ["name", "enabled", "url", "shown", "language", "time_zone", "summary_weekday",
                  "heartbeat_seconds", "failing", "last_error", "last_sent_at"]  # fmt: skip
        read_only_fields = ["name", "shown", "last_error", "last_sent_at"]

    def get_failing(self, row: AlertChannel) -> bool:
        return outbox.is_failing(row)


class AlertChannelResource(Resource):
    noun, nouns = "alert channel", "alert channels"
    answers_limited_keys = False
    list_path, path = "alert-channels", "alert-channels/<slug:name>"
    scope = SCOPE
    model = AlertChannel
    serializer_class = AlertChannelSerializer
    secret_fields = frozenset({"url"})
    always_written = frozenset({"language", "time_zone"})
    is_deleted = True
    _shown = ""  # the address that `faults` has checked
    groups = [
        (None, ["name", "enabled", "url", "language", "time_zone"]),
        (gettext_lazy("At times"), ["summary_weekday", "heartbeat_seconds"]),
    ]
    example = {"url": "dingtalk://SECRET@TOKEN/", "language": "zh-hans"}
    on_delete = (
        "Deletes the channel, with what was sent there and what waits for it; 409 while it is the "
        "only channel of a rule."
    )
    conflicts = ("DELETE",)
    notes = "The address is checked without sending anything. Nothing goes there without a rule."
    list_notes = "Every channel, by name, without its address."

    @classmethod
    def secret_text(cls, row: AlertChannel, name: str) -> str:
        return row.shown

    def faults(self, row: AlertChannel, before: Before | None) -> Faults:
        """Faults of the address, which is checked again when it or its purpose changes, and of a
        purpose that does not fit the rules."""
        if before is not None and row.is_heartbeat and not before.row.is_heartbeat:
            rules = AlertRule.objects.filter(channels=row)
            if names := ", ".join(rules.values_list("name", flat=True)):
                words = _("A heartbeat gets no messages: take the channel out of %s first.")
                yield "heartbeat_seconds", words % names
        try:
            url = row.url or ""
        except Undecryptable as error:
            yield "url", str(error)
            return
        if before is not None:
            stored_url = AlertChannel._meta.get_field("url").value_from_object(before.row)
            is_same = row.heartbeat_seconds == before.row.heartbeat_seconds
            if is_same and url == stored_url:
                return
        try:
            self._shown = check_address(url, row.is_heartbeat)
        except InvalidInput as error:
            yield "url", str(error)

    @classmethod
    def removal_fault(cls, row: AlertChannel) -> str:
        return row.removal_fault

    def set_dependent_fields(self, row: AlertChannel, names: Sequence[str]) -> Sequence[str]:
        row.shown = self._shown or row.shown
        if not (self._shown or (row.enabled and "enabled" in names)):
            return []
        # Failures of another address, or of another time, say nothing of what is sent from now on.
        row.failing_since, row.failures_in_row, row.last_error = None, 0, ""
        return ["shown", "failing_since", "failures_in_row", "last_error"]


def kind_fault(kind: str) -> str:
    """A sentence about a text that fits no kind of alert; '' for another one."""
    kinds = sorted(runbooks.by_kind())
    if kind in kinds or (kind.endswith("*") and any(name.startswith(kind[:-1]) for name in kinds)):
        return ""
    flows = ", ".join(sorted({f"{name.partition('.')[0]}.*" for name in kinds}))
    words = _("There is no kind of alert “%(kind)s”: write one of the runbook's, or %(all)s.")
    return words % {"kind": kind[:64], "all": flows}


class AlertRuleSerializer(WholeSerializer):
    """The alerts that go to channels, and their times."""

    kinds = TextListField()
    systems = NamedField(many=True, queryset=Biz.objects.all(), required=False, allow_null=True)
    channels = NamedField(many=True, queryset=AlertChannel.objects.all(), allow_empty=False)

    class Meta:
        model = AlertRule
        fields = ["name", "enabled", "kinds", "min_severity", "systems", "channels",
                  "group_seconds", "repeat_minutes", "sends_resolved", "quiet_from", "quiet_until",
                  "time_zone", "quiet_passes_from", "quiet_drops_below"]  # fmt: skip
        read_only_fields = ["name"]


class AlertRuleResource(Resource):
    noun, nouns = "alert rule", "alert rules"
    answers_limited_keys = False
    list_path, path = "alert-rules", "alert-rules/<slug:name>"
    scope = SCOPE
    model = AlertRule
    serializer_class = AlertRuleSerializer
    is_deleted = True
    checked_fields = frozenset({"channels"})
    always_written = frozenset({"time_zone"})
    groups = [
        (None, ["name", "enabled"]),
        (gettext_lazy("Which alerts"), ["kinds", "min_severity", "systems"]),
        (gettext_lazy("Where to"), ["channels"]),
        (pgettext_lazy("rule", "How often"), ["group_seconds", "repeat_minutes", "sends_resolved"]),
        (
            gettext_lazy("Quiet hours"),
            ["quiet_from", "quiet_until", "time_zone", "quiet_passes_from", "quiet_drops_below"],
        ),
    ]
    example = {"kinds": ["sms.*"], "min_severity": "critical", "channels": ["operators"]}
    on_delete = "Deletes the rule; what waits by it is still sent."
    notes = "It is about what happens from then on."
    list_notes = "Every rule, by name."
    list_prefetched = ("systems", "channels")

    def faults(self, row: AlertRule, before: Before | None) -> Faults:
        # Stored kinds stay: their flow may have left FLOWS.
        for kind in row.kinds:
            is_stored = before is not None and kind in before.row.kinds
            if not is_stored and (sentence := kind_fault(kind)):
                yield "kinds", sentence
        channels = self.related.get("channels", ())
        if names := [channel.name for channel in channels if channel.is_heartbeat]:
            words = _("A heartbeat gets no messages: leave out %s.")
            yield "channels", words % ", ".join(names)
