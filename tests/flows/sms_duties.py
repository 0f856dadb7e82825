"""How to see that a program of SMS has work before it, that it works, and what it has in hand."""

from collections.abc import Callable
from dataclasses import dataclass

from gateway.lifecycle import keys
from tests.cluster import WEB
from tests.flows.sms_business import Business
from tests.flows.sms_cluster import SENDERS, SmsCluster
from tests.flows.sms_traffic import OPERATORS

Count = Callable[[], int]


@dataclass(frozen=True)
class Duty:
    """`moves` changes as soon as it works. `in_hand`: what it took and has not finished; it
    `fills` when it works, or is what lay before it and becomes less. One that `waits` may be
    stopped until there is work; of the others the peers would take leave meanwhile."""

    waiting: Count
    moves: Count
    in_hand: Count
    fills: bool = False
    least: int = 1
    waits: bool = True


def duties(cluster: SmsCluster, business: Business) -> dict[str, Duty]:
    sms, city = cluster.sms, cluster.books["city"]
    ids = range(1, len(OPERATORS) + 1)
    pending = _all(sms.llen, *(keys.pending(n, p) for n in ids for p in range(3)))
    claimed = _all(sms.zcard, *map(keys.claimed, ids))
    submitted = _all(sms.zcard, *map(keys.submit_due, ids))

    def taken() -> int:
        return claimed() + submitted()

    def takes(list_key: str, mo_list: str, leased: str, mo_leased: str) -> Duty:
        held = _all(sms.zcard, leased, mo_leased)
        return Duty(_all(sms.llen, list_key, mo_list), held, held, fills=True)

    at_city = _all(sms.zcard, keys.submit_due(1))
    before = len(city.accepted())

    def lately_at_city() -> int:
        """Nothing, while it has accepted nothing since we began to look."""
        return at_city() if len(city.accepted()) > before else 0

    return {
        # As soon as one request was answered, with another one open.
        WEB: Duty(business.unanswered, business.count_accepted, business.unanswered),
        **dict.fromkeys(SENDERS, Duty(pending, taken, taken, fills=True)),
        "city": Duty(lately_at_city, at_city, at_city, waits=False),
        "receiver": Duty(city.owed, city.count_answered, city.owed, least=40),
        "forwarder": takes(
            keys.LIST_REPORT, keys.LIST_MO, keys.REPORTING, keys.MO_REPORTING
        ),
        "pump": takes(
            keys.LIST_FINISH, keys.LIST_MO_FINISH, keys.FINISHING, keys.MO_FINISHING
        ),
    }  # fmt: skip


def _all(count: Callable[[str], int], *names: str) -> Count:
    return lambda: sum(int(count(name)) for name in names)
