"""What thousands of subscriptions cost the messages of those that have any."""

from bench.harness.measure import Side
from bench.harness.programs import messages
from bench.notify import notify_rows
from bench.notify.latency import Latency
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
from notify.models import BizReceive, Receive

NAME = "subscriptions"
ORDER = 68
IS_OPEN = True  # the load is offered, whatever becomes of it
ABOUT = (
    "300 messages a second at random moments, each for one subscription of a business system; one "
    "process of each role. The system has 50 subscriptions that get them; on the other side it has "
    "500 that get them, 50 to which as many are sent and whose consumer is unavailable, and 5,000 "
    "that get nothing. What counts are the answer times and the CPU a message."
)
REASONS = {
    "5550-subscriptions": (
        "Messages for more subscriptions at once are smaller batches for each, and each of them "
        "has orders, claims and connections of its own."
    ),
}
_SYSTEM = "orders-by-kind"


class Few(Latency):
    """50 subscriptions, which get all messages."""

    rate = 300.0
    busy, idle = 50, 0

    def cast(self) -> notify_rows.Cast:
        """Made anew for each stretch: the other side's subscriptions must be gone."""
        for model, name in ((BizReceive, "biz__name"), (Receive, "name__startswith")):
            model._default_manager.filter(**{name: _SYSTEM}).delete()
        biz, _is_new = Biz.objects.get_or_create(name=_SYSTEM)
        self.kinds = self.busy + self.dead_kinds
        dead_url = f"http://127.0.0.1:{self.ground.smg_port}/dead"  # nobody listens
        kinds = {f"{_SYSTEM}-{kind}": kind for kind in range(self.kinds + self.idle)}
        Receive.objects.bulk_create(
            Receive(name=n, url=dead_url if self.busy <= k < self.kinds else self.ground.sink_url)
            for n, k in kinds.items()
        )
        consumers = Receive.objects.filter(name__startswith=_SYSTEM)  # with their ids
        BizReceive.objects.bulk_create(
            BizReceive(biz=biz, receive=each, event_types=[messages.event_type(kinds[each.name])])
            for each in consumers
        )
        token = keys.create(biz, "bench", ["events:write"])[1]
        return notify_rows.Cast(biz, token, list(BizReceive.objects.filter(biz=biz)))


class Thousands(Few):
    """5,550 subscriptions, of which 500 get messages, and 50 would get some."""

    name = "5550-subscriptions"
    busy, dead_kinds, idle = 500, 50, 5_000


def sides() -> list[type[Side]]:
    return [Few, Thousands]
