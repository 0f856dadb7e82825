"""What an operator does, in a real browser."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from notify.demo.publisher import publish_all
from notify.demo.sink_process import SinkProcess
from tests.cluster import DAEMONS, Cluster

PAGES = [
    "/console/",
    "/console/search",
    "/console/search?q=nothing-here",
    "/console/bulk",
    "/admin/",
    "/admin/notify/receive/",
    "/admin/notify/receive/add/",
    "/admin/notify/bizreceive/",
    "/admin/notify/bizreceive/add/",
    "/admin/notify/bizmsg/",
    "/admin/notify/receivemsg/",
    "/admin/crmsync/landingpage/",
    "/admin/crmsync/landingpage/add/",
    "/admin/crmsync/lead/",
    "/admin/msgplatform/biz/",
    "/admin/msgplatform/apikey/",
    "/admin/msgplatform/apikey/add/",
    "/admin/msgplatform/bulkjob/",
    "/admin/msgplatform/alert/",
    "/admin/msgplatform/minutecounter/",
    "/admin/msgplatform/auditlog/",
    "/admin/auth/user/",
    "/django-rq/",
    "/api/docs/",
]


@pytest.mark.parametrize("path", PAGES)
def test_every_page_opens_and_fits_a_phone(page: Page, platform: Cluster, path: str) -> None:
    page.goto(platform.base_url + path)
    page.wait_for_load_state("networkidle")
    expect(page.locator("body")).not_to_be_empty()
    page.set_viewport_size({"width": 390, "height": 844})
    if path != "/api/docs/":  # a page of the schema viewer's own
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 390, f"{path} scrolls sideways: {width} px"


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
    page.keyboard.press("Enter")
    page.click(".console td a")
    expect(page.locator(".timeline")).to_contain_text("till: delivered")
    expect(page.locator(".timeline")).to_contain_text("till: attempt 1")
    expect(page.locator(".timeline")).to_contain_text("HTTP 200")
    expect(page.locator("pre")).to_contain_text('"number": 0')


def _add_key(page: Page, base: str) -> str:
    page.goto(f"{base}/admin/msgplatform/apikey/add/")
    page.select_option("select[name=biz]", label="Web shop 商店")
    page.fill("[name=name]", "till")
    page.click("[name=_save]")
    expect(page.locator("body")).to_contain_text("This field is required")
    page.check("[name=scopes][value='events:write']")
    page.check("[name=scopes][value='events:read']")
    page.click("[name=_save]")
    message = page.get_by_text(re.compile("shown this once"))
    found = re.search(r"mp_\S+", message.first.inner_text())
    assert found
    page.reload()
    expect(page.locator("body")).not_to_contain_text(found[0])
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
        page.click(".select2-results__option--highlighted, .select2-results__option")
    page.click("[name=_save]")
    expect(page.locator("#result_list")).to_contain_text("till")


def test_the_overview_names_who_is_missing(page: Page, platform: Cluster) -> None:
    expect(page.locator(".console")).to_contain_text("Notify")
    expect(page.locator(".notice")).to_contain_text("bulk")
    for name in DAEMONS:
        expect(page.locator("table").last).to_contain_text(name.removeprefix("run_"))


def test_requeue_shows_a_count_before_it_starts(page: Page, platform: Cluster) -> None:
    page.goto(f"{platform.base_url}/console/bulk")
    page.fill("[name=subscription]", "no number")
    page.click("button:text-is('Count')")
    expect(page.locator("em")).to_contain_text("whole number")
    page.fill("[name=subscription]", "")
    page.click("button:text-is('Count')")
    expect(page.locator(".console")).to_contain_text("No message matches.")


def test_signing_out_closes_the_console(page: Page, platform: Cluster) -> None:
    page.context.clear_cookies()
    for path in ("/console/", "/console/search?q=x", "/console/bulk", "/django-rq/"):
        page.goto(platform.base_url + path)
        expect(page.locator("[name=username]")).to_be_visible()
