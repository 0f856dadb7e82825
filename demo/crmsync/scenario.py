"""Leads come in, change and go, until two CRMs hold the same as the hive."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from crmsync.models import Crm, RecoveryEntry
from demo.account import Differences, Records, compare
from demo.crmsync import plan
from demo.crmsync.crms import CallCentre, SalesTable
from demo.crmsync.leads import CALL_CENTRE, CRMS, HIVE, IN_HIVE, TABLE, Lead, Poison, all_leads
from demo.crmsync.traffic import Traffic, trickle
from demo.run import Run, Scenario

# A demo with fewer leads proves nothing, and says so.
_MIN_LEADS = 2_000
_SHARE = 4  # of the demo's messages; a lead is several records and requests
_TRICKLE_SECONDS = 2.0  # between two leads, after the accounting
# The field's name at the CRM that refuses it.
_FIELDS: Mapping[Poison, str] = {"company": "company", "name": "name", "email": "Email"}
Key = tuple[str, str]  # the CRM's name and the lead's id
Entries = Mapping[Key, RecoveryEntry]


@dataclass
class Account:
    """The demo's own list, compared with the records of the CRMs and the hive."""

    traffic: Traffic
    readers: Mapping[str, Callable[[], Records]]

    def differences(self) -> dict[str, Differences]:
        leads = self.traffic.leads
        expected = {side.name: {side.name: side.records(leads)} for side in CRMS}
        return {name: compare(expected[name], {name: self.readers[name]()}) for name in expected}

    def in_hive(self) -> Differences:
        return compare({HIVE: IN_HIVE.records(self.traffic.leads)}, {HIVE: self.traffic.listed()})

    def dead(self) -> dict[Key, Lead]:
        """The leads that each CRM refuses."""
        leads = self.traffic.leads
        return {(s.name, lead.id): lead for s in CRMS for lead in leads if s.is_refused(lead)}

    def misreported(self) -> list[str]:
        """Dead records that the recovery log does not explain, and entries about no dead record."""
        entries, dead = open_entries(), self.dead()
        silent = [key for key, lead in dead.items() if not is_explained(entries, key, lead)]
        return [f"{crm}: lead {lead}" for crm, lead in [*silent, *sorted(entries.keys() - dead)]]

    def count_open(self) -> int:
        """Records that are not yet as they must be."""
        count = sum(differences.count for differences in self.differences().values())
        return count or len(self.misreported())


def open_entries() -> Entries:
    """The open entries of the recovery log."""
    names = dict(Crm.objects.values_list("id", "name"))
    rows = RecoveryEntry.objects.filter(state=RecoveryEntry.State.OPEN)
    return {(names.get(row.crm_id, ""), row.key): row for row in rows}


def is_explained(entries: Entries, key: Key, lead: Lead) -> bool:
    """True if a person knows what to change: the entry names the field, and so does its reason."""
    entry, field = entries.get(key), _FIELDS[lead.poison]
    return entry is not None and entry.field == field and field in entry.reason


def play(run: Run) -> Mapping[str, Any]:
    """Send, change, delete, wait for the CRMs, account for every record."""
    table = SalesTable(run.folder / "sales.sqlite3")
    call_centre = run.until_end.enter_context(CallCentre())
    tokens = plan.create_pages()
    plan.create_crms(table, call_centre)
    leads = all_leads(max(1, run.messages // _SHARE))
    traffic = Traffic(run.base_url, tokens, leads)
    account = Account(traffic, {TABLE: table.read, CALL_CENTRE: call_centre.read})
    forms = sum(lead.route == "form" for lead in leads)
    systems = f"{len(tokens)} business systems"
    lines = [f"crmsync: {len(leads)} leads of {systems}, {forms} by real forms, to"]
    run.say("\n".join([*lines, *(f"  {n:<15} {words}" for n, words in plan.DESCRIPTIONS.items())]))
    run.start_together()
    traffic.send_batches()
    # Some leads change before the CRMs hold them, the others afterwards.
    early = [lead for lead in leads if lead.id and lead.number % 3 == 0]
    traffic.change(early)
    run.progress("crmsync", "leads came in batches, some have changed; now people fill in forms")
    traffic.send_singly()
    # Forms answer with a page, not with an id.
    traffic.learn_ids()
    half, early_numbers = len(leads) // 2, {lead.number for lead in early}

    def count_in_flight() -> int:
        return max(0, half - min(len(read()) for read in account.readers.values()))

    run.wait_for_none("crmsync", count_in_flight, "leads in flight")
    traffic.change([lead for lead in leads if lead.number not in early_numbers])
    run.wait_for_none("crmsync", account.count_open, "records differ")
    run.trickle("crmsync", trickle(run.base_url, tokens, len(leads)), _TRICKLE_SECONDS)
    return _report(run, account, forms)


def _report(run: Run, account: Account, forms: int) -> Mapping[str, Any]:
    traffic, wrong_entries = account.traffic, account.misreported()
    differences = account.differences() | {HIVE: account.in_hive()}
    # One reason of each kind in the recovery log, with the number of its leads.
    reasons: dict[Key, list[str]] = {}
    for (crm, _), entry in sorted(open_entries().items()):
        reasons.setdefault((crm, entry.field), []).append(entry.reason)
    dead = [
        f"{crm}, field {field}: {texts[0]} ({len(texts)} leads)"
        for (crm, field), texts in reasons.items()
    ]
    run.say("\n".join(["crmsync: the recovery log has", *(f"  {line}" for line in dead)]))
    differ = {name: side.count for name, side in differences.items() if side.count}
    problems = [
        f"differ from what was answered: {differ}" if differ else "",
        f"the recovery log is wrong about {'; '.join(wrong_entries[:3])}" if wrong_entries else "",
    ]
    copies, dead_count = len(traffic.leads) * len(CRMS), len(account.dead())
    lost_count = sum(differences[side.name].lost for side in CRMS)
    return {
        "accepted": sum(bool(lead.id) for lead in traffic.leads),
        "at_least": _MIN_LEADS,
        "systems": len(traffic.tokens),
        "crms": len(CRMS),
        "forms": forms,
        "changed": traffic.counts["changed"],
        "deleted": traffic.counts["deleted"],
        "copies": copies,
        "delivered": copies - dead_count - lost_count,
        "exhausted": dead_count,
        "equal": {name: side.count == 0 for name, side in differences.items()},
        "dead": dead,
        "lost": lost_count,
        "duplicates": sum(len(side.extra) for side in differences.values()),
        "problem": "; ".join(filter(None, problems)),
    }


SCENARIO = Scenario(
    "crmsync", play,
    # All leads of the demo come from one address; a CRM that fails is probed again soon.
    lambda: {"CRM_RATE_PER_IP": "off", "CRM_RATE_APPKEY": "off", "CRM_BREAKER_SECONDS": "4"},
    "CRM_",
)  # fmt: skip
