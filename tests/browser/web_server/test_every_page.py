"""Every page of the console: accessible to everybody, on a telephone and at night as well.

Also what each person chooses for themselves, and what a page does when its session ends.
"""

import re

import pytest
from playwright.sync_api import Browser, Page, StorageState, ViewportSize, expect

from tests.browser.conftest import PASSWORD
from tests.browser.pages import LOOK, wrong_with
from tests.browser.tabs import NOBODY, Tab, page_of_its_own, sign_in
from tests.cluster import Cluster

# Beside what the side bar leads to: pages of one row, forms, pages with errors.
BESIDE = (
    "/console/search?q=8613800000123",
    "/console/search/sms?since=never",
    "/console/preferences",
    "/admin/",
    "/admin/password_change/",
    "/admin/msgplatform/biz/?q=nothing-like-it",
    "/admin/notify/bizreceive/add/",
    "/admin/msgplatform/alertchannel/add/",
    "/admin/msgplatform/apikey/add/",
    "/console/search/notify?status=exhausted",
    "/admin/auth/user/add/",
    "/clients/",
)
# Swagger UI: parts of it are not for everybody.
FOREIGN = ("/api/docs/",)
SIDE_BAR = "#nav-sidebar a[href^='/']"
# The first page is judged with the whole side bar, others with its entry that stands for the page.
SEEN_BEFORE = ["#nav-sidebar a:not(.active)"]
FIRST_ROW = "#result_list .data-row a[href^='/'], .console td a[href^='/console/']"


@pytest.fixture(scope="module")
def administrator(platform: Cluster) -> StorageState:
    return sign_in(platform.base_url, "administrator")


def addresses(page: Page, selector: str) -> list[str]:
    found = page.eval_on_selector_all(selector, "links => links.map(l => l.getAttribute('href'))")
    return list(dict.fromkeys(found))


def test_every_page_is_for_everybody(
    platform: Cluster, tab: Tab, administrator: StorageState
) -> None:
    """A desk by day and a telephone by night; a page by both."""
    wrong: dict[str, list[str]] = {}
    with tab.of(administrator) as page:
        page.goto(f"{platform.base_url}/console/")
        waiting = [*BESIDE, *addresses(page, SIDE_BAR)]
        assert len(waiting) > 25
        seen: set[str] = set()
        for address in waiting:
            if address in seen or address.startswith(FOREIGN):
                continue
            page.emulate_media(color_scheme="light")
            page.set_viewport_size({"width": 1280, "height": 900})
            page.goto(platform.base_url + address)
            seen_before = SEEN_BEFORE if seen else ()
            landed = page.url.removeprefix(platform.base_url)
            if landed in seen:
                continue  # two addresses of a page
            seen |= {address, landed}
            by_day = wrong_with(page, seen_before)
            if address in addresses(page, SIDE_BAR):
                waiting += addresses(page, FIRST_ROW)[:1]
            page.set_viewport_size({"width": 390, "height": 844})
            page.evaluate("document.documentElement.classList.add('dark')")
            by_night = wrong_with(page, seen_before, LOOK)
            if found := by_day + [f"dark: {each}" for each in by_night]:
                wrong[address] = found
    lines = [f"{address}  {each}" for address, each_of in wrong.items() for each in each_of]
    assert not lines, f"{len(seen)} pages, {len(lines)} faults:\n" + "\n".join(lines)


def test_forms_ask_for_what_was_chosen(
    platform: Cluster, tab: Tab, administrator: StorageState
) -> None:
    with tab.of(administrator) as page:
        page.goto(f"{platform.base_url}/admin/msgplatform/alertchannel/add/")
        expect(page.get_by_label("Secret")).to_be_visible()
        page.select_option("[name=url_kind]", label="WeCom")
        expect(page.get_by_label("Webhook")).to_have_attribute("placeholder", re.compile("qyapi"))
        expect(page.locator("[name=url_second]")).to_be_hidden()
        page.goto(f"{platform.base_url}/admin/msgplatform/apikey/add/")
        management = page.locator("[name=scopes][value='manage:systems']")
        management.check()
        page.select_option("select[name=biz]", index=1)
        expect(management).to_be_hidden()
        page.click("button:has-text('SMS: write and read')")
        ticked = page.locator("[name=scopes]:checked")
        assert [box.get_attribute("value") for box in ticked.all()] == ["sms:write", "sms:read"]
        page.goto(f"{platform.base_url}/console/search/notify?status=exhausted")
        assert page.locator("#found-notify").bounding_box()["y"] < 320  # type: ignore[index]
        expect(page.locator("[name=status]")).to_be_hidden()


def test_the_login_is_for_everybody(platform: Cluster, tab: Tab) -> None:
    with tab.of(NOBODY) as page:
        page.set_viewport_size({"width": 390, "height": 844})
        page.goto(f"{platform.base_url}/admin/login/")
        page.fill("[name=username]", "nobody")
        page.fill("[name=password]", "wrong")
        page.click("[type=submit]")
        found = wrong_with(page)
        page.evaluate("document.documentElement.classList.add('dark')")
        found += wrong_with(page, rules=LOOK)
    assert found == []


def test_a_person_chooses_and_comes_back(platform: Cluster, tab: Tab) -> None:
    """A zone and a language; then the session ends, while a page is open and while a form is
    sent."""
    with tab.of(sign_in(platform.base_url, "operator"), {401}) as page:
        page.goto(f"{platform.base_url}/console/")
        page.locator("#nav-sidebar [x-data*=openUserLinks] > .cursor-pointer").click()
        page.get_by_role("link", name="Preferences").click()
        page.select_option("[name=time_zone]", "Asia/Shanghai")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_text("Your preferences are saved.")).to_be_visible()
        expect(page.locator(".zone-of-page")).to_have_text("Asia/Shanghai, UTC+8")
        page.select_option("[name=language]", "zh-hans")
        page.get_by_role("button", name="Save").click()
        expect(page.locator("html")).to_have_attribute("lang", "zh-hans")
        box = page.locator(".simplebar-content-wrapper").first
        expect(box).to_have_attribute("aria-label", re.compile(r"^[^A-Za-z]+ \d+$"))
        page.select_option("[name=language]", "en")
        page.locator("button.primary").click()
        expect(page.locator("html")).to_have_attribute("lang", "en")
        page.select_option("[name=time_zone]", "UTC")
        page.context.clear_cookies(name="sessionid")
        page.evaluate("fetch('/console/preferences')")
        alert = page.get_by_role("alert")
        expect(alert).to_contain_text("Your session has ended.")
        with page.expect_popup() as popup:
            alert.get_by_role("link").click()
        log_in(popup.value)
        popup.value.close()
        # The page stayed as it was, and its form is sent with the token of the new session.
        expect(alert).to_have_count(0)
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_text("Your preferences are saved.")).to_be_visible()
        expect(page.locator(".zone-of-page")).to_have_text("UTC")
        page.select_option("[name=time_zone]", "Asia/Shanghai")
        page.context.clear_cookies(name="sessionid")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_text("nothing was done")).to_be_visible()
        log_in(page)
        expect(page.locator("[name=time_zone]")).to_have_value("UTC")


def log_in(page: Page) -> None:
    page.fill("[name=username]", "operator")
    page.fill("[name=password]", PASSWORD)
    page.click("[type=submit]")
    page.wait_for_url("**/console/preferences")


def test_a_search_goes_on_after_a_server_was_away(
    platform: Cluster, tab: Tab, administrator: StorageState
) -> None:
    with tab.of(administrator, {503}) as page:
        away = {"problem": "A server does not answer at present."}
        page.route("**/console/texts/notify?*", lambda route: route.fulfill(status=503, json=away),
                   times=1)  # fmt: skip
        page.goto(f"{platform.base_url}/console/search?q=no-such-text")
        notify = page.locator("[data-flow=notify]")
        expect(notify).to_contain_text(away["problem"])
        page.get_by_role("button", name="Go on").click()
        expect(notify).to_contain_text("all searched")


ERASURE = """
import json
from msgplatform.company.person_data.models import Erasure
from msgplatform.core.data import sql
rows = Erasure.objects.filter(key="watched")
if not rows.update(passes=2):
    Erasure.objects.create(key="watched", created_at=sql.now(), created_by="x", reason="x")
print(json.dumps(True))
"""
END = """
import json
from msgplatform.company.person_data.models import Erasure
print(json.dumps(Erasure.objects.filter(key="watched").delete()[0]))
"""


def test_the_keyboard_stays_on_a_button_of_a_part_that_is_renewed(
    platform: Cluster, browser: Browser, administrator: StorageState
) -> None:
    """A button without an id, beside another one."""
    platform.script(ERASURE)
    with page_of_its_own(browser, administrator) as page:
        page.clock.install()
        page.goto(f"{platform.base_url}/console/person-data/erasures/watched")
        page.locator("[name=cancel]").focus()
        platform.script(ERASURE)
        page.clock.run_for(4_000)
        expect(page.locator("#live-erasure dl")).to_contain_text("2")
        expect(page.locator("[name=cancel]")).to_be_focused()
    platform.script(END)


def test_the_api_docs_are_used(platform: Cluster, browser: Browser) -> None:
    """By somebody who is not signed in, at night, on a telephone."""
    wrong: list[str] = []
    foreign: list[str] = []
    size: ViewportSize = {"width": 390, "height": 844}
    with browser.new_context(viewport=size, color_scheme="dark") as context:
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda one: foreign.append(one.url))
        page.goto(f"{platform.base_url}/api/docs/")
        page.fill("#api-filter", "publish CloudEvent")
        expect(page.locator("#api-number")).to_contain_text("1 ")
        expect(page.locator(".opblock")).to_have_count(1)
        page.locator("#operations-events-messages_create .opblock-summary-control").click()
        operation = page.locator("#operations-events-messages_create")
        tabs = operation.locator(".sample-tab")
        expect(tabs).to_have_text(["curl", "Python", "TypeScript"])
        sample = operation.locator("pre.sample")
        expect(sample).to_contain_text(f"curl -X POST {platform.base_url}/api/v1/")
        tabs.nth(1).click()
        expect(sample).to_contain_text("from msgplatform_client import Client")
        # The choice, the theme and the address stay.
        page.reload()
        expect(sample).to_contain_text("from msgplatform_client import Client")
        assert page.evaluate("document.documentElement.classList.contains('dark-mode')")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.fill("#api-filter", "no such operation")
        expect(page.locator(".opblock")).to_have_count(0)
        page.click("[data-group=sms]")
        expect(page.locator("#operations-tag-sms")).to_be_in_viewport()
        page.get_by_role("link", name="To the console").click()
        page.wait_for_url("**/admin/login/**")
    assert wrong == []
    assert [url for url in foreign if not url.startswith((platform.base_url, "data:"))] == []
