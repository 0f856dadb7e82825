"""What to do about alerts: for each kind a first step, and the page on which to act."""

from __future__ import annotations

import re
from collections.abc import Mapping

from django.apps import apps
from django.conf import settings
from django.urls import NoReverseMatch, reverse
from django.utils import translation
from django.utils.html import escape
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from msgplatform.core import flows
from msgplatform.core.daemons import watch
from msgplatform.core.flows import Button, Runbook
from msgplatform.models import Alert

_DOCS = settings.BASE_DIR / "docs"
# The page that has the paragraphs in English. In other languages it is `runbook.<language>.md`.
_ENGLISH = "operations.md"
# Views of one row or of a list, and the buttons that lead to the others.
_OF_MODEL = re.compile("admin:([a-z]+)_([a-z]+)_(?:change|changelist|add)")
_TITLES = {
    "console:overview": _("Open the overview"),
    "console:failures": _("Open the failures"),
    "console:search": _("Open the search"),
    "admin:feed_scheduler": _("Open the scheduler"),
}
_MARKUP = re.compile(r"`([^`]+)`|\*([^*]+)\*|\[([^\]]+)\]\(([^)]+)\)")
_PLATFORM: Mapping[str, Runbook] = {
    watch.SILENT: Runbook(
        _("Look at the log of the program that the alert names: it says why it ended."),
        "console:overview",
    ),
    watch.REDIS: Runbook(
        _("See whether that Redis runs, has memory and disk left, and can be reached from here."),
        "console:overview",
    ),
    watch.BACKLOG: Runbook(
        _("See on the overview whether its programs run and keep up; if all are busy, start more."),
        "console:overview",
    ),
    watch.WATCH: Runbook(
        _("Read the error: until it is repaired, nobody hears of what this kind of alert reports."),
        "console:overview",
    ),
    watch.DISK: Runbook(
        _("Free space on that machine: see what grows (logs, SMS Redis, database), or add disk."),
        "console:overview",
    ),
    watch.MEMORY: Runbook(
        _("Raise that Redis's maxmemory, and see on the overview what waits there."),
        "console:overview",
    ),
}


def every() -> dict[str, Runbook]:
    """Kind → what to do, of the platform and of all flows."""
    return {
        **_PLATFORM,
        **{k: book for flow in flows.all() for k, book in flow.health.runbooks.items()},
    }


def of(kind: str) -> Runbook | None:
    """None for a kind that nobody has written one for. `platform.backlog:sms` is as
    `platform.backlog`."""
    return every().get(kind.partition(":")[0])


def link(alert: Alert) -> str:
    """The address of the page on which to act; '' when there is none."""
    book = of(alert.kind)
    if book is None:
        return ""
    subject = alert.key.removeprefix(f"{alert.kind}:")
    arguments = [subject] if book.takes_subject else []
    try:
        return reverse(book.view, args=arguments)
    except NoReverseMatch:
        return ""


def button(alert: Alert) -> tuple[Button, str] | None:
    """The button that acts on the alert's subject at once, and its address; None without one."""
    book = of(alert.kind)
    if book is None or book.button is None:
        return None
    try:
        address = reverse(book.button.view, args=[alert.key.removeprefix(f"{alert.kind}:")])
    except NoReverseMatch:
        return None
    return book.button, address


def link_title(alert: Alert) -> str:
    """The words on the button that leads to that page."""
    book = of(alert.kind)
    view = book.view if book else ""
    if match := _OF_MODEL.fullmatch(view):
        model = apps.get_model(match[1], match[2])
        return gettext("Open the %s") % str(model._meta.verbose_name)
    return str(_TITLES.get(view, _("Open the page")))


def page() -> tuple[str, str]:
    """The document that has the paragraphs, and its language: the reader's, or else English."""
    language = translation.get_language() or "en"
    own = f"runbook.{language}.md"
    return (own, language) if (_DOCS / own).is_file() else (_ENGLISH, "en")


def anchor(kind: str) -> str:
    """Where the documents have the paragraph about this kind."""
    return f"docs/{page()[0]}#" + kind.partition(":")[0].replace(".", "")


def paragraph(kind: str) -> SafeString:
    """What the runbook says about this kind, as HTML; '' where the documents are not installed."""
    try:
        text = (_DOCS / page()[0]).read_text(encoding="utf-8")
    except OSError:
        return SafeString("")
    name = re.escape(kind.partition(":")[0])
    found = re.search(rf"^### {name}\n+(.*?)\s*(?:^#|\Z)", text, re.MULTILINE | re.DOTALL)
    return SafeString(_MARKUP.sub(_html, escape(found[1]))) if found else SafeString("")


def _html(found: re.Match[str]) -> str:
    code, emphasis, link, target = found.groups()
    if code or emphasis:
        return f"<code>{code}</code>" if code else f"<em>{emphasis}</em>"
    # The documents are not served: where to find it is said instead.
    where = f"docs/{page()[0]}{target}" if target.startswith("#") else f"docs/{target}"
    return f"<code>{where}</code>" if link in target else f"{link}: <code>{where}</code>"
