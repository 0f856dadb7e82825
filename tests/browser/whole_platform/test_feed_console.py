"""Feed's console as an operator uses it, in a real browser: what failed, what a user sees, pace."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.pages import row
from tests.browser.whole_platform.platform import Platform

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
SET_ASIDE, HANDLED = 3, 1


@pytest.fixture(scope="module")
def failed_posts(platform: Platform) -> list[str]:
    """The ids of two posts whose events failed, before a dispatcher can handle them."""
    posts: list[str] = platform.script(FAILED)
    return posts


@pytest.fixture(scope="module", autouse=True)
def dispatcher(platform: Platform, failed_posts: list[str]) -> Iterator[None]:
    with platform.running("run_feed_dispatcher"):
        yield


def console(platform: Platform, path: str) -> str:
    return f"{platform.base_url}/admin/feed/{path}"


def test_what_failed_is_read_replayed_and_arrives(
    page: Page, platform: Platform, failed_posts: list[str]
) -> None:
    first, second = failed_posts

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


def test_why_a_post_is_missing_and_then_there(page: Page, platform: Platform) -> None:
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


def test_the_schedulers_decision_and_its_chart(page: Page, platform: Platform) -> None:
    platform.wait_until(lambda: platform.script(RECORDED) > 0, "what the scheduler writes down")
    page.goto(console(platform, "eventqueue/scheduler/"))
    expect(page.locator("#live-now .notice")).to_contain_text("Dispatchers")
    expect(page.locator(".figures").first).to_contain_text("feed_dispatcher:")
    chart = page.locator(".card").filter(has=page.get_by_role("heading", name="Load", exact=True))
    expect(chart.locator("canvas")).to_have_attribute("aria-label", re.compile("highest"))
    page.click("text=24 hours")
    expect(page.locator("nav.tabs .on")).to_have_text("24 hours")
    expect(chart.locator("canvas")).to_have_attribute("aria-label", re.compile("highest"))
