"""Two people have a form open at once, in two browsers."""

import re

from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import PASSWORD
from tests.browser.tabs import page_of_its_own, sign_in
from tests.cluster import Cluster

MAKE = f"""
import json
from django.contrib.auth import get_user_model
from notify.models import Receive
get_user_model().objects.create_superuser("wang", password={PASSWORD!r})
row = Receive.objects.create(name="two-people", title="Warehouse", url="https://a.example/hooks")
print(json.dumps(row.pk))
"""
READ = """
import json
from notify.models import Receive
row = Receive.objects.get(name="two-people")
print(json.dumps([row.title, row.url]))
"""


def test_the_second_reads_what_the_first_has_changed(
    platform: Cluster, page: Page, browser: Browser
) -> None:
    consumer = platform.script(MAKE)
    address = f"{platform.base_url}/admin/notify/receive/{consumer}/change/"
    page.goto(address)
    with page_of_its_own(browser, sign_in(platform.base_url, "wang")) as wangs:
        wangs.goto(address)
        page.fill("[name=title]", "Warehouse north")
        page.click("[name=_save]")
        expect(page.get_by_text("was changed successfully")).to_be_visible()
        wangs.fill("[name=url]", "https://b.example/hooks")
        wangs.click("[name=_save]")
        told = wangs.locator("#differences")
        expect(told).to_contain_text("Changed meanwhile")
        expect(told).to_contain_text(
            re.compile(r"Title:\s+Warehouse → Warehouse north\s+\(admin, 20")
        )
        expect(wangs.locator("[name=url]")).to_have_value("https://b.example/hooks")
        assert platform.script(READ) == ["Warehouse north", "https://a.example/hooks"]
        expect(wangs.locator("[name=title]")).to_have_value("Warehouse north")
        wangs.click("[name=_save]")
        expect(wangs.get_by_text("was changed successfully")).to_be_visible()
    assert platform.script(READ) == ["Warehouse north", "https://b.example/hooks"]
