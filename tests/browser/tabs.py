"""Pages in which tests look at the console as somebody who is signed in."""

import contextlib
import urllib.request
from collections.abc import Collection, Iterator
from http.cookiejar import CookieJar
from urllib.parse import urlencode, urlsplit

from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Error,
    Page,
    Response,
    StorageState,
    ViewportSize,
)

from tests.browser.conftest import PASSWORD

SIZE: ViewportSize = {"width": 1300, "height": 900}
NOBODY: StorageState = {"cookies": [], "origins": []}


def sign_in(base_url: str, name: str) -> StorageState:
    """The cookies that the login form sets for this person; tests of signing in fill it in."""
    jar = CookieJar()
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    address = f"{base_url}/admin/login/"
    opener.open(address, timeout=120).close()
    form = {
        "csrfmiddlewaretoken": next(c.value for c in jar if c.name == "csrftoken"),
        "username": name, "password": PASSWORD, "next": "/healthz",
    }  # fmt: skip
    request = urllib.request.Request(address, urlencode(form).encode(), {"Referer": address})
    opener.open(request, timeout=120).close()
    values = {cookie.name: str(cookie.value) for cookie in jar}
    assert "sessionid" in values, f"{name} was refused"
    host = str(urlsplit(base_url).hostname)
    return {
        "cookies": [
            {"name": name, "value": value, "domain": host, "path": "/", "expires": -1,
             "httpOnly": name == "sessionid", "secure": False, "sameSite": "Lax"}
            for name, value in values.items()
        ],
        "origins": [],
    }  # fmt: skip


class Tab:
    """A page that tests use one after another: a new context costs as much as six pages, for it
    loads every script and font anew."""

    def __init__(self, browser: Browser, base_url: str) -> None:
        self._context = browser.new_context(viewport=SIZE)
        self._page = self._context.new_page()
        self._page.set_default_timeout(60_000)
        self._light_page = f"{base_url}/healthz"

    @contextlib.contextmanager
    def of(self, state: StorageState, answers: Collection[int] = ()) -> Iterator[Page]:
        """The page for one test, without anything of the test before; `answers` are statuses from
        400 that are expected."""
        page = self._page
        # Scripts of a test that failed end here, and requests of the page before. One of them is
        # hidden from tests: the browser asks for an icon of a page that names none, and an answer
        # that came after the cookies went would bring the session of the test before.
        page.goto("about:blank")
        self._context.clear_cookies()
        self._context.clear_permissions()
        page.goto(self._light_page)
        page.evaluate("localStorage.clear(); sessionStorage.clear()")
        page.emulate_media(color_scheme="null")
        page.set_viewport_size(SIZE)
        self._context.add_cookies(state["cookies"])  # type: ignore[arg-type]
        with judged(page, answers):
            yield page
            page.goto("about:blank")

    def close(self) -> None:
        self._context.close()


@contextlib.contextmanager
def page_of_its_own(
    browser: Browser, state: StorageState, answers: Collection[int] = ()
) -> Iterator[Page]:
    """For a test that sets the clock of a context, or has two pages open."""
    context = browser.new_context(viewport=SIZE, storage_state=state)
    page = context.new_page()
    page.set_default_timeout(60_000)
    with judged(page, answers):
        yield page
        context.close()


@contextlib.contextmanager
def judged(page: Page, answers: Collection[int]) -> Iterator[None]:
    """What the browser complains of, and an answer that is not among those expected, fails the
    test."""
    wrong: list[str] = []

    def hear_error(error: Error) -> None:
        wrong.append(str(error))

    def hear_line(line: ConsoleMessage) -> None:
        # The answer says it better when a resource failed to load.
        if line.type == "error" and "Failed to load resource" not in line.text:
            wrong.append(line.text)

    def hear_answer(answer: Response) -> None:
        if answer.status >= 400 and answer.status not in answers:
            wrong.append(f"{answer.status} {answer.url}")

    page.on("pageerror", hear_error)
    page.on("console", hear_line)
    page.on("response", hear_answer)
    try:
        yield
    except Exception as error:
        # A page without what a test waits for is another page than the test takes it for.
        error.add_note(f"at {page.url}; the browser complained of {wrong}")
        raise
    finally:
        page.remove_listener("pageerror", hear_error)
        page.remove_listener("console", hear_line)
        page.remove_listener("response", hear_answer)
    assert wrong == []
