"""What `doctor` says about SMS."""

from __future__ import annotations

from collections.abc import Iterator

from gateway import presence
from gateway.models import SmsGateway
from msgplatform.core.flows import Finding


def examine() -> Iterator[Finding]:
    """Gateways without a connection. May raise errors of the database and of Redis."""
    states = presence.live()
    connected_ids = presence.bound(states)
    gateways = SmsGateway.objects.filter(enabled=True).order_by("name")
    for pk, name in gateways.values_list("id", "name"):
        if pk in connected_ids:
            yield Finding("ok", f"SMS: the gateway {name} is connected")
            continue
        why = sorted({s.problem for s in states if s.gateway == pk and s.problem})
        reason = "; ".join(why) or "no sender serves it"
        yield Finding(
            "bad", f"SMS: no connection to the gateway {name}: {reason}",
            "test the login on the gateway's page in the console, and see that run_sms_sender runs",
        )  # fmt: skip
