"""A walk through the console: every link, every form's buttons, every action of a list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin, urlsplit

from django.test import Client
from django.urls import resolve

# Pages of one kind that are looked at: rows differ and have other buttons, lists do not.
_MAX_LISTS, _MAX_ROWS = 1, 2
_OURS = ("/console/", "/admin/", "/django-rq/")
# django-rq's own pages have links and buttons that our style sheet hides (`web/queue_pages.py`).
_NOT_WALKED = ("/admin/logout/", "/admin/jsi18n/", "/admin/autocomplete/", "/admin/login/",
               "/django-rq/queues/")  # fmt: skip


@dataclass
class Form:
    method: str
    action: str
    fields: dict[str, str] = field(default_factory=dict)
    # What may be sent beside the fields: buttons, and the actions of a list. A form without any
    # is a page to look at.
    choices: list[tuple[str, str]] = field(default_factory=list)


class _Page(HTMLParser):
    """The links and forms of a page; `data-probe` buttons ask by a script."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.forms: list[Form] = []
        self._form: Form | None = None
        self._select = ""
        self._named: dict[str, Form] = {}
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if probe := given.get("data-probe"):
            self.forms.append(Form("post", probe, choices=[("", "")]))
        if tag == "form":
            self._form = Form(given.get("method", "get").lower(), given.get("action", ""))
            self.forms.append(self._form)
            self._named[given.get("id", "")] = self._form
        form = self._named.get(given.get("form", "-"), self._form)
        if tag == "button" and form and given.get("type") != "button":
            form.choices.append((given.get("name", ""), given.get("value", "")))
        if self._form is None:
            return
        name, value = given.get("name", ""), given.get("value", "")
        if tag == "input" and given.get("type") == "hidden":
            self._form.fields[name] = value
        elif tag == "input" and name == "_selected_action":
            self._form.fields.setdefault(name, value)
        elif tag == "select":
            self._select = name
        elif tag == "option" and self._select == "action" and value:
            self._form.choices.append((self._select, value))

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._form = None
        if tag == "select":
            self._select = ""


class Walk:
    """Follows everything that pages offer. `refused` are what answered 403, `failed` what answered
    with a fault; `seen` has the address and the text of each answer."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._kinds: Counter[str] = Counter()
        self.visited: set[str] = set()
        self.refused: list[str] = []
        self.failed: list[str] = []
        self.seen: list[tuple[str, str]] = []

    def from_(self, *addresses: str) -> Walk:
        """Each of these addresses is visited, whatever it is."""
        waiting = [link for address in addresses for link in self._visit(address)]
        while waiting:
            address = waiting.pop()
            if self._is_new(address):
                waiting += self._visit(address)
        return self

    def _is_new(self, address: str) -> bool:
        path = urlsplit(address).path
        if not path.startswith(_OURS) or path.startswith(_NOT_WALKED):
            return False
        if address in self.visited:
            return False
        view = resolve(path)
        is_popup = "_popup" in urlsplit(address).query
        kind = f"{view.view_name} {view.kwargs.get('flow_name', '')} {is_popup}"
        self._kinds[kind] += 1
        is_row = bool(view.kwargs.keys() - {"flow_name"})
        return self._kinds[kind] <= (_MAX_ROWS if is_row else _MAX_LISTS)

    def _visit(self, address: str) -> Iterator[str]:
        self.visited.add(address)
        answer = self._judged(address, self._client.get(address))
        if not answer.get("Content-Type", "").startswith("text/html"):
            return
        page = _Page(answer.content.decode())
        for form in page.forms:
            self._send(urljoin(address, form.action), form)
        for link in page.links:
            yield urljoin(address, link).partition("#")[0]

    def _send(self, address: str, form: Form) -> None:
        """Press each button; a page is only offered if it answers."""
        kind = resolve(urlsplit(address).path).view_name if address.startswith(_OURS) else ""
        if not kind or form.method != "post" or address.startswith(_NOT_WALKED):
            return
        for name, value in form.choices:
            self._kinds[f"{kind} {name}={value}"] += 1
            if self._kinds[f"{kind} {name}={value}"] == 1:
                data = {**form.fields, **({name: value} if name else {})}
                self._judged(f"POST {address} {name}={value}", self._client.post(address, data))

    def _judged(self, what: str, answer: Any) -> Any:
        if answer.status_code == 403:
            self.refused.append(what)
        elif answer.status_code >= 500:
            self.failed.append(f"{what}: {answer.status_code}")
        elif not answer.streaming:
            self.seen.append((what, answer.content.decode(errors="replace")))
        else:
            self.seen.append((what, b"".join(answer.streaming_content).decode()))
        return answer
