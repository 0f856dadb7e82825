"""From a text in somebody's complaint to the messages of a lost night that have arrived."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, StorageState, expect

from demo.sink_process import SinkProcess
from tests.browser.conftest import PASSWORD
from tests.browser.tabs import page_of_its_own
from tests.cluster import Cluster

TEXT = "RB123456785CN"
# A consumer that was down for a night: its deliveries are exhausted.
ROWS = """
import json
from django.db.models.functions import Now
from msgplatform.models import Biz
from notify.intake import intake
from notify.models import BizReceive, Receive
biz = Biz.objects.create(name="parcels", title="Parcels 包裹")
receive = Receive.objects.create(name="depot", url="{url}")
paused = BizReceive.Status.PAUSED
row = BizReceive.objects.create(biz=biz, receive=receive, schedule=[], status=paused)
texts = [b'{{"parcel":"{text}"}}', *[b'{{"parcel":"other"}}'] * 6]
events = [intake.Event(biz.pk, "parcel.lost", text) for text in texts]
print(json.dumps([row.pk, [str(verdict.id) for verdict in intake.publish_many(events)]]))
"""
EXHAUST = """
import json
from notify.models import ReceiveMsg
rows = ReceiveMsg.objects.filter(biz_receive_id={pk}, status=ReceiveMsg.Status.HELD)
print(json.dumps(rows.update(status=ReceiveMsg.Status.EXHAUSTED, error="timeout")))
"""
REPAIR = """
import json
from notify.models import BizReceive
print(json.dumps(BizReceive.objects.filter(id={pk}).update(status=BizReceive.Status.NORMAL)))
"""
# `run_bulk` itself is not started: another test wants it to be missing.
RUN = """
import json
from msgplatform.jobs.bulk import BulkRunner
runner = BulkRunner()
while runner.turn():
    pass
print(json.dumps(True))
"""
# Nothing would be left of it to run.
PAUSED = """
import json
from msgplatform.jobs.models import BulkJob
job = BulkJob.objects.create(flow="notify", filter={}, state="paused", created_by="admin")
print(json.dumps(job.pk))
"""
CANCELLED = """
import json
from msgplatform.jobs.models import BulkJob
print(json.dumps(BulkJob.objects.filter(id={pk}).update(state="cancelled")))
"""


@pytest.fixture
def night(platform: Cluster, notify: None) -> Iterator[tuple[SinkProcess, list[str]]]:
    """The consumer, which is back, and the ids of what it did not get."""
    with SinkProcess(platform.folder / "depot.seen", []) as sink:
        pk, ids = platform.script(ROWS.format(url=sink.url, text=TEXT))
        exhausted: list[Any] = []

        def are_all_exhausted() -> bool:
            exhausted.append(platform.script(EXHAUST.format(pk=pk)))
            return sum(exhausted) == len(ids)

        platform.wait_until(are_all_exhausted, "the deliveries")
        platform.script(REPAIR.format(pk=pk))
        yield sink, ids


def test_a_lost_night_is_found_and_repaired(
    page: Page, platform: Cluster, night: tuple[SinkProcess, list[str]]
) -> None:
    sink, ids = night
    _find_by_text(page, platform, ids[0])
    _choose(page, platform)
    page.locator("button:text-is('Start')").dblclick()
    expect(page).to_have_url(re.compile(r"/console/bulk/jobs/\d+"))
    expect(page.locator("#job")).to_have_attribute("data-state", "pending")
    page.click("button:text-is('Pause')")
    expect(page.locator("#job")).to_have_attribute("data-state", "paused")
    page.click("button:text-is('Resume')")
    expect(page.locator("#job")).to_have_attribute("data-state", "pending")
    # From here on nothing is clicked: the page follows.
    platform.script(RUN)
    expect(page.locator("#job")).to_have_attribute("data-state", "done")
    platform.wait_until(lambda: sink.ids() == set(ids), "the deliveries")
    platform.wait_until(
        lambda: platform.script(RUN) and page.locator("[data-arrived]").inner_text() == "7",
        "the outcome on the page",
    )
    expect(page.locator("[data-waiting]")).to_have_text("0")
    expect(page.locator("[data-live-button]")).to_be_hidden()
    assert len(sink.lines()) == 7, "each once: one job, and not two"


def test_a_job_is_watched_across_the_end_of_a_session(
    platform: Cluster, browser: Browser, signed_in: StorageState
) -> None:
    """The keyboard stays where it is; once the session has ended the page asks no more, and leads
    to the login in another tab."""
    pk = platform.script(PAUSED)
    address = f"{platform.base_url}/console/bulk/jobs/{pk}"
    asked: list[str] = []
    with page_of_its_own(browser, signed_in, {401}) as page:
        page.on("request", lambda request: "live=1" in request.url and asked.append(request.url))
        page.clock.install()
        page.goto(address)
        page.locator("#cancel").focus()
        page.clock.run_for(3_000)
        expect(page.locator("#cancel")).to_be_focused()
        page.context.clear_cookies(name="sessionid")
        page.clock.run_for(3_000)
        expect(page.get_by_role("alert")).to_contain_text("Your session has ended.")
        expect(page.locator("[data-live-button]")).to_be_hidden()
        expect(page.locator("#job")).to_have_attribute("data-state", "paused")
        before = len(asked)
        page.clock.run_for(60_000)
        assert len(asked) == before
        with page.expect_popup() as popup:
            page.get_by_role("alert").get_by_role("link").click()
        other = popup.value
        other.fill("[name=username]", "admin")
        other.fill("[name=password]", PASSWORD)
        other.click("[type=submit]")
        other.wait_for_url(address)
        platform.script(CANCELLED.format(pk=pk))
        other.clock.run_for(3_000)
        expect(other.locator("#job")).to_have_attribute("data-state", "cancelled")


def _find_by_text(page: Page, platform: Cluster, id: str) -> None:
    for width in (390, 1300):
        page.set_viewport_size({"width": width, "height": 844})
        page.goto(f"{platform.base_url}/admin/notify/bizreceive/")
        page.keyboard.press("/")
        expect(page.get_by_label("Find a message")).to_be_focused()
        page.keyboard.type(TEXT)
        page.keyboard.press("Enter")
        expect(page.locator(f"[data-key='notify-{id}']")).to_be_visible()
        expect(page.locator("[data-nothing]")).to_be_hidden()
        lanes = page.locator("[data-range]")
        for lane in lanes.all():
            expect(lane).to_contain_text("all searched")
        assert lanes.count() == 4
        expect(page.locator("[role=status][data-outcome]")).to_have_text(
            re.compile(r"Messages found: [1-9]\d*\. All was searched\.")
        )
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.click(f"[data-key='notify-{id}'] a")
    expect(page.locator("#content > pre")).to_contain_text(TEXT)


def _choose(page: Page, platform: Cluster) -> None:
    """A filter without a name that nobody knows: offered, or picked."""
    page.goto(f"{platform.base_url}/console/bulk/notify")
    page.locator("[name=subscription]").press_sequentially("depo")
    offered = page.locator("datalist option[value='parcels/depot']")
    expect(offered).to_have_attribute("label", re.compile("Parcels 包裹 → depot"))
    page.fill("[name=subscription]", "parcels/depot")
    page.select_option("[name=status]", label="exhausted")
    page.click("button:text-is('Last hour')")
    expect(page.locator("[name=since]")).not_to_have_value("")
    page.click("button:text-is('Preview')")
    preview = page.locator("#preview")
    expect(preview).to_contain_text("7 match.")
    expect(preview).to_contain_text("Parcels 包裹 → depot · parcel.lost")
    page.click("summary:text-is('Save this filter')")
    page.fill("#filter-name", "lost nights")
    page.click("button:text-is('Save')")
    page.click(".saved a:text-is('lost nights')")
    expect(page.locator("[name=subscription]")).to_have_value("parcels/depot")
    page.click("button[aria-label='Delete the filter lost nights']")
    expect(page.locator(".saved")).to_have_count(0)
    page.fill("[name=subscription]", "parcels/depot")
    page.click("button:text-is('Preview')")
    expect(page.locator("#preview")).to_contain_text("7 match.")


MANY = """
import json
from msgplatform.models import Biz
from notify.intake import intake
biz, _ = Biz.objects.get_or_create(name="many-parcels")
events = [intake.Event(biz.pk, "parcel.moved", b'{{"word":"{word}"}}')] * 300
print(json.dumps(len(intake.publish_many(events))))
"""


def test_a_word_of_very_many_messages_stops_by_itself(page: Page, platform: Cluster) -> None:
    """A browser with thousands of rows would hardly move."""
    assert platform.script(MANY.format(word="everywhere-7")) == 300
    page.goto(f"{platform.base_url}/console/search?q=everywhere-7")
    go_on = page.get_by_role("button", name="Go on")
    expect(go_on).to_be_visible()
    expect(page.locator("[data-flow=notify]")).to_contain_text("Very many match")
    rows = page.locator("#found-notify tbody tr")
    assert 200 <= rows.count() < 300
    outcome = page.locator("[role=status][data-outcome]")
    expect(outcome).to_have_text(f"Messages found: {rows.count()}. Not all was searched.")
    go_on.click()
    expect(rows).to_have_count(300)
    expect(page.locator("[data-flow=notify]")).to_contain_text("all searched")
    expect(outcome).to_have_text("Messages found: 300. All was searched.")
