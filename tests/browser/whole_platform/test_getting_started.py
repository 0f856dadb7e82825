"""What a newcomer does before the first message, in a real browser."""

import re

from playwright.sync_api import Page, expect

from tests.cluster import Cluster


def test_the_list_leads_to_forms_and_shows_code(page: Page, platform: Cluster) -> None:
    """At desktop and at phone width."""
    page.goto(f"{platform.base_url}/console/getting-started")
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    code = page.locator("#notify pre.code").last
    expect(code).to_contain_text("def verify(")
    page.click("#notify a:text-is('PHP')")
    expect(code).to_contain_text("<?php")
    expect(page.locator("#notify .tabs .on")).to_have_text("PHP")
    expect(page.locator("#notify pre.code").first).to_contain_text(
        f"curl -X POST {platform.base_url}/api/v1/messages"
    )
    page.click("#crmsync a[aria-label='A CRM']")
    expect(page).to_have_url(re.compile(r"/admin/crmsync/crm/add/\?next="))
    page.click("a:has-text('Getting started'):visible")
    expect(page).to_have_url(re.compile("/console/getting-started$"))
