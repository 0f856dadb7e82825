"""The demo's cast: business systems that publish, consumers that behave differently."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgplatform.api import keys
from msgplatform.core.flows import DemoRun
from msgplatform.models import Biz
from notify.demo.publisher import Accepted, publish_all
from notify.demo.sink_process import SinkProcess
from notify.models import BizReceive, Receive, ReceiveMsg

# name, arguments of its sink; the last one is meant to be dead.
SINKS: list[tuple[str, list[str]]] = [
    ("warehouse", []),
    ("billing", ["--delay", "0.05"]),
    ("mailings", ["--fail-every", "10"]),
    ("retired-system", ["--status", "500"]),
]
DEAD = "retired-system"
# name, which consumers subscribe
SYSTEMS: list[tuple[str, list[str]]] = [
    ("orders", ["warehouse", "billing", "mailings"]),
    ("customers", ["billing", "mailings"]),
    ("stock", ["warehouse", "retired-system"]),
]
# Short, so that failing and recovering fits into a demo.
SCHEDULE = [1, 1, 2, 2]


@dataclass
class Account:
    """What must have arrived, per consumer, and what its own file says."""

    expected: dict[str, set[str]]
    sinks: dict[str, SinkProcess]

    def missing(self) -> dict[str, set[str]]:
        return {name: ids - self.sinks[name].ids() for name, ids in self.expected.items()}

    def duplicates(self) -> int:
        return sum(len(sink.lines()) - len(sink.ids()) for sink in self.sinks.values())


def run_demo(run: DemoRun) -> Mapping[str, Any]:
    """Publish over HTTP, wait for the consumers' files, account for every copy."""
    with _sinks(Path(run.folder)) as sinks:
        tokens = _cast(sinks)
        run.say(f"notify: {run.messages} messages from {len(SYSTEMS)} business systems")
        accepted = publish_all(run.base_url, tokens, run.messages)
        account = Account(_expected(accepted), sinks)
        exhausted = _await(run, account)
        return _report(accepted, account, exhausted)


@contextlib.contextmanager
def _sinks(folder: Path) -> Iterator[dict[str, SinkProcess]]:
    with contextlib.ExitStack() as stack:
        yield {
            name: stack.enter_context(SinkProcess(folder / f"{name}.log", arguments))
            for name, arguments in SINKS
        }


def _cast(sinks: Mapping[str, SinkProcess]) -> dict[str, str]:
    """Business systems, consumers, subscriptions; returns an API key per business system."""
    receives = {}
    for name, sink in sinks.items():
        receives[name], _ = Receive.objects.update_or_create(
            name=name, defaults={"url": sink.url, "title": name.replace("-", " ").title()}
        )
    tokens = {}
    for name, subscribers in SYSTEMS:
        biz, _ = Biz.objects.get_or_create(name=name, defaults={"title": name.title()})
        _, tokens[name] = keys.create(biz, "demo", ["events:write", "events:read"])
        for subscriber in subscribers:
            BizReceive.objects.update_or_create(
                biz=biz, receive=receives[subscriber], defaults={"schedule": SCHEDULE}
            )
    return tokens


def _expected(accepted: list[Accepted]) -> dict[str, set[str]]:
    expected: dict[str, set[str]] = {name: set() for name, _ in SINKS}
    subscribers = dict(SYSTEMS)
    for message in accepted:
        for name in subscribers[message.system]:
            expected[name].add(message.id)
    return expected


def _await(run: DemoRun, account: Account) -> set[str]:
    """Until nothing is missing or time is up; the ids that ended exhausted at the dead sink."""
    deadline = time.monotonic() + run.timeout
    said = 0.0
    while True:
        missing = account.missing()
        exhausted = _exhausted() & missing[DEAD]
        left = sum(map(len, missing.values())) - len(exhausted)
        if not left or time.monotonic() > deadline:
            return exhausted
        if time.monotonic() > said + 2:
            said = time.monotonic()
            run.say(f"notify: {left} copies on their way")
        time.sleep(0.2)


def _exhausted() -> set[str]:
    """Only at the consumer that is meant to be dead: anywhere else it would be a loss."""
    rows = ReceiveMsg.objects.filter(
        biz_receive__receive__name=DEAD, status=ReceiveMsg.Status.EXHAUSTED
    )
    return {str(msg_id) for msg_id in rows.values_list("msg_id", flat=True)}


def _report(accepted: list[Accepted], account: Account, exhausted: set[str]) -> Mapping[str, Any]:
    missing = account.missing()
    missing[DEAD] -= exhausted
    lost = sum(map(len, missing.values()))
    delivered = sum(len(ids & account.sinks[name].ids()) for name, ids in account.expected.items())
    return {
        "accepted": len({message.id for message in accepted}),
        "systems": len(SYSTEMS),
        "subscribers": len(SINKS),
        "copies": sum(map(len, account.expected.values())),
        "delivered": delivered,
        "exhausted": len(exhausted),
        "lost": lost,
        "duplicates": account.duplicates(),
    }
