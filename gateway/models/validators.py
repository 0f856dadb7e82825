"""Validators of what people enter for gateways and accounts: names, networks, prefixes, texts."""

import re
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address, ip_network
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import MaxLengthValidator, RegexValidator
from django.utils.translation import gettext_lazy as _

from msgplatform.core.characters import fold

MAX_ITEMS = 1000  # networks, prefixes or keywords of one gateway or account
# Labels as in RFC 1123, and with underscores, which inner networks use.
_HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")


def ascii_only(value: str) -> None:
    """A text that goes into a frame unchanged. Raises ValidationError."""
    if not (value.isascii() and value.isprintable()):
        raise ValidationError(_("SGIP takes ASCII characters only."))


def host(value: str) -> None:
    """A name or an IP address, and nothing else: the port has a field of its own."""
    with suppress(ValueError):
        ip_address(value)
        return
    if not _HOST_NAME.fullmatch(value):
        text = _("A name or an IP address only, without a port, a space or http://.")
        raise ValidationError(text)


def network(value: str) -> None:
    """An address, or a network in CIDR form."""
    try:
        ip_network(value)
    except ValueError:
        raise ValidationError(
            _("%(value)s is no address and no network such as 203.0.113.0/28 or 2001:db8::/64."),
            params={"value": value},
        ) from None


prefix = RegexValidator(r"^[0-9]{1,21}\Z", _("%(value)s: digits only"))
_max_keyword = MaxLengthValidator(40)


def keyword(value: str) -> None:
    """Check a beginning of texts. Raises ValidationError."""
    _max_keyword(value)
    if not fold(value):  # every text begins with it
        raise ValidationError(_("A keyword needs characters that can be seen."))


def _check_items(value: Any, check: Callable[[Any], None]) -> None:
    """Raises ValidationError unless the value is a list of texts that pass the check."""
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise ValidationError(_('Write a list of texts, such as ["130", "131"].'))
    if len(value) > MAX_ITEMS:
        raise ValidationError(_("Write at most %d.") % MAX_ITEMS)
    for item in value:
        check(item)


def networks(value: Any) -> None:
    _check_items(value, network)


def prefixes(value: Any) -> None:
    _check_items(value, prefix)


def keywords(value: Any) -> None:
    _check_items(value, keyword)
