"""Sends the leads and their changes, on several threads, and keeps what was answered.

Leads come by forms of landing pages, and from business systems with their key.
"""

import threading
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode

from demo.account import Records
from demo.connection import Connection
from demo.crmsync import leads
from demo.crmsync.leads import PAGES, Change, Lead, record
from demo.script import BATCH, Script, spread
from msgplatform.core.data import chunks

_LEADS = "/api/v1/leads"


class Business(Script):
    """The calls of a business system about its leads."""

    def store(self, lead: Lead) -> None:
        lead.id = self.send(_LEADS, _body(lead), key=uuid.uuid4().hex)["id"]

    def store_many(self, leads: Sequence[Lead]) -> None:
        items = [{**_body(lead), "idempotency_key": uuid.uuid4().hex} for lead in leads]
        verdicts = self.send_many(f"{_LEADS}/batch", "leads", items)
        for lead, verdict in zip(leads, verdicts, strict=True):
            lead.id = verdict["id"]

    def change(self, lead: Lead, change: Change) -> None:
        self.call(change.method, f"{_LEADS}/{lead.id}", change.body)

    def records(self, page: str) -> Records:
        """The leads of a landing page that are not deleted."""
        pages = self.pages(f"{_LEADS}?appkey={page}&deleted=false&limit=200")
        rows = [row for rows in pages for row in rows]
        return [
            record(
                row["id"],
                row["phone"],
                {"page": page, "name": row["name"], "phone": row["phone"], **row["extra"]},
            )
            for row in rows
        ]


class Form(HTMLParser):
    """The form of a page: its fields with their values."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag in ("input", "textarea") and (name := attributes.get("name")):
            self.fields[name] = attributes.get("value") or ""


def form_values(lead: Lead) -> dict[str, str]:
    """The values as people type them: the phone number in groups."""
    phone = f"{lead.phone[:3]} {lead.phone[3:7]}-{lead.phone[7:]}"
    return {"name": lead.name, "phone": phone, **{k: str(v) for k, v in lead.extra.items()}}


def fill_in(connection: Connection, lead: Lead) -> None:
    """Open the landing page, type, press the button, follow to the thanks, as a browser does.
    Raises RuntimeError."""
    path, headers = f"/l/{lead.page}", {"Accept": "text/html", "Accept-Language": "en"}
    page = connection.request("GET", path, headers=headers).require(200)
    # The form's token must match a cookie, and Django checks where a form comes from.
    headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in page.cookies.items())
    headers |= {"Origin": connection.base_url, "Referer": connection.base_url + path}
    body = urlencode({**Form(page.text).fields, **form_values(lead)})
    form = {**headers, "Content-Type": "application/x-www-form-urlencoded"}
    thanks = connection.request("POST", path, body, form).require(303).headers["location"]
    connection.request("GET", thanks, headers=headers).require(200)


class Traffic:
    """`tokens` are the API keys of the pages' systems, `counts` the leads that were changed and
    deleted. Every method raises RuntimeError for an answer that it does not expect."""

    def __init__(self, base_url: str, tokens: Mapping[str, str], all_leads: Sequence[Lead]) -> None:
        self._base_url, self.tokens = base_url, tokens
        self.leads = all_leads
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def send_batches(self) -> None:
        """Send the leads that systems send by the hundred."""
        shares = [
            [lead for lead in self.leads if lead.route == "batch" and lead.page == page]
            for page in PAGES
        ]
        batches = [batch for share in shares for batch in chunks(share, BATCH)]

        def send(connection: Connection, batch: Sequence[Lead]) -> None:
            self._business(connection, batch[0].page).store_many(batch)

        spread(self._base_url, send, batches)

    def send_singly(self) -> None:
        """Send all others: by forms, and one at a time over the API."""

        def send(connection: Connection, lead: Lead) -> None:
            if lead.route == "form":
                fill_in(connection, lead)
            else:
                self._business(connection, lead.page).store(lead)

        spread(self._base_url, send, [lead for lead in self.leads if lead.route != "batch"])

    def learn_ids(self) -> None:
        """Look up the ids of leads that came by a form, which shows no id."""
        ids = {phone: value[0] for phone, value in self.listed() if isinstance(value, tuple)}
        for lead in self.leads:
            lead.id = lead.id or ids.get(lead.phone, "")

    def change(self, changing: Sequence[Lead]) -> None:
        """Make the changes to these leads, which came in."""

        def send(connection: Connection, lead: Lead) -> None:
            for change in leads.changes(lead):
                self._business(connection, lead.page).change(lead, change)
                leads.apply(lead, change)
                with self._lock:
                    self.counts["deleted" if change.method == "DELETE" else "changed"] += 1

        spread(self._base_url, send, [lead for lead in changing if lead.id])

    def listed(self) -> Records:
        """The hive, as the API gives it."""
        with closing(Connection(self._base_url)) as connection:
            return [row for page in PAGES for row in self._business(connection, page).records(page)]

    def _business(self, connection: Connection, page: str) -> Business:
        return Business(connection, self.tokens[page])


def trickle(base_url: str, tokens: Mapping[str, str], start: int) -> Callable[[int], None]:
    """A lead now and then, and the changes of the one before it; `start` is the first number that
    is free. For one thread."""
    connection = Connection(base_url)
    systems = {page: Business(connection, token) for page, token in tokens.items()}
    last: list[Lead] = []  # the one that came in, and may change

    def store(number: int) -> None:
        while last:
            lead = last.pop()
            for change in leads.changes(lead):
                systems[lead.page].change(lead, change)
        lead = leads.lead(start + number)
        systems[lead.page].store(lead)
        last.append(lead)

    return store


def _body(lead: Lead) -> dict[str, Any]:
    return {"appkey": lead.page, "name": lead.name, "phone": lead.phone, "extra": lead.extra}
