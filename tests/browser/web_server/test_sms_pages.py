"""The console's SMS pages in hard times: small, dark, long names, forbidden, without Redis."""

import pytest
from playwright.sync_api import StorageState, expect

from tests.browser.pages import row
from tests.browser.tabs import Tab, sign_in
from tests.browser.walk import Walk
from tests.browser.web_server.conftest import Ids
from tests.flows.sms_cluster import SmsCluster
from tests.support.console_rows import NUMBER, PASSWORDS
from tests.support.long_texts import LONG_NAME, LONG_SLUG, LONG_TEXT

PATHS = (
    "/console/",
    "/console/search?q={number}",
    "/console/search/sms",
    "/console/search/sms?number={number}",
    "/console/search/sms?reference=nothing-like-it",
    "/console/search/sms?state=wrong&id=x&since=never&account=nobody&biz=nobody",
    "/console/bulk/sms?action=resend&count=1&since=2026-01-01",
    "/console/sms/{mt}",
    "/admin/gateway/smsgateway/",
    "/admin/gateway/smsgateway/add/",
    "/admin/gateway/smsgateway/{gateway}/change/",
    "/admin/gateway/smsaccount/",
    "/admin/gateway/smsaccount/{account}/change/",
    "/admin/gateway/smsaccount/test/",
    "/console/statistics?flow=sms&period=7d",
    "/console/statistics?flow=sms&gateway={gateway}&account={account}",
    "/admin/gateway/sgipmo/",
    "/admin/gateway/sgipmo/{mo}/change/",
    "/admin/gateway/sgipreport/?matched=no",
    "/admin/gateway/sgipreport/{report}/change/",
    "/admin/gateway/sgipuserrpt/",
    "/admin/gateway/sgipuserrpt/{user}/change/",
)


@pytest.fixture(scope="module")
def sms(ids: Ids) -> dict[str, str]:
    """The ids of the rows with long names, and the number, as addresses have them."""
    return {**ids["sms"], "number": NUMBER[2:]}


@pytest.fixture(scope="module")
def paths(sms: dict[str, str]) -> list[str]:
    return [path.format(**sms) for path in PATHS]


@pytest.fixture(scope="module")
def walk(platform: SmsCluster, tab: Tab, admin: StorageState, paths: list[str]) -> Walk:
    with tab.of(admin) as page:
        return Walk(platform.base_url).visit(page, paths)


def console(platform: SmsCluster, path: str) -> str:
    return f"{platform.base_url}/admin/gateway/{path}"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_fits_a_phone(walk: Walk, theme: str) -> None:
    assert walk.misfits[theme] == {}


def test_who_sees_what(
    tab: Tab, platform: SmsCluster, admin: StorageState, sms: dict[str, str], walk: Walk,
    paths: list[str],
) -> None:  # fmt: skip
    content = (LONG_TEXT[:20], NUMBER)
    lookup = "/admin/gateway/smsgateway/?login_password__startswith=hush"
    for name in ("guest", "gateway-viewer"):
        with tab.of(sign_in(platform.base_url, name), {400, 403}) as page:
            for path in (*paths, lookup):
                page.goto(platform.base_url + path)
                html = page.content()
                for words in (*PASSWORDS, *content):
                    assert words not in html, f"a {name} sees {words} at {path}"
            if name == "gateway-viewer":
                page.goto(console(platform, f"smsgateway/{sms['gateway']}/change/"))
                expect(page.locator("#content-main")).to_contain_text("a-very-long-name")
                expect(page.locator("[name=_save]")).to_have_count(0)
    with tab.of(admin, {400}) as page:
        page.goto(platform.base_url + lookup)
        seen_by_admin = {**walk.html, lookup: page.content()}
    assert len(seen_by_admin) == len(paths) + 1
    for path, html in seen_by_admin.items():
        for words in PASSWORDS:
            assert words not in html, f"{words} at {path}"


def test_unmatched_reports_and_alerts(
    tab: Tab, platform: SmsCluster, admin: StorageState, sms: dict[str, str]
) -> None:
    with tab.of(admin) as page:
        page.goto(console(platform, "sgipreport/"))
        page.click("text=Filters")
        page.select_option("#changelist-filter select[name=matched]", label="matched nothing")
        page.click("text=Apply Filters")
        stranger = row(page, "3010099999:1121131500:4711")
        expect(stranger.locator(".field-message")).to_have_text("matched nothing")
        expect(stranger.locator(".field-state_mark")).to_have_text("failed")
        expect(stranger.locator(".field-meaning")).to_have_text("200 a code of the gateway's own")
        page.goto(platform.base_url + "/console/")
        page.click(f"text=Message {sms['mt']} cannot be archived")
        expect(page.locator(".console")).to_contain_text("sms.archive")


def test_without_redis(
    tab: Tab, platform: SmsCluster, admin: StorageState, sms: dict[str, str]
) -> None:
    """What the database knows is shown, with a sentence about the rest."""
    platform.sms_server.kill()
    with tab.of(admin, {503}) as page:
        page.goto(console(platform, "smsgateway/"))
        expect(page.get_by_text("The SMS Redis does not answer")).to_be_visible()
        expect(row(page, LONG_SLUG).locator(".field-up")).to_have_text("unknown")
        page.goto(f"{platform.base_url}/console/search/sms?number={sms['number']}")
        expect(page.get_by_text("only the archive was searched")).to_be_visible()
        expect(page.locator("#found-sms tbody tr", has_text=sms["mt"])).to_be_visible()
        page.goto(f"{platform.base_url}/console/sms/{sms['mt']}")
        expect(page.locator("#content > pre")).to_have_text(LONG_TEXT)
        page.goto(f"{platform.base_url}/console/sms/{int(sms['mt']) + 2**20}")
        expect(page.locator(".notice")).to_contain_text("The SMS Redis does not answer")
        page.goto(f"{platform.base_url}/console/search?q={sms['number']}")
        expect(page.locator(".console")).to_contain_text("The SMS Redis does not answer")
        expect(page.locator(".console td a")).to_have_count(1)
        page.goto(platform.base_url + "/console/")
        expect(page.locator(".card", has_text="SMS").locator(".notice.bad")).not_to_be_empty()
        page.goto(f"{platform.base_url}/console/sms/{sms['mt']}")
        page.click("summary:has-text('Send again')")
        page.click("button:text-is('Yes, send it again')")
        expect(page.get_by_text("It was not sent again")).to_be_visible()
        expect(page.locator(".figures").first).to_contain_text(LONG_NAME)
    platform.sms_server.start()
