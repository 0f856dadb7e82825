"""People's requests to the poller that holds a policy: runs, which begin within seconds, and the
decision on removals that the guard has stopped."""

from django.db import transaction
from django.utils.translation import gettext as _

from crmsync.models import Policy
from msgplatform.core.data import sql
from msgplatform.core.errors import InvalidInput, NotNow
from msgplatform.models import AuditLog

_MAX_NAME = 150  # characters of a person's name


def kinds(policy: Policy) -> list[str]:
    """The kinds of runs that can be asked for."""
    run_kinds = [Policy.Kind.CHANGES, Policy.Kind.FULL]
    # Rows without versions cannot be compared.
    if policy.source.version_column:
        run_kinds.append(Policy.Kind.SWEEP)
    return [kind.value for kind in run_kinds]


def refusal(policy: Policy, may_name: bool = False) -> str:
    """The reason why no run would begin; '' if one would. With `may_name` the text names the person
    who has asked already."""
    if not policy.enabled:
        return _("The policy is switched off: enable it first.")
    if not policy.crm.enabled:
        return _("Its CRM %s is switched off: enable it first.") % policy.crm
    if policy.crm.paused_at:
        return _("Its CRM %s is paused: resume it first.") % policy.crm
    if policy.requested and may_name:
        return _("%s asked for a run already; it begins within seconds.") % policy.requested_by
    if policy.requested:
        return _("Somebody asked for a run already; it begins within seconds.")
    return ""


def ask(policy: Policy, kind: str, by: str, may_name: bool = False) -> None:
    """Ask for a run, with an entry in the audit log.

    Raises InvalidInput for a kind that the source does not have, and NotNow with the `refusal`,
    also when another person was faster.
    """
    if kind not in (offered_kinds := kinds(policy)):
        raise InvalidInput(_("use one of %s") % ", ".join(offered_kinds), "kind")
    if problem := refusal(policy, may_name):
        raise NotNow(problem)
    with transaction.atomic():
        # A conditional UPDATE: of two people who ask at once, one gets NotNow.
        rows = Policy.objects.filter(pk=policy.pk, requested="")
        if not rows.update(requested=kind, requested_by=by[:_MAX_NAME]):
            raise NotNow(_("Somebody asked for a run already; it begins within seconds."))
        AuditLog.record(by, "run_requested", f"{policy} #{policy.pk}", kind=kind)


def decide(policy: Policy, decision: Policy.Decision, removals: int, by: str) -> None:
    """Confirm or refuse the removals that are held, with an entry in the audit log. `removals` is
    the number that the person has seen.

    Raises NotNow if nothing is stopped any more, or if another number is held by now.
    """
    with transaction.atomic():
        # Locked: of two people who decide at once, one gets NotNow.
        row = Policy.objects.select_for_update().get(pk=policy.pk)
        if not row.is_stopped:
            raise NotNow(_("Nothing waits for a decision any more."))
        if row.stopped_removals != removals:
            raise NotNow(
                _("Removals by now: %d. Look at them, and decide once more.") % row.stopped_removals
            )
        Policy.objects.filter(pk=row.pk).update(decision=decision, decided_at=sql.now())
        AuditLog.record(
            by, f"removals_{decision}", f"{policy} #{row.pk}", removals=removals,
            records=row.stopped_records,
        )  # fmt: skip
