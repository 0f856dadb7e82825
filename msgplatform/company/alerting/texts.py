"""A message in the language of its channel, as plain text and as the Markdown of chat robots.

An alert's texts may come from outside, such as a consumer's answer. So they can make no link,
mention or style in a chat, and telephone numbers and addresses of people are masked.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import sha256

import msgspec
from django.conf import settings
from django.utils import timezone, translation
from django.utils.translation import gettext as _, ngettext

from msgplatform.company.alerting.models import AlertChannel, AlertNotice
from msgplatform.company.alerting.planning import severity_of
from msgplatform.core import cells, personal
from msgplatform.core.alerts import moment
from msgplatform.core.lazy_text import translate_stored
from msgplatform.models import Alert
from msgplatform.models.alerts import Severity
from msgplatform.monitor import runbooks

Event = AlertNotice.Event
MAX_BLOCKS = 20  # maximum of alerts in one message; it has the number of the others
_MAX_TEXT = 300  # maximum characters of each
# Look-alikes of the characters that make links, mentions and styles in chats.
_NEUTRAL = str.maketrans({"<": "‹", ">": "›", "[": "［", "]": "］", "*": "∗", "`": "ˋ", "@": "＠"})
_NOTIFY_TYPES = {
    Severity.INFO: "info", Severity.WARNING: "warning", Severity.CRITICAL: "failure",
}  # fmt: skip


class Text(msgspec.Struct, frozen=True):
    """The text for the child process, which takes as many blocks as fit. For services that keep
    incidents, a block about an alert has a `title`, a `severity` and the incident's `key` too."""

    title: str
    blocks: Sequence[Mapping[str, str]]
    more: str
    tail: Mapping[str, str]
    severity: str = "info"

    @property
    def plain(self) -> str:
        """The whole text, for the console."""
        return "\n\n".join([*(block["text"] for block in self.blocks), self.tail["text"]]).strip()


def of_notices(channel: AlertChannel, notices: Sequence[AlertNotice]) -> Text:
    """The message about these notices (at least one), the worst and newest first."""
    latest_by_key: dict[str, AlertNotice] = {}
    alert_ids = defaultdict[str, set[int]](set)
    for notice in sorted(notices, key=lambda notice: notice.pk):
        latest_by_key[notice.alert.key] = notice  # opened and resolved in one message: show the end
        alert_ids[notice.alert.key].add(notice.alert_id)
    latest_notices = sorted(latest_by_key.values(), key=_rank)
    with translation.override(channel.language), timezone.override(channel.time_zone):
        blocks = list[dict[str, str]]()
        for notice in latest_notices:
            alert, is_end = notice.alert, notice.event == Event.RESOLVED
            subject = _clean(str(translate_stored(alert.said.get("subject", alert.subject))))
            headline, since = f"[{_mark(notice)}] {subject}", moment(alert.first_at)
            # Other installations may have alerts of the same key.
            key = f"{prefix()}{settings.PUBLIC_URL} {alert.key}"
            block = {
                "text": "", "markdown": "", "key": sha256(key.encode()).hexdigest(),
                "title": f"{prefix()}{headline}"[:250],
                "severity": "success" if is_end else _NOTIFY_TYPES[severity_of(alert.kind)],
            }  # fmt: skip
            blocks.append(block)
            if len(blocks) > MAX_BLOCKS:
                continue
            if is_end and alert.resolved_at:
                until = moment(alert.resolved_at)
                lines = [_("From %(since)s until %(until)s.") % {"since": since, "until": until}]
            else:
                text = str(translate_stored(alert.said.get("text", alert.text)))
                lines = [_clean(text)[:_MAX_TEXT], _("Since %s.") % since]
                if step := runbooks.section(alert.kind).first_step:
                    lines.insert(1, _("First: %s") % step.replace("`", ""))
            if (number := len(alert_ids[alert.key])) > 1:
                words = _("It comes and goes: since the last message it began %d times.")
                lines.append(words % number)
            lines, url = list(filter(None, lines)), alert_url(alert)
            link = "[" + _("Open the alert") + f"]({url})"
            block["text"] = "\n".join([headline, *lines, url])
            block["markdown"] = "\n\n".join([f"**{headline}**", *lines, link])
        title = blocks[0]["title"]
        if len(blocks) > 1:
            ends = sum(block["severity"] == "success" for block in blocks)
            counts = [_("%d resolved") % ends] if ends else []
            if beginnings := len(blocks) - ends:
                counts.insert(0, ngettext("%d alert", "%d alerts", beginnings) % beginnings)
            title = prefix() + ", ".join(counts)
        return Text(
            title,
            blocks,
            _("… and {count} more"),
            _tail(_("Open alerts"), "/admin/msgplatform/alert/?state=open"),
            blocks[0]["severity"],
        )


def test(channel: AlertChannel, now: datetime) -> Text:
    """The message of the test button."""
    with translation.override(channel.language), timezone.override(channel.time_zone):
        words = _("This is a test of the channel %(name)s, sent at %(at)s. Alerts come like this.")
        text = words % {"name": channel.name, "at": moment(now)}
        return Text(
            prefix() + _("Test"),
            [{"text": text, "markdown": text}],
            "",
            _tail(_("Open the console"), "/console/"),
        )


def of_paragraphs(channel: AlertChannel, title: str, text: str) -> Text:
    """A message from given paragraphs, such as a summary."""
    blocks = [{"text": part, "markdown": part} for part in text.split("\n\n")]
    with translation.override(channel.language):
        more = _("… and {count} more")
        return Text(title, blocks, more, _tail(_("Statistics"), "/console/statistics/"))


def alert_url(alert: Alert) -> str:
    """The alert's page in the console. Some programs have no pages, so the path is here."""
    return f"{settings.PUBLIC_URL}/admin/msgplatform/alert/{alert.pk}/change/"


def prefix() -> str:
    """The beginning of each title: the platform's name, if there are several."""
    cell = cells.own()
    return "msgplatform: " if cell.is_only else f"msgplatform {cell}: "


def _rank(notice: AlertNotice) -> tuple[bool, int, int]:
    severity = severity_of(notice.alert.kind)
    return notice.event == Event.RESOLVED, -severity.rank, -notice.alert_id


def _mark(notice: AlertNotice) -> str:
    if notice.event == Event.RESOLVED:
        return str(Event.RESOLVED.label)
    severity = str(severity_of(notice.alert.kind).label)
    return f"{severity}, {Event.REPEATED.label}" if notice.event == Event.REPEATED else severity


def _clean(text: str) -> str:
    return personal.mask_sentence(text).translate(_NEUTRAL)


def _tail(title: str, path: str) -> Mapping[str, str]:
    url = f"{settings.PUBLIC_URL}{path}"
    return {"text": f"{title}: {url}", "markdown": f"[{title}]({url})"}
