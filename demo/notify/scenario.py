"""Business systems publish, consumers behave differently, every delivery is accounted for."""

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from demo.account import compare
from demo.notify import traffic
from demo.run import Run, Scenario
from demo.sink_process import SinkProcess
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
from notify.models import BizReceive, Receive, ReceiveMsg
from notify.subscriptions import signing

_MIN_MESSAGES = 10_000  # a run with fewer shows too little, and says so
_TRICKLE_SECONDS = 0.5  # between two messages, after the accounting
SCHEDULE = [1, 1, 2, 2]  # short, so that failing, recovering and giving up fit into a demo
_ON_PURPOSE = "on purpose"
_DEAD = "retired-system"
_SECRET = signing.new_secret()  # of the consumer that verifies


@dataclass(frozen=True)
class Consumer:
    """`sink` are arguments of its process, `pattern` event types, `rate_limit` is for a second."""

    name: str
    behaviour: str
    sink: Sequence[str] = ()
    pattern: str = "*"
    schedule: Sequence[int] = tuple(SCHEDULE)
    rate_limit: float | None = None
    secret: str = ""

    @property
    def title(self) -> str:
        """Its title in the console, which tells that a failure is on purpose."""
        title = self.name.replace("-", " ").capitalize()
        return f"{title} (demo: {self.behaviour})" if _ON_PURPOSE in self.behaviour else title


CONSUMERS = (
    Consumer("warehouse", "answers at once"),
    Consumer("billing", "is slow: 0.2 s an answer", ["--delay", "0.2"], "*.rare"),
    Consumer("mailings", f"refuses one in ten once, {_ON_PURPOSE}", ["--fail-every", "10"]),
    Consumer(
        "analytics", f"is down for its first 4 s, {_ON_PURPOSE}", ["--down-for", "4"],
        schedule=[1, 2, 3, 5, 8, 13],
    ),
    Consumer("auditors", "verifies every signature", ["--secret", _SECRET], secret=_SECRET),
    Consumer("partner", "takes 400 a second", pattern="*.rare", rate_limit=400.0),
    # Each probe of an open breaker is an attempt, and the last deliveries end by these alone.
    Consumer(_DEAD, f"always answers 500, {_ON_PURPOSE}", ["--status", "500"], schedule=[1]),
)  # fmt: skip
# Business system → the consumers that subscribe to it.
_SYSTEMS: dict[str, list[str]] = {
    "orders": ["warehouse", "billing", "mailings", "auditors"],
    "customers": ["warehouse", "partner", "analytics"],
    "stock": ["warehouse", "auditors", _DEAD],
}


def create(urls: Mapping[str, str]) -> dict[str, str]:
    """Rows for business systems, consumers and subscriptions; an API key per business system."""
    consumers, rows, tokens = {consumer.name: consumer for consumer in CONSUMERS}, {}, {}
    for name, consumer in consumers.items():
        secret = consumer.secret or signing.new_secret()
        rows[name] = Receive.objects.create(
            name=name, url=urls[name], title=consumer.title, secret=secret
        )
    for system, subscribers in _SYSTEMS.items():
        biz = Biz.objects.create(name=system, title=system.title())
        tokens[system] = keys.create(biz, "demo", ["events:write", "events:read"])[1]
        for name in subscribers:
            pattern = consumers[name].pattern
            BizReceive.objects.create(
                biz=biz,
                receive=rows[name],
                schedule=list(consumers[name].schedule),
                event_types=[] if pattern == "*" else [pattern],
                rate_limit=consumers[name].rate_limit,
            )
    return tokens


def play(run: Run) -> Mapping[str, Any]:
    """Publish over HTTP, wait for the consumers' files, account for every delivery."""
    sinks = {}
    for consumer in CONSUMERS:
        sink = SinkProcess(run.folder / f"{consumer.name}.log", consumer.sink)
        sinks[consumer.name] = run.until_end.enter_context(sink)
    tokens = create({name: sink.url for name, sink in sinks.items()})
    lines = [f"notify: {run.messages} messages from {len(tokens)} business systems to"]
    run.say("\n".join([*lines, *(f"  {c.name:<15} {c.behaviour}" for c in CONSUMERS)]))
    run.start_together()
    messages = traffic.publish_all(run.base_url, tokens, run.messages // 2)
    messages += traffic.publish_batches(run.base_url, tokens, run.messages - len(messages))
    expected_ids = {consumer.name: _expected(consumer, messages) for consumer in CONSUMERS}

    def count_missing() -> int:
        missing = sum(len(ids - sinks[name].ids()) for name, ids in expected_ids.items())
        return missing - len(_exhausted()) if missing else 0

    run.wait_for_none("notify", count_missing, "deliveries to come")
    run.trickle("notify", traffic.trickle(run.base_url, tokens), _TRICKLE_SECONDS)
    expected_ids[_DEAD] -= (exhausted_ids := expected_ids[_DEAD] & _exhausted())
    differences = compare(
        {name: [(id, None) for id in sorted(ids)] for name, ids in expected_ids.items()},
        {name: [(id, None) for id in sink.lines()] for name, sink in sinks.items()},
    )
    copies = sum(map(len, expected_ids.values()))
    return {
        "accepted": len({message.id for message in messages}),
        "at_least": _MIN_MESSAGES,
        "systems": len(_SYSTEMS),
        "subscribers": len(sinks),
        "copies": copies + len(exhausted_ids),
        "delivered": copies - differences.lost,
        "exhausted": len(exhausted_ids),
        "lost": differences.lost,
        "duplicates": len(differences.extra),
    }


def _expected(consumer: Consumer, messages: Sequence[traffic.Accepted]) -> set[str]:
    """The ids of the accepted messages that a consumer must get."""
    systems = {system for system, names in _SYSTEMS.items() if consumer.name in names}
    of_them = [message for message in messages if message.system in systems]
    return {m.id for m in of_them if fnmatch.fnmatchcase(m.event_type, consumer.pattern)}


def _exhausted() -> set[str]:
    """Messages that were given up at the consumer that is meant to be dead: anywhere else they
    would be lost."""
    rows = ReceiveMsg.objects.filter(biz_receive__receive__name=_DEAD)
    exhausted_rows = rows.filter(status=ReceiveMsg.Status.EXHAUSTED)
    return set(map(str, exhausted_rows.values_list("msg_id", flat=True)))


SCENARIO = Scenario(
    "notify", play,
    # A subscriber that does not answer is noticed within the time that a demo takes, and
    # deliveries that wait for a subscriber that never answers end in it.
    lambda: {"NOTIFY_BREAKER_SECONDS": "4", "NOTIFY_BREAKER_KEEP_HOURS": "0"},
    "NOTIFY_",
)  # fmt: skip
