"""What `doctor` says about Notify."""

from __future__ import annotations

from collections.abc import Iterator

from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows import Finding
from notify import lane_status
from notify.models import BizReceive, EventType

_SHOWN = 20  # of each kind; more need not be listed to say that there are many


def examine() -> Iterator[Finding]:
    """Open breakers, disabled subscriptions and unusable schemas. May raise errors of the database
    and of Redis."""
    is_open = {pk: state for pk, state in lane_status.read().items() if state.is_open}
    rows = BizReceive.objects.select_related("biz", "receive").only(
        "disabled_reason", "biz__name", "biz__title", "receive__name", "receive__title"
    )
    for row in rows.filter(id__in=sorted(is_open)[:_SHOWN]).order_by("id"):
        seconds = is_open[row.pk].open_for
        yield Finding(
            "bad", f"Notify: the breaker of {row} has been open for {seconds:.0f} seconds",
            "see its last answers on the subscription's page in the console",
        )  # fmt: skip
    if len(is_open) > _SHOWN:
        yield Finding("bad", f"Notify: {len(is_open) - _SHOWN} more breakers are open")
    for row in rows.filter(status=BizReceive.Status.DISABLED).order_by("id")[:_SHOWN]:
        yield Finding(
            "bad", f"Notify: {row} is disabled: {row.disabled_reason or 'no reason is known'}",
            "repair the consumer, then resume the subscription in the console",
        )  # fmt: skip
    if not is_open:
        yield Finding("ok", "Notify: no breaker is open")
    yield from _unusable_schemas()


def _unusable_schemas() -> Iterator[Finding]:
    """Entries of the catalogue whose schema an earlier release took."""
    from msgplatform.core.json import schema as json_schema  # programs load the module without it

    for row in EventType.objects.filter(schema__isnull=False).order_by("id").iterator():
        try:
            json_schema.compiled(row.schema or {})
        except InvalidInput as error:
            yield Finding(
                "bad", f"Notify: the JSON Schema of {row} cannot be used: {error}",
                "correct it in the catalogue of event types; until then the events of this type "
                "are refused for systems that validate their events",
            )  # fmt: skip
