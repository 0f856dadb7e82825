"""What an operator does, in a real browser."""

import re

import pytest
from playwright.sync_api import Page, expect

from demo.notify.traffic import publish_all
from demo.sink_process import SinkProcess
from tests.browser.pages import row
from tests.cluster import DAEMONS, Cluster


@pytest.mark.usefixtures("notify")
def test_from_nothing_to_a_delivered_message(page: Page, platform: Cluster) -> None:
    """Add a system, a key, a consumer and a subscription; publish; follow the message."""
    base = platform.base_url
    with SinkProcess(platform.folder / "browser.seen", []) as sink:
        page.goto(f"{base}/admin/msgplatform/biz/add/")
        page.fill("[name=name]", "shop")
        page.fill("[name=title]", "Web shop 商店")
        page.click("[name=_save]")
        key = _add_key(page, base)
        _add_consumer(page, base, sink.url)
        _subscribe(page, base)
        (accepted,) = publish_all(base, {"shop": key}, 1, connections=1)
        platform.wait_until(lambda: sink.ids() == {accepted.id}, "the delivery")

        def marked() -> bool:
            answer = platform.get(f"/api/v1/messages/{accepted.id}", key)
            return bool(answer["deliveries"][0]["status"] == "delivered")

        platform.wait_until(marked, "the mark")
        page.goto(f"{base}/console/search")
        page.fill("[name=q]", accepted.id)
        page.keyboard.press("Enter")  # the only hit is opened
        expect(page.locator(".timeline")).to_contain_text("till: delivered")
        expect(page.locator(".timeline")).to_contain_text("till: attempt 1")
        expect(page.locator(".timeline")).to_contain_text("HTTP 200")
        expect(page.locator("#content > pre")).to_contain_text('"number": 0')
        _look_and_send_again(page, accepted.id)
        platform.wait_until(marked, "the second delivery")
    # The console's own pages fit a phone with cards and commands unfolded, too.
    page.set_viewport_size({"width": 390, "height": 844})
    page.evaluate("document.querySelectorAll('details').forEach(found => found.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def _look_and_send_again(page: Page, id: str) -> None:
    """The card of the consumer: what it answered, the delivery as a command, and once more."""
    card = page.locator(".recipient").filter(has_text="till")
    expect(card.locator(".mark").first).to_have_text("delivered")
    card.locator(".attempts summary").click()
    expect(card.get_by_role("heading", name="Headers of the answer")).to_be_visible()
    card.get_by_text("Repeat this delivery with curl").click()
    expect(card.locator("pre.command")).to_contain_text(f"webhook-id: {id}")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    card.get_by_role("button", name="Copy").click()
    expect(card.get_by_role("button", name="Copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == card.locator("pre.command").inner_text()
    # Nothing is sent before it is confirmed.
    card.get_by_text("Send again…").click()
    expect(card.get_by_text("The consumer has accepted it already")).to_be_visible()
    card.get_by_role("button", name="Yes, send it again").click()
    expect(page.get_by_text("Sent again to 1 recipient.")).to_be_visible()
    expect(page.locator(".timeline")).to_contain_text("Sent again by admin")
    expect(page.locator(".timeline")).to_contain_text("till: attempt 1")
    expect(card).to_contain_text("1 time")


def _add_key(page: Page, base: str) -> str:
    page.goto(f"{base}/admin/msgplatform/apikey/add/")
    page.select_option("select[name=biz]", label="Web shop 商店")
    page.fill("[name=name]", "till")
    page.click("[name=_save]")
    expect(page.locator("body")).to_contain_text("This field is required")
    page.check("[name=scopes][value='events:write']")
    page.check("[name=scopes][value='events:read']")
    page.locator("[name=_save]").dblclick()
    message = page.get_by_text(re.compile("shown this once"))
    found = re.search(r"mp_\S+", message.first.inner_text())
    assert found
    page.reload()
    expect(page.locator("body")).not_to_contain_text(found[0])
    page.goto(f"{base}/admin/msgplatform/apikey/?q=till")
    expect(row(page, "Web shop 商店")).to_have_count(1)
    return found[0]


def _add_consumer(page: Page, base: str, url: str) -> None:
    page.goto(f"{base}/admin/notify/receive/add/")
    page.fill("[name=name]", "till")
    page.fill("[name=url]", "ftp://nowhere")
    page.click("[name=_save]")
    expect(page.locator("body")).to_contain_text(re.compile("http", re.IGNORECASE))
    page.fill("[name=url]", url)
    page.click("[name=_save]")
    expect(page.get_by_text(re.compile("whsec_")).first).to_be_visible()


def _subscribe(page: Page, base: str) -> None:
    page.goto(f"{base}/admin/notify/bizreceive/add/")
    for field, name in (("biz", "Web shop"), ("receive", "till")):
        page.click(f".field-{field} .select2-selection")
        page.fill(".select2-search__field", name.split()[-1])
        # The beginning of it: others may have consumers whose names end so.
        begins = re.compile(rf"^\s*{name}")
        page.locator(".select2-results__option").filter(has_text=begins).click()
    page.click("[name=_save]")
    expect(page.locator("#result_list")).to_contain_text("till")


@pytest.mark.usefixtures("notify")
def test_the_overview_names_who_is_missing(page: Page, platform: Cluster) -> None:
    page.goto(f"{platform.base_url}/console/")
    expect(page.locator(".console")).to_contain_text("Notify")
    # Beside it there may be notices of what other tests have left.
    missing = page.locator("#live-notices .notice", has_text="No heartbeat")
    expect(missing).to_contain_text("bulk")
    for name in DAEMONS:
        expect(page.locator("table").last).to_contain_text(name.removeprefix("run_"))


COUNT = """
import json
from msgplatform.core.data import sql
from msgplatform.models import MinuteCounter
counts = {{(0, 0, "handled_vip"): {handled}, (0, 0, "set_aside_vip"): {lost}}}
MinuteCounter.add("feed", counts, sql.now())
print(json.dumps(True))
"""
FORGET = """
import json
from msgplatform.models import MinuteCounter
print(json.dumps(MinuteCounter.objects.filter(flow="feed").delete()[0]))
"""
# Bright pixels of the chart's line: something was drawn in this colour.
DRAWS = """([red, green, blue]) => {
  const canvas = document.getElementById("chart-feed");
  const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  for (let n = 0; n < data.length; n += 4)
    if ([red, green, blue, 255].every((value, at) => data[n + at] === value)) return true;
  return false;
}"""
LOST = {"light": [220, 38, 38], "dark": [248, 113, 113]}


def test_the_overview_renews_itself(page_with_clock: Page, platform: Cluster) -> None:
    """New counts appear without a reload, in the figures and in the chart; the keyboard stays where
    it is; a pause holds all of it; both themes draw."""
    page = page_with_clock
    platform.script(FORGET)  # what other tests have counted
    platform.script(COUNT.format(handled=21, lost=0))  # a flow without counts has no chart
    page.goto(f"{platform.base_url}/console/")
    page.evaluate("window.isTheSamePage = true")
    feed = page.locator("#live-feed")
    chart = page.locator("#chart-feed")
    before = str(chart.get_attribute("aria-label"))
    platform.script(COUNT.format(handled=4300, lost=17))
    page.clock.run_for(11_000)
    expect(feed).to_contain_text("4,321", timeout=120_000)
    expect(page.locator("#live-troubles")).to_contain_text("vip")
    link = page.locator("#live-troubles a").first
    link.focus()
    expect(chart).not_to_have_attribute("aria-label", before)
    page.wait_for_function(DRAWS, arg=LOST["light"])
    page.get_by_role("button", name="Pause updates").click()
    platform.script(COUNT.format(handled=1000, lost=1))
    page.clock.run_for(30_000)
    expect(feed).to_contain_text("4,321", timeout=120_000)
    page.get_by_role("button", name="Resume updates").click()
    expect(feed).to_contain_text("5,321", timeout=120_000)
    link.focus()
    platform.script(COUNT.format(handled=1000, lost=1))
    page.clock.run_for(11_000)
    expect(feed).to_contain_text("6,321", timeout=120_000)
    expect(page.locator("#live-troubles")).to_contain_text("19")
    expect(page.locator("#live-troubles a").first).to_be_focused()
    assert page.evaluate("window.isTheSamePage")
    page.evaluate("document.documentElement.classList.add('dark')")
    page.wait_for_function(DRAWS, arg=LOST["dark"])


def test_an_overview_left_open_loses_what_is_gone(page_with_clock: Page, platform: Cluster) -> None:
    """A chart without numbers is none, also where it was drawn before; nobody loses what they
    type."""
    page = page_with_clock
    platform.script(COUNT.format(handled=21, lost=0))
    page.goto(f"{platform.base_url}/console/")
    page.evaluate("window.isTheSamePage = true")
    expect(page.locator("#chart-feed")).to_be_visible()
    box = page.get_by_label("Find a message")
    box.fill("order-7")
    platform.script(FORGET)
    with page.expect_response(re.compile("live=1")):
        page.clock.run_for(11_000)
    assert page.evaluate("window.isTheSamePage")
    expect(box).to_have_value("order-7")
    box.fill("")
    box.blur()
    page.clock.run_for(11_000)
    expect(page.locator("#chart-feed")).to_have_count(0)
    assert not page.evaluate("window.isTheSamePage")


def test_resend_shows_a_count_before_it_starts(page: Page, platform: Cluster) -> None:
    page.goto(f"{platform.base_url}/console/bulk")
    page.fill("[name=subscription]", "no number")
    page.click("button:text-is('Preview')")
    expect(page.locator("em")).to_contain_text("whole number")
    page.fill("[name=subscription]", "")
    page.fill("[name=event_type]", "never.published")
    page.click("button:text-is('Preview')")
    expect(page.locator(".console")).to_contain_text("No message matches.")


def test_signing_out_closes_the_console(page: Page, platform: Cluster) -> None:
    page.context.clear_cookies()
    for path in ("/console/", "/console/search?q=x", "/console/bulk", "/django-rq/"):
        page.goto(platform.base_url + path)
        expect(page.locator("[name=username]")).to_be_visible()
