"""The README's way to a first message without a terminal, as it is written there."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.cluster import Cluster

README = Path(__file__).resolve().parents[3] / "README.md"
_HEADING = "### Your first message, without a terminal\n"
SLOW = 180_000  # ms: what other programs do
MAKE_GONE = """
import json
from crmsync.models import Crm, LandingPage, Policy
from notify.models import BizReceive
Policy.objects.filter(crm__name="newcomer").delete()
Crm.objects.filter(name="newcomer").delete()
LandingPage.objects.filter(appkey="newcomer").delete()
print(json.dumps(BizReceive.objects.filter(receive__name="sandbox-newcomer").update(status=2)))
"""


class Steps:
    """Presses what the README names; a name that is not there fails the test."""

    def __init__(self, page: Page) -> None:
        text = README.read_text(encoding="utf-8").partition(_HEADING)[2].partition("\n### ")[0]
        self._text, self._page = " ".join(text.split()), page

    def press(self, name: str) -> None:
        assert f"*{name}*" in self._text, name
        self._page.click(f"main :is(a, button, summary):text-is('{name}')")

    def choose(self, label: str, option: str) -> None:
        assert f"`{option}`" in self._text, option
        self._page.get_by_label(label).first.select_option(label=option)


@pytest.fixture
def tidied(platform: Cluster) -> Iterator[None]:
    """Other tests begin without a CRM."""
    yield
    platform.script(MAKE_GONE)


@pytest.mark.usefixtures("notify", "tidied", "sync")
def test_the_first_message_and_the_first_lead_need_no_terminal(
    page: Page, platform: Cluster
) -> None:
    """The system is called otherwise: other tests have a shop."""
    steps, base = Steps(page), platform.base_url
    page.goto(f"{base}/admin/msgplatform/biz/add/?next=/console/getting-started")
    page.fill("[name=name]", "newcomer")
    page.click("[name=_save]")
    page.wait_for_url(f"{base}/console/getting-started")
    # An event. The step is done already where other tests have made consumers.
    page.goto(f"{base}/admin/notify/bizreceive/sandbox/")
    page.get_by_label("Business system").select_option(label="newcomer")
    steps.press("Make it")
    expect(page.get_by_text("Nothing came in the last hour.")).to_be_visible()
    sandbox = page.url
    steps.press("Publish a test event")
    steps.press("Publish")
    page.wait_for_url(sandbox)
    calls = page.locator("#live-sandbox details")
    expect(calls).to_have_count(1, timeout=SLOW)
    expect(calls.first).to_contain_text("verified")
    expect(calls.first).to_contain_text("Webhook-Signature")
    # The example of an event type, where other tests have made a catalogue.
    expect(calls.first).to_contain_text(re.compile('"order": 7|"n": 1'))
    # It fails once.
    steps.press("Let it answer differently")
    steps.choose("Answer", "503: is down")
    page.get_by_label("For so many requests").fill("1")
    steps.press("Answer like this")
    expect(page.get_by_text("It answers 503")).to_be_visible()
    steps.press("Publish a test event")
    steps.press("Publish")
    page.wait_for_url(sandbox)
    summary = page.locator(f"#{calls.last.get_attribute('id')} > summary")
    summary.focus()
    expect(calls).to_have_count(3, timeout=SLOW)
    expect(summary).to_be_focused()
    expect(calls.nth(1).locator("summary")).to_contain_text("503")
    expect(calls.first.locator("summary")).to_contain_text("request 2 of this message")
    expect(page.get_by_text("It accepts every request")).to_be_visible()
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    # A lead.
    page.goto(f"{base}/admin/crmsync/crm/sandbox/")
    page.get_by_label("Name").fill("newcomer")
    steps.press("Make it")
    expect(page.get_by_text("It holds no record.")).to_be_visible()
    crm = page.url
    page.goto(f"{base}/admin/crmsync/landingpage/add/")
    page.select_option("[name=biz]", label="newcomer")
    page.fill("[name=title]", "Test drive")
    page.fill("[name=appkey]", "newcomer")
    page.click("[name=_save]")
    page.goto(f"{base}/l/newcomer")
    page.fill("[name=name]", "Ann Lee")
    page.fill("[name=phone]", "13800000000")
    page.click("form button")
    page.goto(crm)
    expect(page.locator("#live-sandbox")).to_contain_text("Ann Lee", timeout=SLOW)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
