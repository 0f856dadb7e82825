"""What was lost overnight is put right: seen on every page, sent again, or acknowledged."""

import re

import pytest
from playwright.sync_api import Page, expect

from demo.notify.traffic import publish_all
from demo.sink_process import SinkProcess
from msgplatform.core.servers.private_server import free_port
from tests.cluster import Cluster

# Two consumers that refuse: nothing listens at their addresses.
ROWS = """
import json
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
from notify.models import BizReceive, Receive
biz = Biz.objects.create(name="night-shop", title="Night shop")
rows = []
for name, port in (("till", {port}), ("closed", 1)):
    receive = Receive.objects.create(name=f"night-{{name}}", url=f"http://127.0.0.1:{{port}}/hook")
    rows.append(BizReceive.objects.create(biz=biz, receive=receive, schedule=[]).pk)
key = keys.create(biz, "night", ["events:write", "events:read"])[1]
print(json.dumps([key, *rows]))
"""
EXHAUST = """
from notify.models import ReceiveMsg
print(ReceiveMsg.objects.filter(biz_receive_id__in={rows}, status=4).count())
"""
RUN_JOBS = """
from msgplatform.jobs.bulk import BulkRunner
runner = BulkRunner()
while runner.turn():
    pass
print("null")
"""


@pytest.mark.usefixtures("notify")
def test_what_was_lost_overnight_is_put_right(page: Page, platform: Cluster) -> None:
    seen, port = platform.folder / "night.seen", free_port()
    key, till, closed = platform.script(ROWS.format(port=port))
    accepted = publish_all(platform.base_url, {"night-shop": key}, 3, connections=1)

    def are_exhausted() -> bool:
        return bool(platform.script(EXHAUST.format(rows=[till, closed])) == 6)

    platform.wait_until(are_exhausted, "the exhausted deliveries")

    # Every page says so; the page Failures says where, how many and why.
    page.goto(f"{platform.base_url}/console/")
    entry = page.locator("#nav-sidebar").get_by_role("link", name=re.compile("Failures"))
    expect(entry).to_contain_text(re.compile(r"\d"))
    groups = re.compile(r"^Messages were given up: \d")
    expect(page.locator("a", has_text=groups)).to_be_visible()
    entry.click()
    at_till = page.locator(".failures li", has_text="night-till")
    expect(at_till.locator(".number")).to_contain_text("3 messages")
    expect(at_till.locator(".mark")).to_have_text("connect")
    page.set_viewport_size({"width": 390, "height": 844})
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 390, f"it scrolls sideways: {wide} px"
    page.set_viewport_size({"width": 1300, "height": 900})

    # The consumer is back: it stays listed until they were sent again, which the preview counts.
    with SinkProcess(seen, [], port=port) as sink:
        at_till.get_by_role("link", name="Send again…").click()
        expect(page.locator("form b")).to_have_text("3")
        page.click("button:text-is('Start')")
        expect(page.locator("body")).to_contain_text("Bulk job started")
        platform.script(RUN_JOBS)
        arrived = {one.id for one in accepted}
        platform.wait_until(lambda: sink.ids() == arrived, "what was sent again")
    page.goto(f"{platform.base_url}/console/failures")
    expect(page.locator(".failures")).not_to_contain_text("night-till")

    # The other one is left at that, with a note that stays.
    at_closed = page.locator(".failures li", has_text="night-closed")
    at_closed.locator("summary").click()
    at_closed.locator("[name=note]").fill("The shop has closed for good")
    at_closed.get_by_role("button", name="Acknowledge").click()
    expect(page.locator("body")).to_contain_text("3 messages acknowledged")
    expect(page.locator(".failures", has_text="night-closed")).to_have_count(0)
    expect(page.locator("td", has_text="The shop has closed for good")).to_be_visible()
