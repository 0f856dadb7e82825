"""The demo of CRM sync: leads come in, change and go, until two CRMs hold the same as the hive."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crmsync.demo import account, recovery, scenario
from crmsync.demo.account import CALL_CENTRE, CRMS, IN_HIVE, TABLE, Differences, Held, compare
from crmsync.demo.crms import CallCentre, SalesTable
from crmsync.demo.leads import all_leads
from crmsync.demo.traffic import Traffic, Trickle
from msgplatform.core.daemons.timer import Every
from msgplatform.core.flows import DemoRun

# A demo with fewer leads proves nothing, and says so.
MIN_LEADS = 2_000
_SHARE = 4  # of the demo's messages; a lead is several records and requests
_LOOK_SECONDS = 0.3
_TRICKLE_SECONDS = 2.0  # between two leads, after the accounting


@dataclass
class Account:
    """The demo's own list, compared with the records of the CRMs and of the hive."""

    traffic: Traffic
    readers: Mapping[str, Callable[[], Sequence[Held]]]

    def held(self) -> dict[str, int]:
        return {name: len(read()) for name, read in self.readers.items()}

    def differences(self) -> dict[str, Differences]:
        return {
            side.name: compare(side, self.traffic.leads, self.readers[side.name]()) for side in CRMS
        }

    def in_hive(self) -> Differences:
        return compare(IN_HIVE, self.traffic.leads, self.traffic.listed())

    def misreported(self) -> list[str]:
        """Dead records that the recovery log does not explain, and entries about no dead record."""
        open_entries, dead_leads = recovery.entries(), recovery.poisoned(self.traffic.leads)
        silent = [
            key
            for key, lead in dead_leads.items()
            if not recovery.is_explained(open_entries, key, lead)
        ]
        return [
            f"{crm}: lead {lead}"
            for crm, lead in [*silent, *sorted(open_entries.keys() - dead_leads)]
        ]

    def left(self) -> int:
        """The number of records that are not yet right."""
        count = sum(differences.count for differences in self.differences().values())
        return count or len(self.misreported())


def run_demo(run: DemoRun) -> Mapping[str, Any]:
    """Send, change, delete, repair, wait for the CRMs, account for every record."""
    table = SalesTable(Path(run.folder) / "sales.sqlite3")
    call_centre = run.until_end.enter_context(CallCentre())
    tokens = scenario.create_pages()
    scenario.create_crms(table, call_centre)
    leads = all_leads(max(1, run.messages // _SHARE))
    traffic = Traffic(run.base_url, tokens, leads)
    accounting = Account(traffic, {TABLE: table.read, CALL_CENTRE: call_centre.read})
    _introduce(run, traffic)
    traffic.send_batches()
    # Some leads change before the CRMs hold them, the others afterwards.
    # By number, so that each run of the demo is the same.
    early = {one.number for one in leads if one.id and one.number % 3 == 0}
    traffic.change([one for one in leads if one.number in early])
    run.say("crmsync: leads came in batches, some have changed; now people fill in forms")
    traffic.send_singly()
    # Forms answer with a page, not with an id.
    traffic.learn_ids()
    deadline = time.monotonic() + run.timeout
    half = len(leads) // 2
    _await(run, deadline, "leads in flight", lambda: half - min(accounting.held().values()))
    run.say("crmsync: the systems change and delete leads")
    traffic.change([one for one in leads if one.number not in early])
    _await(
        run,
        deadline,
        "records differ from the recovery log",
        lambda: len(accounting.misreported()),
    )
    repairs = (
        recovery.repair_two(traffic, recovery.entries()) if not accounting.misreported() else []
    )
    for what in repairs:
        run.say(f"crmsync:   {what}")
    _await(run, deadline, "records differ", accounting.left)
    trickle = Trickle(run.base_url, tokens, begin=len(leads))
    run.trickle("crmsync", trickle.store, _TRICKLE_SECONDS)
    return _report(run, accounting, len(repairs), call_centre.answers())


def _introduce(run: DemoRun, traffic: Traffic) -> None:
    forms = sum(lead.route == "form" for lead in traffic.leads)
    run.say(
        f"crmsync: {len(traffic.leads)} leads of {len(traffic.tokens)} business systems, "
        f"{forms} of them by real forms, to"
    )
    for name, words in scenario.DESCRIPTIONS.items():
        run.say(f"crmsync:   {name:<15} {words}")


def _await(run: DemoRun, deadline: float, what: str, count_left: Callable[[], int]) -> None:
    """Wait until `count_left` is 0, or time is up."""
    progress = Every(2.0)
    while (count := count_left()) > 0 and time.monotonic() < deadline:
        if progress.take():
            run.say(f"crmsync: {count} {what}")
        time.sleep(_LOOK_SECONDS)


def _report(
    run: DemoRun, accounting: Account, repair_count: int, answers: Mapping[str, int]
) -> Mapping[str, Any]:
    traffic = accounting.traffic
    differences = accounting.differences() | {account.HIVE: accounting.in_hive()}
    poisoned_leads, wrong_entries = recovery.poisoned(traffic.leads), accounting.misreported()
    lost_count = sum(differences[side.name].lost for side in CRMS)
    reasons = _reasons()
    for reason in reasons:
        run.say(f"crmsync:   refused by {reason}")
    differ = {name: each.count for name, each in differences.items() if each.count}
    problems = [
        f"differ from what was answered: {differ}" if differ else "",
        f"the recovery log is wrong about {'; '.join(wrong_entries[:3])}" if wrong_entries else "",
        "no poisoned record was repaired" if not repair_count else "",
        f"only {traffic.changed} changes and {traffic.deleted} deletions were made"
        if not traffic.changed or not traffic.deleted
        else "",
    ]
    if not any(problems):
        run.say(
            f"crmsync: {len(CRMS)} CRMs hold what the hive holds, {len(poisoned_leads)} refused "
            "records wait in the recovery log"
        )
    copies = len(traffic.leads) * len(CRMS)
    return {
        "accepted": sum(bool(lead.id) for lead in traffic.leads),
        "at_least": MIN_LEADS,
        "systems": len(traffic.tokens),
        "crms": len(CRMS),
        "forms": sum(lead.route == "form" for lead in traffic.leads),
        "changed": traffic.changed,
        "deleted": traffic.deleted,
        "refused": dict(traffic.refused),
        "copies": copies,
        "delivered": copies - len(poisoned_leads) - lost_count,
        "exhausted": len(poisoned_leads),
        "repaired": repair_count,
        "equal": {name: each.count == 0 for name, each in differences.items()},
        "dead": reasons,
        "answers_of_the_call_centre": dict(answers),
        "lost": lost_count,
        "duplicates": sum(len(each.more) for each in differences.values()),
        "problem": "; ".join(filter(None, problems)),
    }


def _reasons() -> list[str]:
    """One reason of each kind in the recovery log, with how often it occurs."""
    by_kind: dict[tuple[str, str], list[str]] = {}
    for (crm, _), entry in sorted(recovery.entries().items()):
        by_kind.setdefault((crm, entry.field), []).append(entry.reason)
    return [
        f"{crm}, field {field}: {all[0]} ({len(all)} leads)"
        for (crm, field), all in by_kind.items()
    ]
