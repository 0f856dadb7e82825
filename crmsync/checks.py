"""System checks of CRM sync's settings."""

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core import checks
from django.db import connections, router

from crmsync.models import Lead, lead_triggers
from msgplatform import env
from msgplatform.core.rates import shared


@checks.register(env.CHECKS_TAG)
def rates_are_readable(app_configs: Any, **kwargs: Any) -> list[checks.CheckMessage]:
    errors: list[checks.CheckMessage] = []
    for variable in ("CRM_RATE_PER_IP", "CRM_RATE_APPKEY"):
        try:
            shared.parse_rate(getattr(settings, variable))
        except ValueError as error:
            errors.append(
                checks.Error(
                    f"{variable}: {error}", hint=shared.RATE_HINT, obj=variable, id="crmsync.E001"
                )
            )
    return errors


@checks.register(checks.Tags.database)
def triggers_can_be_made(
    app_configs: Any, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[checks.CheckMessage]:
    """`migrate` asks this first: it would stop in its middle otherwise."""
    return [
        checks.Error(
            f"the database {alias} does not let this user make triggers",
            hint=f"{repair}. CRM sync needs triggers on its table lead.",
            id="crmsync.E002",
        )
        for alias in databases or ()
        if router.allow_migrate_model(alias, Lead)
        and (repair := lead_triggers.refused_beforehand(connections[alias]))
    ]
