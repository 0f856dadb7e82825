"""The demo of SMS: send over XML-RPC and REST, let users answer, account for every message."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings

from gateway import presence
from gateway.demo import scenario
from gateway.demo.caller import Caller, Trickle
from gateway.demo.listener import Listener
from gateway.demo.smg import SmgProcess
from gateway.models import SgipMo, SgipMt, SmsGateway
from msgplatform.core.daemons.timer import Every
from msgplatform.core.data.chunks import chunks
from msgplatform.core.errors import PlatformError
from msgplatform.core.flows import DemoRun

# With fewer the demo proves nothing, and says so.
MIN_MESSAGES = 5_000
_MOS = 120
_LINK_SECONDS = 180.0
_CHUNK = 500
_TRICKLE_SECONDS = 1.0  # between two messages, after the accounting


@dataclass
class Account:
    """What was accepted, and which listener must have got what."""

    callers: Sequence[Caller]
    ears: Mapping[str, Listener]
    mos: Sequence[tuple[str, str, str, str]]

    def listen(self) -> None:
        for ear in self.ears.values():
            ear.listen()

    def open_endings(self) -> list[str]:
        """Accepted messages whose ending their own system has not got."""
        return [
            id for c in self.callers for id in c.accepted if id not in self.ears[c.system].reports
        ]

    def wrong(self) -> int:
        """Messages that did not have exactly one ending, or not the right one; strangers."""
        count = 0
        for caller in self.callers:
            reports = self.ears[caller.system].reports
            for id, number in caller.accepted.items():
                count += id in reports and reports[id] != [scenario.ending(number)]
            count += len(reports.keys() - caller.accepted.keys())
        return count

    def missing_mos(self) -> int:
        """Texts that users sent and the right system has not got, or got twice."""
        expected_texts: dict[str, Counter[str]] = {name: Counter() for name in self.ears}
        for owner, _user, _sp_number, text in self.mos:
            expected_texts[owner][text] += 1
        return sum(
            abs(count - Counter(self.ears[name].mos)[text])
            for name, texts in expected_texts.items()
            for text, count in texts.items()
        )

    def states(self) -> dict[str, str]:
        return {
            id: scenario.ending(number) for c in self.callers for id, number in c.accepted.items()
        }


def run_demo(run: DemoRun) -> Mapping[str, Any]:
    """Send, wait for the listeners' files and the archive, account for every message."""
    smgs, listeners = _start(run)
    tokens = scenario.create(
        {name: ear.url for name, ear in listeners.items()},
        {name: smg.port for name, smg in smgs.items()},
    )
    count = max(1, run.messages // 2)
    run.say(f"sms: {count} messages from {len(tokens)} business systems over")
    for operator in scenario.OPERATORS:
        run.say(f"sms:   {operator.name:<15} {operator.description}")
    _await_links()
    callers = _send(run, tokens, count)
    mos = scenario.mos(_MOS)
    smgs["city"].deliver([mo[1:] for mo in mos])
    account = Account(callers, listeners, mos)
    archived_states = _await(run, account)
    trickle = Trickle(run.base_url, tokens, count, smgs["city"].deliver)
    run.trickle("sms", trickle.send, _TRICKLE_SECONDS)
    return _report(account, archived_states, sum(smg.submitted() for smg in smgs.values()))


def _start(run: DemoRun) -> tuple[dict[str, SmgProcess], dict[str, Listener]]:
    """The operators' gateways and the listening systems."""
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
    return smgs, listeners


def _await_links() -> None:
    """Messages and users' texts would wait for a gateway that is not bound both ways."""
    names = [operator.name for operator in scenario.OPERATORS]
    gateways = SmsGateway.objects.filter(name__in=names).values_list("pk", flat=True)
    expected_links = {(pk, kind) for pk in gateways for kind in ("submit", "report")}
    deadline = time.monotonic() + _LINK_SECONDS
    while missing := expected_links - {
        (s.gateway, s.kind) for s in presence.live() if not s.problem
    }:
        if time.monotonic() > deadline:
            raise PlatformError(f"gateways are not bound: {sorted(missing)}")
        time.sleep(0.1)


def _send(run: DemoRun, tokens: Mapping[str, str], count: int) -> list[Caller]:
    share = -(-count // len(tokens))
    callers = [
        Caller(run.base_url, name, token, range(n * share, min(count, (n + 1) * share)))
        for n, (name, token) in enumerate(tokens.items())
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
        if caller.error:
            raise PlatformError(f"{caller.system} could not send: {caller.error}")
    return callers


def _await(run: DemoRun, account: Account) -> dict[str, str]:
    """Until everything was reported and archived or time is up; id → state in the archive."""
    deadline = time.monotonic() + run.timeout
    progress = Every(2.0)
    expected_states = account.states()
    while True:
        account.listen()
        open_mos = account.missing_mos()
        open_count = len(account.open_endings())
        # The archive is asked last: it is the last step, and thousands of rows.
        archived_states = (
            _archived(list(expected_states)) if not open_count and not open_mos else {}
        )
        is_complete = (
            not open_count and not open_mos and len(archived_states) == len(expected_states)
        )
        is_complete = is_complete and SgipMo.objects.count() >= len(account.mos)
        if is_complete or time.monotonic() > deadline:
            return archived_states or _archived(list(expected_states))
        if progress.take():
            run.say(f"sms: {open_count} endings and {open_mos} MOs are still missing")
        time.sleep(0.2)


def _archived(ids: Sequence[str]) -> dict[str, str]:
    states: dict[str, str] = {}
    for some in chunks(ids, _CHUNK):
        rows = SgipMt.objects.filter(id__in=[int(id) for id in some])
        states |= {str(pk): final for pk, final in rows.values_list("pk", "final")}
    return states


def _report(account: Account, archived_states: Mapping[str, str], parts: int) -> Mapping[str, Any]:
    expected_states = account.states()
    reported_ids = {id for ear in account.ears.values() for id in ear.reports}
    lost_ids = {id for id in expected_states if id not in reported_ids or id not in archived_states}
    wrong_count = account.wrong() + sum(
        archived_states.get(id, state) != state for id, state in expected_states.items()
    )
    missing_count = account.missing_mos()
    # A sample of each system: what sms.query answers must be the same.
    wrong_answers = 0
    for caller in account.callers:
        sample = list(caller.accepted)[:1000]
        answers = caller.asked(sample) if sample else []
        wrong_answers += sum(
            got != expected_states[id] for id, got in zip(sample, answers, strict=True)
        )
    problems = [
        f"{wrong_count} messages have a wrong ending" if wrong_count else "",
        f"{missing_count} MOs are missing or came twice" if missing_count else "",
        f"{wrong_answers} answers to sms.query are wrong" if wrong_answers else "",
    ]
    states = Counter(expected_states[id] for id in expected_states if id in reported_ids)
    return {
        "accepted": len(expected_states),
        "at_least": MIN_MESSAGES,
        "systems": len(account.callers),
        "gateways": len(scenario.OPERATORS),
        "copies": parts,
        "delivered": states["delivered"],
        "failed": states["failed"],
        "received": len(account.mos) - missing_count,
        "lost": len(lost_ids) + missing_count,
        "duplicates": sum(ear.repeated for ear in account.ears.values()),
        "problem": "; ".join(filter(None, problems)),
    }
