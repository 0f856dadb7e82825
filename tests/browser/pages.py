"""What tests do on pages of the console."""

from collections.abc import Sequence

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect

from tests.program_host import IS_FULL

AXE = Axe().axe_script
VIOLATIONS = """
([exclude, rules]) => axe.run({exclude}, {
    resultTypes: ["violations"], ...(rules.length ? {runOnly: {type: "rule", values: rules}} : {}),
}).then(results => results.violations)
"""
# What a theme, or the width of a page, may change: the others hold for a page as it is. Under the
# full load they are asked of it once more.
LOOK = () if IS_FULL else (
    "color-contrast", "link-in-text-block", "scrollable-region-focusable", "aria-hidden-focus",
    "button-name", "link-name", "label",
)  # fmt: skip


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


def wrong_with(page: Page, except_for: Sequence[str] = (), rules: Sequence[str] = ()) -> list[str]:
    """What is wrong with a page as it stands: the rule, and where it is broken. Selectors name
    elements that are judged elsewhere; `rules` are those of axe, all by default."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE)
    found = [
        f"{each['id']}: {node['html'][:160]} ({node['failureSummary'].splitlines()[-1].strip()})"
        for each in page.evaluate(VIOLATIONS, [[*except_for], [*rules]])
        for node in each["nodes"][:3]
    ]
    width = page.evaluate("document.documentElement.scrollWidth")
    if width > page.evaluate("innerWidth"):
        found.append(f"scrolls sideways: {width} px")
    return found


def probe(page: Page, button: str) -> str:
    """Press a button that asks another system; the answer."""
    page.click(f"button:text-is('{button}')")
    expect(page.locator(f"button:text-is('{button}')")).to_be_enabled(timeout=60_000)
    return page.locator("#probe-answer").inner_text()
