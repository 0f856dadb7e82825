"""The demo of CRM sync: leads come in, change and go, until two CRMs hold the same as the hive."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from crmsync.demo import scenario
from crmsync.demo.crms import CallCentre, SalesTable
from crmsync.demo.leads import (
    CALL_CENTRE,
    CRMS,
    HIVE,
    IN_HIVE,
    MAX_COMPANY,
    TABLE,
    Lead,
    Poison,
    all_leads,
)
from crmsync.demo.traffic import Traffic, trickle
from crmsync.models import Crm, RecoveryEntry
from crmsync.recovery import actions
from msgplatform.core.flows import DemoRun
from msgplatform.demo.account import Differences, Records, compare, wait_for_none

# A demo with fewer leads proves nothing, and says so.
MIN_LEADS = 2_000
_SHARE = 4  # of the demo's messages; a lead is several records and requests
_TRICKLE_SECONDS = 2.0  # between two leads, after the accounting
# The field's name at the CRM that refuses it.
_FIELDS: Mapping[Poison, str] = {"company": "company", "name": "name", "email": "Email"}


@dataclass
class Account:
    """The demo's own list, compared with the records of the CRMs and the hive."""

    traffic: Traffic
    readers: Mapping[str, Callable[[], Records]]

    def differences(self) -> dict[str, Differences]:
        leads = self.traffic.leads
        return {
            side.name: compare({side.name: side.records(leads)}, {side.name: self.read(side.name)})
            for side in CRMS
        }

    def read(self, name: str) -> Records:
        return self.readers[name]()

    def in_hive(self) -> Differences:
        return compare({HIVE: IN_HIVE.records(self.traffic.leads)}, {HIVE: self.traffic.listed()})

    def misreported(self) -> list[str]:
        """Dead records that the recovery log does not explain, and entries about no dead record."""
        entries, dead = open_entries(), poisoned(self.traffic.leads)
        silent = [key for key, lead in dead.items() if not is_explained(entries, key, lead)]
        return [f"{crm}: lead {lead}" for crm, lead in [*silent, *sorted(entries.keys() - dead)]]

    def count_open(self) -> int:
        """Records that are not yet as they must be."""
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
    account = Account(traffic, {TABLE: table.read, CALL_CENTRE: call_centre.read})
    forms = sum(lead.route == "form" for lead in leads)
    lines = [
        f"crmsync: {len(leads)} leads of {len(tokens)} business systems, {forms} by real forms, to"
    ]
    crms = scenario.DESCRIPTIONS.items()
    run.say("\n".join([*lines, *(f"  {name:<15} {words}" for name, words in crms)]))
    run.start_together()
    traffic.send_batches()
    # Some leads change before the CRMs hold them, the others afterwards.
    # By number, so that each run of the demo is the same.
    early = {one.number for one in leads if one.id and one.number % 3 == 0}
    traffic.change([one for one in leads if one.number in early])
    run.progress("crmsync", "leads came in batches, some have changed; now people fill in forms")
    traffic.send_singly()
    # Forms answer with a page, not with an id.
    traffic.learn_ids()
    half = len(leads) // 2

    def count_in_flight() -> int:
        return max(0, half - min(len(account.read(side.name)) for side in CRMS))

    wait_for_none(run, "crmsync", count_in_flight, "leads in flight")
    traffic.change([one for one in leads if one.number not in early])
    is_explained_all = wait_for_none(
        run, "crmsync", lambda: len(account.misreported()), "records differ from the recovery log"
    )
    repairs = repair_two(traffic, open_entries()) if is_explained_all else []
    wait_for_none(run, "crmsync", account.count_open, "records differ")
    run.trickle("crmsync", trickle(run.base_url, tokens, len(leads)), _TRICKLE_SECONDS)
    return _report(run, account, repairs, call_centre.answers())


def _report(
    run: DemoRun, account: Account, repairs: Sequence[str], answers: Mapping[str, int]
) -> Mapping[str, Any]:
    traffic = account.traffic
    differences = account.differences() | {HIVE: account.in_hive()}
    dead, wrong_entries, reasons = poisoned(traffic.leads), account.misreported(), _reasons()
    lost_count = sum(differences[side.name].lost for side in CRMS)
    run.say(
        "\n".join(
            ["crmsync: the recovery log has", *(f"  {line}" for line in [*repairs, *reasons])]
        )
    )
    differ = {name: each.count for name, each in differences.items() if each.count}
    problems = [
        f"differ from what was answered: {differ}" if differ else "",
        f"the recovery log is wrong about {'; '.join(wrong_entries[:3])}" if wrong_entries else "",
        "no poisoned record was repaired" if not repairs else "",
        f"only {traffic.changed} changes and {traffic.deleted} deletions were made"
        if not traffic.changed or not traffic.deleted
        else "",
    ]
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
        "delivered": copies - len(dead) - lost_count,
        "exhausted": len(dead),
        "repaired": len(repairs),
        "equal": {name: each.count == 0 for name, each in differences.items()},
        "dead": reasons,
        "answers_of_the_call_centre": dict(answers),
        "lost": lost_count,
        "duplicates": sum(len(each.extra) for each in differences.values()),
        "problem": "; ".join(filter(None, problems)),
    }


# -- the recovery log ------------------------------------------------------------------------------
Key = tuple[str, str]  # the CRM's name and the lead's id
Entries = Mapping[Key, RecoveryEntry]


def open_entries() -> Entries:
    """The open entries of the recovery log."""
    names = dict(Crm.objects.values_list("id", "name"))
    rows = RecoveryEntry.objects.filter(state=RecoveryEntry.State.OPEN)
    return {(names.get(row.crm_id, ""), row.key): row for row in rows}


def poisoned(leads: Sequence[Lead]) -> dict[Key, Lead]:
    """The leads that each CRM refuses."""
    return {(s.name, lead.id): lead for s in CRMS for lead in leads if s.is_refused(lead)}


def is_explained(entries: Entries, key: Key, lead: Lead) -> bool:
    """True if a person knows what to change: the entry names the field, and so does its reason."""
    entry, field = entries.get(key), _FIELDS[lead.poison]
    return entry is not None and entry.field == field and field in entry.reason


def repair_two(traffic: Traffic, entries: Entries) -> list[str]:
    """Correct the first long company in the recovery log, so that only this CRM gets the new name,
    and the second by its business system, so that every CRM does. Returns sentences for the log."""
    long = [one for one in traffic.leads if one.poison == "company"][:2]
    if len(long) < 2:
        return []
    in_log, at_source = long
    entry = entries[TABLE, in_log.id]
    shorter = f"Corrected {in_log.number}"
    fields = msgspec.json.decode(bytes(entry.request))["fields"]
    actions.edit_and_retry(entry.pk, {**fields, "company": shorter}, by="demo")
    in_log.corrected[TABLE] = {"company": shorter}
    traffic.shorten_company(at_source, at_source.extra["company"][:MAX_COMPANY].strip())
    at_source.poison = ""
    return [f"{TABLE}: lead {in_log.id} edited and tried again",
            f"{TABLE}: lead {at_source.id} corrected by its system"]  # fmt: skip


def _reasons() -> list[str]:
    """One reason of each kind in the recovery log, with the number of its leads."""
    by_kind: dict[tuple[str, str], list[str]] = {}
    for (crm, _), entry in sorted(open_entries().items()):
        by_kind.setdefault((crm, entry.field), []).append(entry.reason)
    return [
        f"{crm}, field {field}: {reasons[0]} ({len(reasons)} leads)"
        for (crm, field), reasons in by_kind.items()
    ]
