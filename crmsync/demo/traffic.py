"""Sends the leads and their changes, on several threads, and keeps what was answered.

Leads come by forms, by scripts on pages hosted elsewhere, and from business systems with their key.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

from crmsync.demo import leads, visitor
from crmsync.demo.leads import PAGES, Change, Lead, record
from crmsync.demo.scenario import ORIGIN
from msgplatform.core.data.chunks import chunks
from msgplatform.demo.account import Records
from msgplatform.demo.connection import Connection
from msgplatform.demo.script import BATCH, THREADS, Script, spread

LEADS = "/api/v1/leads"
_STRANGE_ORIGIN = "https://elsewhere.example"
# Every so many requests of a script are repeated with the same key, as after a lost answer.
_REPEAT_EVERY = 5


class Business(Script):
    """The calls of a business system about its leads."""

    def store(self, lead: Lead) -> None:
        lead.id = self.send(LEADS, _body(lead), key=uuid.uuid4().hex)["id"]

    def store_many(self, leads: Sequence[Lead]) -> None:
        """Send leads in one request, and a wrong one in another, which must be rejected."""
        items = [{**_body(lead), "idempotency_key": uuid.uuid4().hex} for lead in leads]
        verdicts = self.send_many(f"{LEADS}/batch", "leads", items)
        for lead, verdict in zip(leads, verdicts, strict=True):
            lead.id = verdict["id"]
        wrong = {"leads": [{**_body(leads[0]), "phone": "12"}]}
        (refusal,) = self.call("POST", f"{LEADS}/batch", wrong)["results"]
        if (refusal["outcome"], refusal.get("field")) != ("rejected", "phone"):
            raise RuntimeError(f"a wrong number was taken: {refusal}")

    def change(self, lead: Lead, change: Change) -> None:
        self.call(change.method, f"{LEADS}/{lead.id}", change.body)

    def records(self, page: str) -> Records:
        """The leads of a landing page that are not deleted."""
        pages = self.pages(f"{LEADS}?appkey={page}&deleted=false&limit=200")
        rows = [row for rows in pages for row in rows]
        return [
            record(
                row["id"],
                row["phone"],
                {"page": page, "name": row["name"], "phone": row["phone"], **row["extra"]},
            )
            for row in rows
        ]


class Traffic:
    """`tokens` are the API keys of the pages' systems. `refused` counts by kind the wrong requests
    that the platform refused, as it has to."""

    def __init__(self, base_url: str, tokens: Mapping[str, str], all_leads: Sequence[Lead]) -> None:
        self._base_url, self.tokens = base_url, tokens
        self.leads = all_leads
        self.refused: Counter[str] = Counter()
        self.changed = self.deleted = 0
        self._lock = threading.Lock()

    def send_batches(self) -> None:
        """Send the leads that systems send by the hundred. Raises RuntimeError."""
        batches = [
            batch
            for page in PAGES
            for batch in chunks(
                [one for one in self.leads if one.route == "batch" and one.page == page], BATCH
            )
        ]

        def send(connection: Connection, batch: Sequence[Lead]) -> None:
            self._business(connection, batch[0].page).store_many(batch)
            self._count("items of batches")

        spread(self._base_url, send, batches)

    def send_singly(self) -> None:
        """Send all others: by forms, scripts, and one at a time over the API. Raises
        RuntimeError."""

        def send(connection: Connection, share: Sequence[Lead]) -> None:
            # A person who presses twice needs a second connection.
            with closing(Connection(self._base_url)) as second:
                for one in share:
                    if one.route == "form":
                        refusals, robots = visitor.fill_in((connection, second), one)
                        self._count("forms", refusals)
                        self._count("robots", robots)
                    elif one.route == "script":
                        self._count("strange pages", _send_by_script(connection, one))
                    else:
                        self._business(connection, one.page).store(one)

        self._share_out(send, [one for one in self.leads if one.route != "batch"])

    def learn_ids(self) -> None:
        """Look up the ids of leads that came by a form, which shows no id."""
        ids = {phone: value[0] for phone, value in self.listed() if isinstance(value, tuple)}
        for one in self.leads:
            one.id = one.id or ids.get(one.phone, "")

    def change(self, some: Sequence[Lead]) -> None:
        """Make the changes to these leads, which came in. Raises RuntimeError."""

        def send(connection: Connection, share: Sequence[Lead]) -> None:
            for one in share:
                for change in leads.changes(one):
                    self._business(connection, one.page).change(one, change)
                    leads.apply(one, change)
                    with self._lock:  # threads share these counters
                        self.deleted += change.method == "DELETE"
                        self.changed += change.method != "DELETE"

        self._share_out(send, [one for one in some if leads.changes(one) and one.id])

    def shorten_company(self, one: Lead, company: str) -> None:
        """Change a lead that a CRM refuses, as its business system would."""
        with closing(Connection(self._base_url)) as connection:
            extra = {**one.extra, "company": company}
            change = Change("PATCH", {"extra": {"company": company}}, one.name, extra)
            self._business(connection, one.page).change(one, change)
        leads.apply(one, change)

    def listed(self) -> Records:
        """The hive, as the API gives it."""
        with closing(Connection(self._base_url)) as connection:
            return [row for page in PAGES for row in self._business(connection, page).records(page)]

    def _share_out(
        self, work: Callable[[Connection, Sequence[Lead]], None], some: Sequence[Lead]
    ) -> None:
        """A lead stays with one thread, so that its changes keep their order."""
        shares = [some[number::THREADS] for number in range(THREADS)]
        spread(self._base_url, work, shares)

    def _business(self, connection: Connection, page: str) -> Business:
        return Business(connection, self.tokens[page])

    def _count(self, what: str, count: int = 1) -> None:
        with self._lock:
            self.refused[what] += count


def trickle(base_url: str, tokens: Mapping[str, str], start: int) -> Callable[[int], None]:
    """A lead now and then, and the changes of the one before it; `start` is the first number that
    is free. For one thread."""
    connection = Connection(base_url)
    systems = {page: Business(connection, token) for page, token in tokens.items()}
    last: list[Lead] = []  # the one that came in, and may change

    def store(number: int) -> None:
        while last:
            one = last.pop()
            for change in leads.changes(one):
                systems[one.page].change(one, change)
        one = leads.lead(start + number)
        systems[one.page].store(one)
        last.append(one)

    return store


def _body(lead: Lead) -> dict[str, Any]:
    return {"appkey": lead.page, "name": lead.name, "phone": lead.phone, "extra": lead.extra}


def _send_by_script(connection: Connection, lead: Lead) -> int:
    """Send a lead as a script on a page hosted elsewhere, which has the public APPKEY and no key of
    the API; the number of requests of pages that are not allowed, which are refused."""
    is_repeated = lead.number // 12 % _REPEAT_EVERY == 0
    script = Script(connection, Origin=ORIGIN)
    lead.id = script.send(LEADS, _body(lead), uuid.uuid4().hex, is_repeated)["id"]
    if is_repeated:
        strange = {"Origin": _STRANGE_ORIGIN}
        script.request("POST", LEADS, _body(lead), strange).require(403)
    return int(is_repeated)
