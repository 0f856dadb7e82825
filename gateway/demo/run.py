"""The demo of SMS: send over XML-RPC and REST, let users answer, account for every message."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings

from gateway import presence
from gateway.demo import scenario, traffic
from gateway.demo.smg import SmgProcess
from gateway.demo.traffic import Listener
from gateway.models import SgipMo, SgipMt, SmsGateway
from msgplatform.core.data.chunks import chunks
from msgplatform.core.errors import PlatformError
from msgplatform.core.flows import DemoRun
from msgplatform.demo.account import Differences, Records, compare, wait_for_none

# With fewer the demo proves nothing, and says so.
MIN_MESSAGES = 5_000
_MOS = 120
_LINK_SECONDS = 180.0
_CHUNK = 500
_SAMPLE = 1_000  # messages of each system whose state is queried
_TRICKLE_SECONDS = 1.0  # between two messages, after the accounting


@dataclass
class Account:
    """The accepted messages (system → id → recipient) and the users' texts, and where they are."""

    accepted: Mapping[str, Mapping[str, str]]
    listeners: Mapping[str, Listener]
    mos: list[tuple[str, str, str, str]]

    def states(self) -> dict[str, str]:
        """Message id → the state in which it must end."""
        return {
            id: scenario.ending(number)
            for messages in self.accepted.values()
            for id, number in messages.items()
        }

    def reports(self) -> Differences:
        """Endings at the systems that own the messages; each must come exactly once."""
        endings: dict[str, Records] = {
            system: [(id, scenario.ending(number)) for id, number in messages.items()]
            for system, messages in self.accepted.items()
        }
        reports_by_system: dict[str, Records] = {
            system: [(id, state) for id, states in one.reports.items() for state in states]
            for system, one in self.listeners.items()
        }
        return compare(endings, reports_by_system)

    def users_texts(self) -> Differences:
        texts = {
            system: [(mo[3], None) for mo in self.mos if mo[0] == system]
            for system in self.listeners
        }
        texts_by_system = {
            system: [(text, None) for text in one.mos] for system, one in self.listeners.items()
        }
        return compare(texts, texts_by_system)

    def archived(self) -> Differences:
        states = self.states()
        rows: list[tuple[str, object]] = []
        for ids in chunks(list(states), _CHUNK):
            archive_rows = SgipMt.objects.filter(id__in=[int(id) for id in ids])
            rows += [(str(pk), final) for pk, final in archive_rows.values_list("pk", "final")]
        return compare({"archive": list(states.items())}, {"archive": rows})

    def count_open(self) -> int:
        """Endings and texts that are still missing; the archive, the last step, is asked last."""
        for listener in self.listeners.values():
            listener.listen()
        count = len(self.reports().missing) + len(self.users_texts().missing)
        return (
            count or len(self.archived().missing) or max(0, len(self.mos) - SgipMo.objects.count())
        )


def run_demo(run: DemoRun) -> Mapping[str, Any]:
    """Send, wait for the listeners' files and the archive, account for every message."""
    folder = Path(run.folder)
    receiver = (settings.SMS_RECEIVER_HOST, settings.SMS_RECEIVER_PORT)
    # The listeners first: a simulator may send as soon as it runs.
    listeners = {
        name: run.until_end.enter_context(Listener(folder / f"{name}-listener.log"))
        for name in scenario.SYSTEMS
    }
    smgs = {
        operator.name: run.until_end.enter_context(SmgProcess(operator, folder, receiver))
        for operator in scenario.OPERATORS
    }
    urls = {name: listener.url for name, listener in listeners.items()}
    tokens = scenario.create(urls, {name: smg.port for name, smg in smgs.items()})
    count = max(1, run.messages // 2)
    lines = [f"sms: {count} messages from {len(tokens)} business systems over"]
    run.say("\n".join([*lines, *(f"  {o.name:<15} {o.description}" for o in scenario.OPERATORS)]))
    _await_links()
    run.start_together()
    messages = traffic.send_all(run.base_url, tokens, count)
    mos = scenario.mos(_MOS)
    smgs["city"].deliver([mo[1:] for mo in mos])
    account = Account(messages, listeners, mos)
    wait_for_none(run, "sms", account.count_open, "endings and MOs to come")
    step = traffic.trickle(run.base_url, tokens, count, smgs["city"].deliver)
    run.trickle("sms", step, _TRICKLE_SECONDS)
    # A sample of each system: the answers of sms.query must be the same.
    states, wrong_answers = account.states(), 0
    for system, token in tokens.items():
        sample = list(messages[system])[:_SAMPLE]
        answers = traffic.query(run.base_url, token, sample)
        wrong_answers += sum(states[id] != got for id, got in zip(sample, answers, strict=True))
    parts = sum(smg.submitted() for smg in smgs.values())
    return _report(account, parts, wrong_answers)


def _await_links() -> None:
    """Messages and users' texts would wait for a gateway that is not bound both ways."""
    names = [operator.name for operator in scenario.OPERATORS]
    gateways = SmsGateway.objects.filter(name__in=names).values_list("pk", flat=True)
    links = {(pk, kind) for pk in gateways for kind in ("submit", "report")}
    deadline = time.monotonic() + _LINK_SECONDS
    while missing := links - {(s.gateway, s.kind) for s in presence.live() if not s.problem}:
        if time.monotonic() > deadline:
            raise PlatformError(f"gateways are not bound: {sorted(missing)}")
        time.sleep(0.1)


def _report(account: Account, parts: int, wrong_answers: int) -> Mapping[str, Any]:
    reports, archive, texts = account.reports(), account.archived(), account.users_texts()
    wrong = len(reports.different) + len(reports.extra) + len(archive.different)
    problems = [
        f"{wrong} messages have a wrong ending" if wrong else "",
        f"{texts.count} MOs are missing or came twice" if texts.count else "",
        f"{wrong_answers} answers to sms.query are wrong" if wrong_answers else "",
    ]
    states = account.states()
    missing = set(reports.missing)
    endings = Counter(state for id, state in states.items() if id not in missing)
    return {
        "accepted": len(states),
        "at_least": MIN_MESSAGES,
        "systems": len(account.accepted),
        "gateways": len(scenario.OPERATORS),
        "copies": parts,
        "delivered": endings["delivered"],
        "failed": endings["failed"],
        "received": len(account.mos) - texts.count,
        "lost": len({*reports.missing, *archive.missing}) + len(texts.missing),
        "duplicates": sum(listener.repeated for listener in account.listeners.values()),
        "problem": "; ".join(filter(None, problems)),
    }
