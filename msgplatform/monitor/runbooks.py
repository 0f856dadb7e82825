"""The runbook: for each kind of alert the page on which to act, and the steps.

`runbooks.md` beside this file, and one in the folder `monitor` of each flow, have a section for
each kind: in each of LANGUAGES, in this order, the first step as a line in bold, then a text. The
alert's page, `doctor` and messages to people show them, and `make docs` writes docs/runbook.md and
docs/runbook.zh-hans.md from them. The texts are written nowhere else; their links are as in a page
of docs/.
"""

import re
from collections import defaultdict
from collections.abc import Collection
from functools import cache
from pathlib import Path

import msgspec
from django.apps import apps
from django.core.exceptions import FieldDoesNotExist
from django.db.models import QuerySet
from django.urls import NoReverseMatch, reverse
from django.utils import translation
from django.utils.html import escape
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy as _

from msgplatform.core import flows
from msgplatform.core.flows.health import Button, Runbook
from msgplatform.models import Alert
from msgplatform.monitor.watch import BACKLOG, CHANNEL, ERASURE, PLATFORM

LANGUAGES = ("en", "zh-hans")
_TEXTS = Path(__file__).with_suffix(".md")
# Views of a row or of a list, and the titles of buttons that lead to other views.
_OF_MODEL = re.compile("admin:([a-z]+)_([a-z]+)_(?:change|changelist|add)")
_TITLES = {
    "console:overview": _("Open the overview"),
    "console:failures": _("Open the failures"),
    "console:search": _("Open the search"),
    "console:person-data": _("Open one person's data"),
    "admin:feed_scheduler": _("Open the scheduler"),
}
_MARKUP = re.compile(r"`([^`]+)`|\*([^*]+)\*|\[([^\]]+)\]\(([^)]+)\)")
_PLATFORM = {
    **dict.fromkeys(PLATFORM, Runbook("console:overview", severity="critical")),
    BACKLOG: Runbook("console:overview"),
    ERASURE: Runbook("console:person-data"),
    CHANNEL: Runbook("admin:msgplatform_alertchannel_change", takes_subject=True),
}


class Section(msgspec.Struct, frozen=True):
    """The section of the runbook about a kind of alert in one language, in Markdown."""

    first_step: str = ""
    markdown: str = ""

    @property
    def text(self) -> SafeString:
        """The text behind the first step, as HTML."""
        return SafeString(_MARKUP.sub(_html, escape(self.markdown)))


def by_kind() -> dict[str, Runbook]:
    """Kind → runbook, of the platform and of all flows."""
    books = dict(_PLATFORM)
    for flow in flows.all():
        books |= flow.health.runbooks
    return books


def find(kind: str) -> Runbook | None:
    """The runbook of this kind, or None. A kind such as `platform.backlog:sms` has the runbook of
    `platform.backlog`."""
    return by_kind().get(kind.partition(":")[0])


def link(alert: Alert) -> str:
    """The address of the page on which to act; '' if there is no page."""
    book = find(alert.kind)
    if book is None:
        return ""
    subject = alert.key.removeprefix(f"{alert.kind}:")
    arguments = [subject] if book.takes_subject else []
    try:
        return reverse(book.view, args=arguments)
    except NoReverseMatch:
        return ""


def button(alert: Alert) -> tuple[Button, str] | None:
    """The button that acts on the alert's subject at once, and its address; or None."""
    book = find(alert.kind)
    if book is None or book.button is None:
        return None
    try:
        address = reverse(book.button.view, args=[alert.key.removeprefix(f"{alert.kind}:")])
    except NoReverseMatch:
        return None
    return book.button, address


def link_title(alert: Alert) -> str:
    """The title of the button that leads to the page of `link`."""
    book = find(alert.kind)
    view = book.view if book else ""
    if match := _OF_MODEL.fullmatch(view):
        model = apps.get_model(match[1], match[2])
        return gettext("Open the %s") % str(model._meta.verbose_name)
    return str(_TITLES.get(view, _("Open the page")))


def language() -> str:
    """The reader's language; English if the runbook is not written in that language."""
    current = translation.get_language()
    return current if current in LANGUAGES else LANGUAGES[0]


def page(language_code: str) -> str:
    """The name of the page in docs/ with the sections in this language."""
    is_first = language_code == LANGUAGES[0]
    return "runbook.md" if is_first else f"runbook.{language_code}.md"


def anchor(kind: str) -> str:
    """The address of the section about this kind."""
    return f"docs/{page(language())}#" + kind.partition(":")[0].replace(".", "")


def section(kind: str) -> Section:
    """The section about this kind in the reader's language; an empty one if there is none."""
    return sections().get(kind.partition(":")[0], {}).get(language(), Section())


@cache
def sections() -> dict[str, dict[str, Section]]:
    """Kind → language → its section, in the order of the files."""
    files = [_TEXTS, *(flow.health.runbook_texts for flow in flows.all())]
    texts = [file.read_text(encoding="utf-8") for file in files if file]
    parts = [part for text in texts for part in re.split(r"^## (\S+)\n", text, flags=re.M)[1:]]
    return dict(zip(parts[::2], map(_languages, parts[1::2]), strict=True))


def _languages(body: str) -> dict[str, Section]:
    parts = re.split(r"^\*\*(.+)\*\*$", body, flags=re.MULTILINE)[1:]
    steps = zip(parts[::2], map(str.strip, parts[1::2]), strict=True)
    return {name: Section(*step) for name, step in zip(LANGUAGES, steps, strict=True)}


def _html(match: re.Match[str]) -> str:
    code, emphasis, label, target = match.groups()
    if code or emphasis:
        return f"<code>{code}</code>" if code else f"<em>{emphasis}</em>"
    # The documents are not served: the page names the file instead of a link.
    file_name = f"<code>docs/{target}</code>"
    return file_name if label in target else f"{label}: {file_name}"


def of_systems(alerts: QuerySet[Alert], system_ids: Collection[int]) -> QuerySet[Alert]:
    """The alerts about rows of these business systems. Runs one statement for each model; finds
    alerts by the index of their key."""
    kinds_by_model: dict[str, list[str]] = defaultdict(list)
    for kind, book in by_kind().items():
        if book.model and has_system(book.model):
            kinds_by_model[book.model].append(kind)
    keys: list[str] = []
    for label, kinds in kinds_by_model.items():
        rows = apps.get_model(label)._default_manager.filter(biz__in=system_ids)
        ids = list(rows.values_list("pk", flat=True))
        keys += [f"{kind}:{pk}" for kind in kinds for pk in ids]
    return alerts.filter(key__in=keys)


def has_system(label: str) -> bool:
    """True if rows of this model belong to a business system."""
    try:
        apps.get_model(label)._meta.get_field("biz")
    except FieldDoesNotExist:
        return False
    return True
