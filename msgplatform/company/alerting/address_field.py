"""The form field of a new channel's address: a kind of service and the parts that its page shows.

Each kind makes the address that `send` takes; the address itself can be entered as well.
"""

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import msgspec
from django import forms
from django.core.exceptions import ValidationError
from django.forms.widgets import Script
from django.utils.translation import gettext as _, gettext_lazy

from msgplatform.doors.admin import Select
from msgplatform.doors.admin.fields import SecretInput, WriteOnly

_SMTP = {"smtp": "mailto", "smtp+starttls": "mailtos", "smtps": "mailtos"}


class Part(msgspec.Struct, frozen=True):
    """An input. `label` and `example` stand above and in it."""

    label: Any
    example: str = ""
    is_optional: bool = False


class Kind(msgspec.Struct, frozen=True):
    """`address` takes the texts of `parts`, in their order."""

    title: Any
    parts: tuple[Part, ...]
    address: Callable[..., str]
    hint: Any = ""


def _add_secret(webhook: str, secret: str) -> str:
    """The webhook of a robot with its secret, as `robots.own_form` reads it."""
    return f"{webhook}{'&' if '?' in webhook else '?'}secret={quote(secret)}" if secret else webhook


def _mail(to: str, server: str) -> str:
    """Raises ValidationError for a server whose scheme is none of SMTP."""
    scheme, _separator, place = server.partition("://")
    if scheme not in _SMTP:
        raise ValidationError(
            _("Write the mail server as %s.") % "smtps://user:password@mail.example.com"
        )
    mode = "&mode=ssl" if scheme == "smtps" else ""
    return f"{_SMTP[scheme]}://{place.rstrip('/')}/?to={quote(to)}{mode}"


def _json_post(url: str) -> str:
    """apprise's address for a POST of JSON: its own schemes, and `-` before names of the query. An
    address that is apprise's already stays."""
    if not url.startswith(("http://", "https://")):
        return url
    place, _mark, query = url.replace("http", "json", 1).replace(";", "%3B").partition("?")
    return f"{place}?-{query.replace('&', '&-')}" if query else place


_WEBHOOK, _SECRET = gettext_lazy("Webhook"), gettext_lazy("Secret")
_ROBOT = gettext_lazy("Both stand on the robot's page in the group's settings.")
KINDS = {
    "dingtalk": Kind(
        gettext_lazy("DingTalk"),
        (
            Part(_WEBHOOK, "https://oapi.dingtalk.com/robot/send?access_token=…"),
            Part(_SECRET, "SEC…", is_optional=True),
        ),
        _add_secret, _ROBOT,
    ),
    "wecom": Kind(
        gettext_lazy("WeCom"),
        (Part(_WEBHOOK, "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=…"),), str,
    ),
    "feishu": Kind(
        gettext_lazy("Feishu or Lark"),
        (
            Part(_WEBHOOK, "https://open.feishu.cn/open-apis/bot/v2/hook/…"),
            Part(_SECRET, is_optional=True),
        ),
        _add_secret, _ROBOT,
    ),
    "slack": Kind(
        gettext_lazy("Slack"), (Part(_WEBHOOK, "https://hooks.slack.com/services/A/B/C"),), str
    ),
    "mail": Kind(
        gettext_lazy("Mail"),
        (
            Part(gettext_lazy("To"), "ops@example.com"),
            Part(gettext_lazy("Mail server"), "smtps://user:password@mail.example.com"),
        ),
        _mail, gettext_lazy("smtp+starttls:// and smtp:// are mail servers as well."),
    ),
    "pagerduty": Kind(
        gettext_lazy("PagerDuty"),
        (Part(gettext_lazy("Integration key")), Part(gettext_lazy("API key"))),
        lambda integration, api: f"pagerduty://{integration}@{api}",
    ),
    "webhook": Kind(
        gettext_lazy("A service of your own"),
        (Part(gettext_lazy("URL"), "https://alerts.example.com/in"),),
        _json_post, gettext_lazy("It gets a POST of JSON for each message."),
    ),
    "": Kind(
        gettext_lazy("Another service, or a heartbeat"),
        (Part(gettext_lazy("Address"), "telegram://TOKEN/CHAT"),), str,
        gettext_lazy(
            "As apprise writes it; a heartbeat calls an address that begins with https:// or "
            "http://."
        ),
    ),
}  # fmt: skip


class _AddressWidget(forms.MultiWidget):
    """The kind, and the inputs of its parts, whose labels a script changes with the kind."""

    template_name = "admin/alert_address.html"

    class Media:
        js = [Script("console/alert_address.js", defer=True)]

    def __init__(self) -> None:
        choices = [(name, kind.title) for name, kind in KINDS.items()]
        select = Select({"aria-label": gettext_lazy("Service")}, choices)
        super().__init__({"kind": select, "first": SecretInput(), "second": SecretInput()})

    def decompress(self, value: Any) -> list[str]:
        return [next(iter(KINDS)), "", ""]

    def get_context(self, name: str, value: Any, attrs: Any) -> dict[str, Any]:
        kinds = {
            name: [str(kind.hint), *([str(part.label), part.example] for part in kind.parts)]
            for name, kind in KINDS.items()
        }
        return {**super().get_context(name, value, attrs), "kinds": kinds}


class AddressField(WriteOnly):
    """A new address, entered as the kind of its service and its parts."""

    widget = _AddressWidget

    def clean(self, value: Any) -> str:
        name, *texts = (str(text or "").strip() for text in value)
        if (kind := KINDS.get(name)) is None:
            raise ValidationError(_("Choose a service."))
        texts = texts[: len(kind.parts)]
        for part, text in zip(kind.parts, texts, strict=True):
            if not (text or part.is_optional):
                raise ValidationError(_("Enter: %s.") % part.label)
        return kind.address(*texts)
