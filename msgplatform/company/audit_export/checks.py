"""Configuration faults of the audit log's export, as system checks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register

from msgplatform.checks import NEW_KEY, TAG
from msgplatform.company.audit_export import address, lines


@register(TAG)
def settings_check(app_configs: Any, **kwargs: Any) -> Iterator[CheckMessage]:
    """Without AUDIT_EXPORT the keys are for `verify_audit` alone."""
    if settings.AUDIT_EXPORT and not settings.AUDIT_SIGNING_KEYS:
        yield Error(
            "AUDIT_EXPORT is set, and AUDIT_SIGNING_KEY is not",
            hint=f"Make a key: {NEW_KEY}, and give it to run_bulk as AUDIT_SIGNING_KEY, or write "
            "it into a file and name that as AUDIT_SIGNING_KEY_FILE.",
            obj="AUDIT_SIGNING_KEY",
            id="msgplatform.E012",
        )
    for place in lines.malformed(settings.AUDIT_SIGNING_KEYS):
        yield Error(
            f"AUDIT_SIGNING_KEY: key {place} of {len(settings.AUDIT_SIGNING_KEYS)} is not usable",
            hint=f"A key is 32 bytes in URL-safe base64, as this line makes it: {NEW_KEY}. "
            "Several are separated by commas; the first one signs.",
            obj="AUDIT_SIGNING_KEY",
            id="msgplatform.E013",
        )
    try:
        if settings.AUDIT_EXPORT:
            address.parse(settings.AUDIT_EXPORT)
    except ValueError as error:
        yield Error(
            f"AUDIT_EXPORT is not usable: {error}",
            hint="Set AUDIT_EXPORT to stdout, syslog, syslog://host:601 or an https:// address.",
            obj="AUDIT_EXPORT",
            id="msgplatform.E014",
        )
