"""A person in front of a landing page: opens it, types, presses the button, sometimes twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from http.client import HTTPException
from urllib.parse import urlencode

from crmsync.demo.leads import Lead
from msgplatform.demo.connection import Answer, Connection


class Form(HTMLParser):
    """The form of a page: its fields with their values, and the fields that are marked as wrong."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self.marked: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        name = attributes.get("name") or ""
        if tag in ("input", "textarea") and name:
            self.fields[name] = attributes.get("value") or ""
            if attributes.get("aria-invalid") == "true":
                self.marked.append(name)


class Visitor:
    """One person's browser; `connections` are two, for a person who presses twice."""

    def __init__(self, connections: tuple[Connection, Connection], page: str) -> None:
        self._first, self._second = connections
        self._path = f"/l/{page}"
        self._cookies: dict[str, str] = {}
        self._form = Form("")

    def open(self) -> None:
        self._show(self._first.request("GET", self._path, headers=self._headers()).require(200))

    def press(self, values: Mapping[str, str]) -> bool:
        """Send the form; True if it was taken. If not, the page shows the errors."""
        answer = self._first.request("POST", self._path, self._body(values), self._headers(True))
        return self._taken(answer)

    def press_twice(self, values: Mapping[str, str]) -> bool:
        """Send the form twice: both requests are in flight before the first answer comes."""
        body, headers = self._body(values), self._headers(True)
        try:
            # On a connection of its own, so that the first request does not wait for it.
            self._second.send("POST", self._path, body, headers)
        except (OSError, HTTPException):
            self._second.close()
            return self.press(values)
        is_taken = self.press(values)
        try:
            second = self._second.receive()
        except (OSError, HTTPException):
            self._second.close()
            return is_taken
        # The second one may meet a lock and be told to press again; it must not be lost silently.
        return is_taken and (second.status == 503 or self._taken(second))

    @property
    def marked(self) -> Sequence[str]:
        """The fields beside which the page shows an error."""
        return self._form.marked

    def shown(self, name: str) -> str:
        return self._form.fields[name]

    def _taken(self, answer: Answer) -> bool:
        answer.require(200, 303)
        if answer.status == 303:
            thanks = answer.headers["location"]
            self._first.request("GET", thanks, headers=self._headers()).require(200)
            return True
        self._show(answer)
        return False

    def _show(self, answer: Answer) -> None:
        self._cookies.update(answer.cookies)
        self._form = Form(answer.text)

    def _headers(self, is_form: bool = False) -> dict[str, str]:
        headers = {"Accept": "text/html", "Accept-Language": "en"}
        # The form's token must match a cookie: the landing page is protected against forged forms.
        if self._cookies:
            headers["Cookie"] = "; ".join(f"{k}={v}" for k, v in self._cookies.items())
        if is_form:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
            # As browsers do: Django checks where a form comes from.
            headers["Origin"] = self._first.base_url
            headers["Referer"] = self._first.base_url + self._path
        return headers

    def _body(self, values: Mapping[str, str]) -> str:
        """All fields of the form, as a browser sends them."""
        if strange := values.keys() - self._form.fields.keys():
            raise RuntimeError(f"{self._path} has no field {', '.join(sorted(strange))}")
        return urlencode({**self._form.fields, **values})


def form_values(lead: Lead) -> dict[str, str]:
    """The values as people type them: the phone number in groups."""
    phone = f"{lead.phone[:3]} {lead.phone[3:7]}-{lead.phone[7:]}"
    return {"name": lead.name, "phone": phone, **{k: str(v) for k, v in lead.extra.items()}}


def fill_in(connections: tuple[Connection, Connection], lead: Lead) -> tuple[int, int]:
    """Send a lead by a form. Returns the number of refused inputs, and of refused robots.

    Of six people one presses twice, one mistypes a number first, and one is followed by a robot
    that fills in the hidden field. Raises RuntimeError.
    """
    # Leads of a form are 0 and 1 of each twelve: counted by twelves, every kind occurs.
    kind = lead.number // 12 % 6
    visitor = Visitor(connections, lead.page)
    visitor.open()
    refusals = robots = 0
    if kind == 1:
        wrong = form_values(lead) | {"phone": "12"}
        if visitor.press(wrong) or visitor.marked != ["phone"] or visitor.shown("phone") != "12":
            raise RuntimeError(f"a wrong number was taken: {lead.number}")
        refusals = 1
    press = visitor.press_twice if kind == 0 else visitor.press
    if not press(form_values(lead)):
        raise RuntimeError(f"the form of {lead.number} was refused: {visitor.marked}")
    if kind == 2:
        robot = Visitor(connections, lead.page)
        robot.open()
        # It fills in the field that people do not see.
        if robot.press(
            form_values(lead) | {"phone": "139" + lead.phone[3:], "contact_url": "x.example"}
        ):
            raise RuntimeError("a robot's form was taken")
        robots = 1
    return refusals, robots
