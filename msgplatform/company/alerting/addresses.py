"""The address of a channel: checked, and described without its secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.crypto import salted_hmac
from django.utils.translation import gettext as _

from msgplatform.company.alerting import child
from msgplatform.company.alerting.models import MAX_URL
from msgplatform.core.errors import InvalidInput
from msgplatform.core.http import destinations


@dataclass(frozen=True)
class Checked:
    """`fault` is a sentence, '' for an address that can be used; `shown` describes it: service,
    scheme, host and a fingerprint."""

    fault: str = ""
    shown: str = ""


def check(url: str, is_heartbeat: bool) -> Checked:
    """Check an address, without any traffic; one that apprise reads takes a second."""
    url = url.strip()
    if not url:
        return Checked(_("Enter the address."))
    if len(url) > MAX_URL:
        return Checked(_("The address is longer than %d characters.") % MAX_URL)
    if is_heartbeat:
        try:
            place = destinations.origin(destinations.parse(url).url)
        except InvalidInput as error:
            return Checked(str(error))
        return Checked(shown=f"{place} · {fingerprint(url)}")
    outcome = child.check(url)
    details: Mapping[str, Any] = outcome.details or {}
    if outcome.is_ok:
        return Checked(shown=f"{details['service']} {details['place']} · {fingerprint(url)}"[:200])
    match details.get("problem"):
        case "scheme":
            sentence = _(
                "No service is known for “%(scheme)s://”. The address is one of apprise, such as "
                "dingtalk://SECRET@TOKEN/, wecombot://KEY, feishu://TOKEN?secret=SECRET, "
                "slack://A/B/C or mailtos://user:password@example.com?to=ops@example.com, or the "
                "webhook that the robot's own page shows."
            )
            return Checked(sentence % {"scheme": details["scheme"]})
        case "form":
            sentence = _("The address is not complete, or a part of it is wrong. For %(service)s "
                         "it is written: %(forms)s")  # fmt: skip
            forms = _(" or ").join(details["forms"])
            return Checked(sentence % {"service": details["service"], "forms": forms})
    return Checked(_("The address could not be checked: %s.") % outcome.error.rstrip("."))


def fingerprint(url: str) -> str:
    """Tells one address from another, and nothing of it: it is keyed."""
    return salted_hmac("alert_channel", url, algorithm="sha256").hexdigest()[:8]
