"""Forms of the console, filled in and sent as a browser without scripts does."""

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import urljoin

import requests


@dataclass
class Form:
    """`action` is its address, '' for that of its page. `values` is what it sends unless something
    is changed; `options` are those of each select: what it shows → its value."""

    action: str = ""
    names: set[str] = field(default_factory=set)
    values: dict[str, list[str]] = field(default_factory=dict)
    options: dict[str, dict[str, str]] = field(default_factory=dict)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms = [Form()]
        self._select = self._textarea = self._option = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        # A ticked box without a value sends "on".
        other = "on" if given.get("type") == "checkbox" else ""
        name, value, form = given.get("name", ""), given.get("value", other), self.forms[-1]
        if tag == "form":
            self.forms.append(Form(given.get("action", "")))
        elif tag == "option" and self._select:
            self._option = value
            if "selected" in given or self._select not in form.values:
                form.values[self._select] = [value]
        elif name and tag in ("input", "select", "textarea"):
            form.names.add(name)
            if tag == "select":
                self._select, form.options[name] = name, {}
                if "multiple" in given:
                    form.values[name] = []
            elif tag == "textarea":
                self._textarea, form.values[name] = name, [""]
            elif "checked" in given or given.get("type") not in ("checkbox", "radio", "submit"):
                form.values.setdefault(name, []).append(value)

    def handle_data(self, data: str) -> None:
        form = self.forms[-1]
        if self._textarea:
            form.values[self._textarea][0] += data
        elif self._select and data.strip():
            form.options[self._select][data.strip()] = self._option

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea" and self._textarea:  # the first line break is not part of the text
            written = self.forms[-1].values[self._textarea]
            written[0] = written[0].removeprefix("\n")
            self._textarea = ""
        elif tag == "select":
            self._select = ""
        elif tag == "form":
            self.forms.append(Form())  # what follows belongs to none


def form_with(page: str, names: set[str]) -> Form:
    """The form of a page that has all these fields."""
    reader = _Reader()
    reader.feed(page)
    (found,) = [form for form in reader.forms if names <= form.names]
    return found


class Console:
    """The console at this address, for whoever signs in."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.browser = requests.Session()
        self.browser.trust_env = False

    def get(self, path: str) -> requests.Response:
        answer = self.browser.get(self.address + path, timeout=60)
        assert answer.status_code == 200, (path, answer.text[:2000])
        return answer

    def submit(self, path: str, **changed: str | list[str]) -> requests.Response:
        """Fill in the form of this page that has these fields, and send it; what follows.

        A value that a select shows stands for its value.
        """
        page = self.get(path)
        form = form_with(page.text, set(changed))
        for name, value in changed.items():
            chosen = form.options.get(name, {}).get(value, value) if isinstance(value, str) else ""
            form.values[name] = [chosen] if isinstance(value, str) else value
        address = urljoin(page.url, form.action)
        answer = self.browser.post(address, form.values, timeout=60)
        assert answer.status_code == 200, (path, answer.text[:2000])
        wrong = re.findall(r'class="[^"]*errorlist.*?</ul>', answer.text, re.DOTALL)
        assert not wrong, (path, wrong)
        return answer
