"""Send the leads and their changes, on several threads, and keep the answers."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from crmsync.demo import leads, visitor
from crmsync.demo.account import Held
from crmsync.demo.caller import BATCH, Business, Script
from crmsync.demo.leads import PAGES, Lead
from msgplatform.core.data.chunks import chunks
from msgplatform.demo.connection import Connection

_THREADS = 8


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
        self._spread(self._batches, [one for one in self.leads if one.route == "batch"])

    def send_singly(self) -> None:
        """Send all others: by forms, scripts, and one at a time over the API. Raises
        RuntimeError."""
        self._spread(self._one_by_one, [one for one in self.leads if one.route != "batch"])

    def learn_ids(self) -> None:
        """Look up the ids of leads that came by a form, which shows no id."""
        ids = {record.phone: record.id for record in self.listed()}
        for one in self.leads:
            one.id = one.id or ids.get(one.phone, "")

    def change(self, some: Sequence[Lead]) -> None:
        """Make the changes to these leads, which came in. Raises RuntimeError."""
        self._spread(self._changes, [one for one in some if leads.changes(one) and one.id])

    def shorten_company(self, one: Lead, company: str) -> None:
        """Change a lead that a CRM refuses, as its business system would."""
        with closing(Connection(self._base_url)) as connection:
            extra = {**one.extra, "company": company}
            change = leads.Change("PATCH", {"extra": {"company": company}}, one.name, extra)
            self._business(connection, one.page).change(one, change)
        leads.apply(one, change)

    def listed(self) -> list[Held]:
        """The hive, as the API gives it."""
        with closing(Connection(self._base_url)) as connection:
            pages = [self._business(connection, page).listed(page) for page in PAGES]
            return [record for page in pages for record in page]

    def _spread(
        self, work: Callable[[Connection, Sequence[Lead]], None], some: Sequence[Lead]
    ) -> None:
        """Share the leads out to threads, each with a connection of its own. A lead stays with one
        thread, so that its changes keep their order."""

        def run(share: Sequence[Lead]) -> None:
            with closing(Connection(self._base_url)) as connection:
                work(connection, share)

        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(run, [some[number::_THREADS] for number in range(_THREADS)]))

    def _batches(self, connection: Connection, share: Sequence[Lead]) -> None:
        for page in PAGES:
            business = self._business(connection, page)
            for some in chunks([one for one in share if one.page == page], BATCH):
                self._count("items of batches", business.store_many(some))

    def _one_by_one(self, connection: Connection, share: Sequence[Lead]) -> None:
        script = Script(connection)
        # A person who presses twice needs a second connection.
        with closing(Connection(self._base_url)) as second:
            for one in share:
                if one.route == "form":
                    refusals, robots = visitor.fill_in((connection, second), one)
                    self._count("forms", refusals)
                    self._count("robots", robots)
                elif one.route == "script":
                    self._count("strange pages", script.store(one))
                else:
                    self._business(connection, one.page).store(one)

    def _changes(self, connection: Connection, share: Sequence[Lead]) -> None:
        for one in share:
            business = self._business(connection, one.page)
            for change in leads.changes(one):
                business.change(one, change)
                leads.apply(one, change)
                with self._lock:
                    # Threads share these counters.
                    self.deleted += change.method == "DELETE"
                    self.changed += change.method != "DELETE"

    def _business(self, connection: Connection, page: str) -> Business:
        return Business(connection, self.tokens[page])

    def _count(self, what: str, count: int) -> None:
        with self._lock:
            self.refused[what] += count


class Trickle:
    """A lead now and then, after the accounting; `begin` is the first number that is free. For one
    thread."""

    def __init__(self, base_url: str, tokens: Mapping[str, str], begin: int) -> None:
        self._connection, self._begin = Connection(base_url), begin
        self._systems = {page: Business(self._connection, token) for page, token in tokens.items()}
        self._last: Lead | None = None  # that came in, and may change

    def store(self, number: int) -> None:
        """Send a lead, and change the one before it if it is one that changes. Raises
        RuntimeError."""
        if self._last is not None:
            one, self._last = self._last, None
            for change in leads.changes(one):
                self._systems[one.page].change(one, change)
        one = leads.lead(self._begin + number)
        self._systems[one.page].store(one)
        self._last = one
