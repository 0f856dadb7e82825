"""Feed's console as an operator uses it, in a real browser: what failed, what a user sees, pace."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, StorageState, expect

from tests.browser.conftest import ADMIN
from tests.browser.pages import row, sign_in, signed_in_page
from tests.cluster import WEB, Cluster

FAILED = """
import json
from msgplatform.models import Biz
from tests.support import feed_rows
biz, _ = Biz.objects.get_or_create(name="town")
feed_rows.related(biz, ("ann", "befriend", "bob"))
feed_rows.visited(biz, "bob")
print(json.dumps([str(feed_rows.set_aside(biz, "ann", data=text)) for text in ("one", "two")]))
"""
POSTED = """
import json
from msgplatform.models import Biz
from tests.support import feed_rows
biz, _ = Biz.objects.get_or_create(name="village")
print(json.dumps(str(feed_rows.post(biz, "star", "Good evening", "vip"))))
"""
FOLLOW = """
import json
from msgplatform.models import Biz
from tests.support import feed_rows
feed_rows.related(Biz.objects.get(name="village"), ("fan", "follow", "star"))
print(json.dumps(True))
"""
STATE = """
import json
from notify.feed.models import EventQueue, FeedBroadcast
readers = FeedBroadcast.objects.filter(feed_id={post}).order_by("fri_uid")
print(json.dumps([
    EventQueue.objects.get(pk={post}).status, list(readers.values_list("fri_uid", flat=True))
]))
"""
RECORDED = """
import json
from notify.feed.models import FeedPace
print(json.dumps(FeedPace.objects.count()))
"""
ROWS = """
from tests.support import feed_rows
print(feed_rows.make())
"""
SET_ASIDE, HANDLED = 3, 1
FIND, USERS = "/console/search/feed", "/admin/feed/eventqueue/users/"
EVENTS = "/admin/feed/eventqueue/"
PAGES = (
    FIND, f"{FIND}?user=ann", f"{FIND}?user=nobody", "/console/feed/{post}",
    "/console/feed/{vip}", "/console/feed/{deleted}", "/console/feed/{aside}",
    "/console/feed/{merged}", EVENTS, f"{EVENTS}?status__exact=3", f"{EVENTS}{{aside}}/change/",
    f"{EVENTS}{{waiting}}/change/", USERS, f"{USERS}?system=orders&uid=bob",
    f"{USERS}?system=orders&uid=bob&post={{aside}}",
    f"{USERS}?system=orders&uid=ann&show=followers", f"{USERS}?system=nothing&uid=a%20b",
    f"{USERS}?system=orders&uid={{long}}", f"{EVENTS}scheduler/",
    "/console/statistics?flow=feed&period=7d&step=day",
)  # fmt: skip
# Cells of a list whose text is not seen whole.
CUT = """[...document.querySelectorAll("#result_list .data-row > *")].filter(cell =>
    cell.scrollHeight > cell.clientHeight + 1 || cell.scrollWidth > cell.clientWidth + 1
).map(cell => cell.className.split(" ")[0])"""
# On a wide screen the whole row of a list is seen without scrolling.
SCROLLS = """[...document.querySelectorAll("#result_list")].map(list =>
    list.scrollWidth - list.closest("[class*=overflow], form").clientWidth).filter(n => n > 1)"""


def running(*programs: str) -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="mp-feed-"))
    with Cluster(folder, f"sqlite:///{folder / 'platform.db'}", (WEB, *programs)) as cluster:
        cluster.script(ADMIN)
        yield cluster
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def platform() -> Iterator[Cluster]:
    """With a dispatcher."""
    yield from running("run_feed_dispatcher")


@pytest.fixture(scope="module")
def operator(platform: Cluster, browser: Browser) -> StorageState:
    return sign_in(browser, platform.base_url, "admin")


@pytest.fixture
def page(operator: StorageState, browser: Browser) -> Iterator[Page]:
    with signed_in_page(browser, operator, set()) as tab:
        yield tab


def console(platform: Cluster, path: str) -> str:
    return f"{platform.base_url}/admin/feed/{path}"


def test_what_failed_is_read_replayed_and_arrives(page: Page, platform: Cluster) -> None:
    platform.stop("run_feed_dispatcher")
    first, second = platform.script(FAILED)
    platform.start("run_feed_dispatcher")

    def state(post: str) -> Any:
        return platform.script(STATE.format(post=post))

    page.goto(console(platform, "eventqueue/"))
    page.locator("a.mark.bad").click()  # the bar says that there are some
    expect(page.locator("#result_list .data-row")).to_have_count(2)
    row(page, first).locator(".field-id_text a").click()
    expect(page.locator(".notice.bad")).to_have_text("ValueError: this one cannot be written")
    page.click("button:text-is('Replay')")
    page.click("button:text-is('Yes, replay')")
    expect(page.get_by_text("1 event waits again.")).to_be_visible()
    platform.wait_until(lambda: state(first) == [HANDLED, ["ann", "bob"]], "the replayed event")
    assert state(second) == [SET_ASIDE, ["ann"]]
    page.reload()
    expect(page.locator(".mark.good")).to_have_text("handled")

    # The other one from the list, with a look back first.
    page.goto(console(platform, "eventqueue/?status__exact=3"))
    page.locator("#result_list .data-row input[type=checkbox]").first.check()
    page.select_option("[name=action]", "replay")
    page.locator("button[name=index]:visible").click()
    expect(page.locator(".names")).to_contain_text(second)
    page.click("text=No, go back")
    assert state(second) == [SET_ASIDE, ["ann"]]
    page.goto(console(platform, "eventqueue/?status__exact=3"))
    page.locator("#result_list .data-row input[type=checkbox]").first.check()
    page.select_option("[name=action]", "replay")
    page.locator("button[name=index]:visible").click()
    page.click("button:text-is('Yes, replay')")
    platform.wait_until(lambda: state(second) == [HANDLED, ["ann", "bob"]], "the other one")


def test_why_a_post_is_missing_and_then_there(page: Page, platform: Cluster) -> None:
    post = platform.script(POSTED)
    page.goto(platform.base_url + "/console/")
    page.locator("a[href='/admin/feed/eventqueue/users/']").click()
    page.fill("[name=system]", "vilage")
    page.fill("[name=uid]", "fan")
    page.click("button:text-is('Show')")
    expect(page.locator("em")).to_have_text("There is no system named vilage.")
    page.fill("[name=system]", "village")
    page.click("button:text-is('Show')")
    expect(page.get_by_text("The timeline is empty")).to_be_visible()

    def ask() -> None:
        page.fill("[name=post]", post)
        page.click("button:text-is('Why?')")

    ask()
    expect(page.locator(".answer")).to_contain_text("The user does not see this post.")
    expect(page.locator(".answer")).to_contain_text("does not follow them")
    platform.script(FOLLOW)
    ask()
    expect(page.locator(".answer")).to_contain_text("The user sees this post.")
    expect(page.locator(".answer")).to_contain_text("The user follows the author")
    expect(page.locator(".posts li")).to_have_count(1)
    expect(page.locator(".posts")).to_contain_text("Good evening")
    page.locator(".posts b a").click()  # the author
    page.get_by_role("link", name="Followers", exact=True).click()
    expect(page.locator("tbody")).to_contain_text("fan")


def test_the_schedulers_decision_and_its_chart(page: Page, platform: Cluster) -> None:
    platform.wait_until(lambda: platform.script(RECORDED) > 0, "what the scheduler writes down")
    page.goto(console(platform, "eventqueue/scheduler/"))
    expect(page.locator("#live-now .notice")).to_contain_text("Dispatchers")
    expect(page.locator(".figures").first).to_contain_text("feed_dispatcher:")
    chart = page.locator(".card").filter(has=page.get_by_role("heading", name="Load", exact=True))
    expect(chart.locator("canvas")).to_have_attribute("aria-label", re.compile("highest"))
    page.click("text=24 hours")
    expect(page.locator("nav.tabs .on")).to_have_text("24 hours")
    expect(chart.locator("canvas")).to_have_attribute("aria-label", re.compile("highest"))


@pytest.fixture(scope="module")
def shown() -> Iterator[tuple[Cluster, dict[str, str]]]:
    """A web server alone, with one of everything."""
    for cluster in running():
        yield cluster, {**cluster.script(ROWS), "long": "u" * 64}


@pytest.fixture(scope="module")
def viewer(shown: tuple[Cluster, dict[str, str]], browser: Browser) -> StorageState:
    return sign_in(browser, shown[0].base_url, "admin")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_page_fits(
    browser: Browser, shown: tuple[Cluster, dict[str, str]], viewer: StorageState, dark: bool
) -> None:
    platform, made = shown
    wrong: dict[str, Any] = {}
    asked: set[str] = set()
    with signed_in_page(browser, viewer, set()) as page:
        page.on("request", lambda request: asked.add(request.url))
        page.emulate_media(color_scheme="dark" if dark else "light")
        for width in (390, 1300):
            page.set_viewport_size({"width": width, "height": 844})
            for address in PAGES:
                page.goto(platform.base_url + address.format(**made))
                page.wait_for_load_state("load")
                expect(page.locator("#content, #content-main, .console").first).to_be_visible()
                wide = page.evaluate("document.documentElement.scrollWidth")
                cut = page.evaluate(CUT if width == 390 else SCROLLS)
                if wide > width or cut:
                    wrong[f"{address} at {width}"] = wide, cut
    assert wrong == {}
    elsewhere = {u for u in asked if not u.startswith((platform.base_url, "data:", "blob:"))}
    assert elsewhere == set()
