"""Notify's admin as an operator uses it, in a real browser."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, StorageState, expect

from demo.sink_process import SinkProcess
from tests.browser.pages import fill, refused, row
from tests.browser.tabs import Tab
from tests.browser.walk import Walk
from tests.browser.whole_platform.platform import Platform

# Long names, trouble and a day's counters; repeated by every test that asks for it.
ROWS = """
import json
from datetime import timedelta
from django.utils import timezone
from msgplatform.models import Biz, MinuteCounter
from notify.models import BizReceive, Receive
url = {url!r}
long = "A name that is far too long for one line of a telephone, as some names are"
biz, _ = Biz.objects.get_or_create(name="console-test", defaults={{"title": long}})
receive, _ = Receive.objects.update_or_create(
    name="console-test",
    defaults={{"title": long, "url": url, "headers": {{"X-Key": "hidden-value"}}}},
)
row, _ = BizReceive.objects.update_or_create(
    biz=biz, receive=receive, defaults={{
        "status": 0, "failures": 7, "failing_since": timezone.now() - timedelta(hours=30)}},
)
MinuteCounter.objects.filter(subject=row.pk).delete()
minute = timezone.now().replace(second=0, microsecond=0)
for name, value in (("delivered", 40), ("failed", 9)):
    MinuteCounter.objects.create(
        minute=minute, flow="notify", biz_id=biz.pk, subject=row.pk, name=name, value=value
    )
print(json.dumps({{"row": row.pk, "receive": receive.pk}}))
"""


@pytest.fixture
def sink(platform: Platform) -> Iterator[SinkProcess]:
    with SinkProcess(platform.folder / "admin.seen", []) as running:
        yield running


@pytest.fixture
def made(platform: Platform, sink: SinkProcess) -> dict[str, Any]:
    """The ids of a subscription in trouble and of its consumer, which answers."""
    found: dict[str, Any] = platform.script(ROWS.format(url=sink.url))
    return found


def admin(platform: Platform, path: str) -> str:
    return f"{platform.base_url}/admin/notify/{path}"


@pytest.fixture(scope="module")
def walk(platform: Platform, tab: Tab, signed_in: StorageState) -> Walk:
    rows = platform.script(ROWS.format(url="http://127.0.0.1:1/"))
    paths = (
        "/admin/notify/bizreceive/",
        "/admin/notify/bizreceive/?attention=yes",
        "/admin/notify/bizreceive/?q=nothing-like-it",
        f"/admin/notify/bizreceive/{rows['row']}/change/",
        f"/console/statistics?flow=notify&subscription={rows['row']}&period=7d&step=hour",
        f"/admin/notify/receive/{rows['receive']}/change/",
        f"/admin/notify/receive/{rows['receive']}/rotate/",
        f"/console/search/notify?subscription={rows['row']}&status=exhausted",
        "/console/search/notify?status=accepted",
    )
    with tab.of(signed_in) as page:
        return Walk(platform.base_url).visit(page, paths)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_fit_a_phone_and_ask_nobody_else(walk: Walk, theme: str) -> None:
    assert walk.misfits[theme] == {}
    assert walk.foreign == set()


def test_rotating_a_secret(page: Page, platform: Platform, made: dict[str, Any]) -> None:
    page.goto(admin(platform, f"receive/{made['receive']}/change/"))
    expect(page.locator("body")).not_to_contain_text("hidden-value")
    expect(page.locator("[name=headers]")).to_have_value("X-Key: •••")
    page.click("text=Rotate secret")
    page.fill("[name=hours]", "2")
    page.locator("button:text-is('Rotate the secret')").dblclick()
    secret = page.locator("#secret").inner_text()
    assert secret.startswith("whsec_")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("#copy")
    expect(page.locator("#copy")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == secret
    assert all(secret not in str(cookie) for cookie in page.context.cookies())
    page.click("text=I have saved it")
    expect(page.locator("body")).to_contain_text("two secrets sign, the old one until")
    page.go_back()
    page.reload()
    expect(page.locator("body")).not_to_contain_text(secret)


def test_a_test_send(
    page: Page, platform: Platform, made: dict[str, Any], sink: SinkProcess
) -> None:
    before = sink.ids()
    page.goto(admin(platform, f"bizreceive/{made['row']}/change/"))
    expect(page.locator(".notice.bad")).to_contain_text("7 failures in a row since")
    expect(page.locator("#chart-attempts")).to_have_attribute(
        "aria-label", re.compile(r"delivered: highest 40.*failed attempts: highest 9")
    )
    page.click("button:text-is('Test send')")
    expect(page.locator(".notice.good")).to_contain_text("HTTP 200")
    expect(page.locator("pre").first).to_contain_text('"webhook.test"')
    (sent,) = sink.ids() - before
    expect(page.locator("dl")).to_contain_text(sent)
    page.click("text=Back to the subscription")
    expect(page.locator("button:text-is('Test send')")).to_be_visible()


def test_an_event_type_is_described_and_tried(
    page: Page, platform: Platform, made: dict[str, Any], sink: SinkProcess
) -> None:
    before = sink.ids()
    page.goto(admin(platform, "eventtype/add/"))
    schema = '{"properties": {"n": {"type": "integer"}}}'
    values = {"name": "console.paid", "description": "An order was paid in full.",
              "example": '{"n": "one"}', "schema": schema}  # fmt: skip
    fill(page, values)
    refused(page, {"example": "payload.n"})
    fill(page, {"example": '{"n": 1}'})
    page.click("[name=_save]")
    page.fill("[name=q]", "in full")
    page.press("[name=q]", "Enter")
    expect(row(page, "console.paid")).to_contain_text("shared by all")
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(admin(platform, f"bizreceive/{made['row']}/test/"))
    page.select_option("form[method=get] [name=event_type]", "console.paid")
    page.click("button:text-is('Use its example')")
    expect(page.locator("form[method=post] [name=event_type]")).to_have_value("console.paid")
    expect(page.locator("[name=payload]")).to_have_value('{\n  "n": 1\n}')
    page.fill("[name=payload]", '{"n": "two"}')
    page.click("button:text-is('Send')")
    expect(page.locator(".notice.good")).to_contain_text("HTTP 200")
    expect(page.locator(".notice.warn")).to_contain_text("payload.n: 'two' is not")
    expect(page.locator("pre").first).to_contain_text("X-Key: •••")
    expect(page.locator("pre").first).to_contain_text('"data":{"n": "two"}')
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert len(sink.ids() - before) == 1


def test_pausing_resuming_and_thinking_twice(
    page: Page, platform: Platform, made: dict[str, Any]
) -> None:
    page.goto(admin(platform, f"bizreceive/{made['row']}/change/"))
    page.click("button:text-is('Pause')")
    expect(page.locator(".head .mark").first).to_have_text("paused")
    page.click("button:text-is('Discard')")
    expect(page.locator(".notice.warn")).to_contain_text("Deliveries that wait are skipped")
    page.click("text=No, go back")
    expect(page.locator(".head .mark").first).to_have_text("paused")
    page.click("button:text-is('Resume and send what was held')")
    expect(page.locator(".head .mark").first).to_have_text(re.compile("idle|delivering"))
    expect(page.locator(".notice.bad")).to_have_count(0)  # it starts anew


def test_deliveries_of_a_subscription_are_found_by_typing(
    page: Page, platform: Platform, made: dict[str, Any]
) -> None:
    page.goto(f"{platform.base_url}/console/search/notify")
    page.click(".finder summary")
    page.locator("[name=subscription]").press_sequentially("a name that is far")
    offered = page.locator("datalist option[value='console-test/console-test']")
    expect(offered).to_have_attribute("label", re.compile("A name that is far"))
    page.fill("[name=subscription]", "console-test/console-test")
    page.select_option("[name=status]", label="exhausted")
    page.click("form.filters button.primary")
    page.wait_for_url(re.compile("subscription=console-test"))
    assert "status=exhausted" in page.url
    chips = page.locator(".finder .chip")
    expect(chips).to_contain_text(["exhausted", "console-test/console-test"])
    expect(page.locator("[name=subscription]")).to_have_value("console-test/console-test")


def test_statistics_are_chosen_by_typing(
    page: Page, platform: Platform, made: dict[str, Any]
) -> None:
    page.goto(f"{platform.base_url}/console/statistics?flow=notify")
    page.locator(".choose .select2-selection").first.click()
    page.fill(".select2-search__field", "console-test")
    page.click(".select2-results__option:has-text('A name that is far')")
    page.click("button:text-is('Show')")
    page.wait_for_url(re.compile(rf"subscription={made['row']}"))
    expect(page.locator(".figures")).to_contain_text("40")
    with page.expect_download() as download:
        page.locator("form.choose").get_by_text("CSV").click()
    assert download.value.suggested_filename.endswith(".csv")


TOTALS = """
import json
from msgplatform.models import Biz
from notify.intake import intake
biz = Biz.objects.get(name="console-test")
intake.publish_many([
    intake.Event(biz.pk, "order.paid", json.dumps({"total": total}).encode())
    for total in (12, 101, 500)
])
print(json.dumps(True))
"""


def test_a_filter_is_tried_and_saved(
    page: Page, platform: Platform, notify: None, made: dict[str, Any]
) -> None:
    platform.script(TOTALS)
    page.goto(admin(platform, f"bizreceive/{made['row']}/change/"))
    document = '{"data": {"total": {"$gt": 100}}}'
    page.fill("[name=filter]", document)
    with page.expect_popup() as popup:  # what is in the form, before it is saved
        page.click("text=Try the filter")
    trial = popup.value
    outcome = trial.locator("#outcome")
    expect(outcome.locator("h2")).to_contain_text("2 of the latest 3 messages would come")
    expect(outcome).to_contain_text("Of 3 events of the last 24 hours 2 would come")
    expect(outcome).to_contain_text("with the filter that is saved now 3")
    expect(outcome).to_contain_text("data.total 12 is not > 100")
    trial.fill("[name=filter]", '{"total": {"$gt": 100}}')
    trial.click("button:text-is('Try it')")
    expect(trial.locator("form em")).to_contain_text("a path begins with one of data, type")
    trial.close()
    page.click("[name=_continue]")
    expect(page.locator("[name=filter]")).to_have_value(re.compile(r'"\$gt": 100'))
    platform.script(TOTALS)
    page.goto(f"{platform.base_url}/console/search/notify?biz=console-test")
    oldest = page.locator("tbody tr").nth(2).locator("a").first
    oldest.click()
    filtered_card = page.locator("text=Filtered: data.total 12 is not > 100")
    expect(filtered_card).to_be_visible(timeout=60_000)
