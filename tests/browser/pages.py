"""What tests do on pages of the console."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, StorageState, expect

from tests.browser.conftest import PASSWORD


def sign_in(browser: Browser, base_url: str, name: str) -> StorageState:
    """The cookies of a sign-in through the form."""
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(120_000)
    page.goto(base_url + "/")
    page.fill("[name=username]", name)
    page.fill("[name=password]", PASSWORD)
    page.click("[type=submit]")
    page.wait_for_url("**/console/")
    state = context.storage_state()
    context.close()
    return state


def row(page: Page, text: str) -> Locator:
    return page.locator("#result_list .data-row").filter(has_text=text)


def refused(page: Page, fields: dict[str, str]) -> None:
    """Save; each of these fields says what is wrong with it."""
    page.click("[name=_save]")
    expect(page.get_by_text("Please correct the errors below")).to_be_visible()
    for name, sentence in fields.items():
        expect(page.locator(f".field-{name}")).to_contain_text(sentence)


def fill(page: Page, values: dict[str, str]) -> None:
    for name, value in values.items():
        page.fill(f"[name={name}]", value)


def table(page: Page, heading: str) -> list[list[str]]:
    """The cells of the table in the card with this heading."""
    card = page.locator(".card").filter(has=page.get_by_role("heading", name=heading, exact=True))
    return [line.locator("td").all_inner_texts() for line in card.locator("tbody tr").all()]


@contextlib.contextmanager
def signed_in_page(browser: Browser, state: StorageState, answers: set[int]) -> Iterator[Page]:
    """A page of its own. What the browser complains of, and an answer that is not among those
    expected, fails the test."""
    size = {"width": 1300, "height": 900}
    context = browser.new_context(viewport=size, storage_state=state)  # type: ignore[arg-type]
    page = context.new_page()
    page.set_default_timeout(60_000)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "console",
        lambda said: (
            said.type == "error"
            and "Failed to load resource" not in said.text  # the answer says it better
            and wrong.append(said.text)
        ),
    )
    page.on(
        "response",
        lambda answer: (
            answer.status >= 400
            and answer.status not in answers
            and wrong.append(f"{answer.status} {answer.url}")
        ),
    )
    yield page
    context.close()
    assert wrong == []


def wrong_with(page: Page, axe: Axe) -> list[str]:
    """What is wrong with a page as it stands: the rule, and where it is broken."""
    found = [
        f"{each['id']}: {node['html'][:160]} ({node['failureSummary'].splitlines()[-1].strip()})"
        for each in axe.run(page).response["violations"]
        for node in each["nodes"][:3]
    ]
    width = page.evaluate("document.documentElement.scrollWidth")
    if width > page.evaluate("innerWidth"):
        found.append(f"scrolls sideways: {width} px")
    return found
