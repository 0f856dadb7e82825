"""The demo of Notify: publish, rotate a secret, forge, wait, account for every copy."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgplatform.core.daemons.timer import Every
from msgplatform.core.flows import DemoRun
from notify import secret_rotation
from notify.demo import cast, forgery
from notify.demo.publisher import Accepted, BatchPublisher, publish_all
from notify.demo.sink_process import SinkProcess
from notify.models import Receive, ReceiveMsg

# Below it the demo shows nothing and says so.
MIN_MESSAGES = 10_000


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
    consumers = cast.consumers()
    with _sinks(Path(run.folder), consumers) as sinks:
        tokens = cast.create(consumers, {name: sink.url for name, sink in sinks.items()})
        run.say(f"notify: {run.messages} messages from {len(tokens)} business systems to")
        for consumer in consumers:
            run.say(f"notify:   {consumer.name:<15} {consumer.story}")
        accepted = publish_all(run.base_url, tokens, run.messages // 2)
        secret = _rotate()
        rest = run.messages - len(accepted)
        accepted += publish_all(run.base_url, tokens, rest, kind=BatchPublisher)
        forged = forgery.refused(sinks[cast.VERIFYING].url, secret)
        account = Account(cast.expected(consumers, accepted), sinks)
        exhausted = _await(run, account)
        return _report(accepted, account, exhausted, forged)


@contextlib.contextmanager
def _sinks(folder: Path, consumers: Sequence[cast.Consumer]) -> Iterator[dict[str, SinkProcess]]:
    with contextlib.ExitStack() as stack:
        yield {
            c.name: stack.enter_context(SinkProcess(folder / f"{c.name}.log", list(c.sink)))
            for c in consumers
        }


def _rotate() -> str:
    """In the middle of the traffic the verifying consumer's secret is rotated; it goes on with
    its old one, which is returned, as consumers do until somebody has changed their settings."""
    receive = Receive.objects.get(name=cast.VERIFYING)
    secret_rotation.rotate(receive.pk, secret_rotation.mark_of(receive), hours=1)
    secret: str = receive.secret
    return secret


def _await(run: DemoRun, account: Account) -> set[str]:
    """Until nothing is missing or time is up; the ids that ended exhausted at the dead sink."""
    deadline = time.monotonic() + run.timeout
    progress = Every(2.0)
    while True:
        missing = account.missing()
        exhausted = _exhausted() & missing[cast.DEAD]
        left = sum(map(len, missing.values())) - len(exhausted)
        if not left or time.monotonic() > deadline:
            return exhausted
        if progress.take():
            run.say(f"notify: {left} deliveries on their way")
        time.sleep(0.2)


def _exhausted() -> set[str]:
    """Only at the consumer that is meant to be dead: anywhere else it would be a loss."""
    rows = ReceiveMsg.objects.filter(
        biz_receive__receive__name=cast.DEAD, status=ReceiveMsg.Status.EXHAUSTED
    )
    return {str(msg_id) for msg_id in rows.values_list("msg_id", flat=True)}


def _report(
    accepted: list[Accepted], account: Account, exhausted: set[str], forged: tuple[int, int]
) -> Mapping[str, Any]:
    missing = account.missing()
    missing[cast.DEAD] -= exhausted
    delivered = sum(len(ids & account.sinks[name].ids()) for name, ids in account.expected.items())
    return {
        "accepted": len({message.id for message in accepted}),
        "at_least": MIN_MESSAGES,
        "systems": len(cast.SYSTEMS),
        "subscribers": len(account.sinks),
        "copies": sum(map(len, account.expected.values())),
        "delivered": delivered,
        "exhausted": len(exhausted),
        "lost": sum(map(len, missing.values())),
        "duplicates": account.duplicates(),
        "forgeries_refused": f"{forged[0]} of {forged[1]}",
        "problem": "" if forged[0] == forged[1] else "a forged message was believed",
    }
