"""Findings of `doctor` about CRM sync."""

from collections.abc import Iterator

from django.db import connection

from crmsync import presence
from crmsync.models import Crm, Policy, lead_triggers
from msgplatform.core.data import migration_stages
from msgplatform.core.flows.health import Finding


def examine() -> Iterator[Finding]:
    """Examine triggers, CRMs and policies. May raise errors of the database and of Redis."""
    # Without triggers, as after a restore from a dump without them, changes of leads are not
    # noticed. Without the triggers' user leads are refused.
    if problem := lead_triggers.problem(connection):
        fix = migration_stages.migrate_command("default")
        yield Finding("bad", f"CRM sync: {problem}", fix)
    else:
        yield Finding("ok", "CRM sync: the triggers of the table lead are there")
    unread_columns = ("mapping", "source__database", "crm__settings", "crm__credentials")
    policies = list(
        Policy.objects.select_related("source", "crm").defer(*unread_columns).order_by("id")
    )
    if not policies:
        yield Finding("ok", "CRM sync: there is no policy: leads are stored, and sent to no CRM")
        return
    for crm in Crm.objects.filter(enabled=True, paused_at__isnull=False).order_by("name"):
        yield Finding(
            "bad", f"CRM sync: {crm.name} is paused: {crm.paused_because}",
            "correct its settings in the console, and press Resume there",
        )  # fmt: skip
    facts = presence.policies.read_by_id()
    for policy in policies:
        if not (policy.enabled and policy.crm.enabled):
            continue
        name, state = f"CRM sync: {policy}", facts.get(policy.pk)
        if state is None:
            yield Finding("warn", f"{name} is held by no poller", "manage.py run_sync_poller")
        elif state.problem:
            yield Finding("bad", f"{name}: {state.problem}", "correct the source in the console")
        elif not state.exact:
            yield Finding(
                "warn", f"{name}: the source does not show its open transactions",
                "GRANT PROCESS ON *.* to the source's user, and name the server that is written "
                "to, no replica; until then no transaction may take longer than is set for the "
                "source",
            )  # fmt: skip
        elif state.without_time:
            yield Finding(
                "warn", f"{name}: {state.without_time} rows or more have no time and are not read",
                f"set {policy.source.time_column} in the source's database",
            )  # fmt: skip
        else:
            yield Finding("ok", name)
