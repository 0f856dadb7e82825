"""The console's SMS pages in hard times: small, dark, long names, forbidden, without Redis."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, StorageState, expect

from tests.browser.pages import row, signed_in_page
from tests.browser.sms_platform import (
    LONG_NAME,
    LONG_SLUG,
    LONG_TEXT,
    SmsPlatform,
    console,
)
from tests.cluster import WEB

# One of everything, with whatever is long; passwords that no page may show.
ROWS = """
import json
from django.utils import timezone
from gateway.models import SgipMo, SgipMt, SgipReport, SgipUserRpt, SmsAccount, SmsGateway
from msgplatform.core import alerts
from msgplatform.core.data import ids
from msgplatform.models import DayCounter
now = timezone.now()
gateway = SmsGateway.objects.create(
    name={slug!r}, host="smg." + "a-very-long-name." * 8 + "example.com", corp_id="12345",
    login_name="sp", login_password="hush-ours", smg_login_name="smg",
    smg_login_password="hush-theirs")
account = SmsAccount.objects.get(name={slug!r})
number, text = "8613800000123", {text!r}
mt, mo, report, user = ids.reserve(4).ids([0] * 4)
SgipMt.objects.create(
    id=mt, biz_id=account.biz_id, account_id=account.pk, gateway_id=gateway.pk, user_number=number,
    sp_number="1065500312345678", corp_id="12345", fee_type=1, fee_value="0", given_value="0",
    agent_flag=0, morelateto_mt_flag=2, priority=0, report_flag=1, text=text, parts=15,
    message_coding=8, idempotency_key="k" * 128, reference="r" * 64, final="failed",
    error_code=25, accepted_at=now, submitted_at=now, responded_at=now, reported_at=now,
    archived_at=now)
SgipMo.objects.create(
    id=mo, biz_id=0, gateway_id=gateway.pk, user_number=number, sp_number="1" * 21, tp_pid=0,
    tp_udhi=0, message_coding=8, content=b"", text=text, parts=15, missing=2,
    sequence="3010099999:1121131500:1", received_at=now, archived_at=now)
SgipReport.objects.create(
    id=report, node=3010099999, ts=1121131500, seqno=4711, user_number=number, state=2,
    error_code=200, received_at=now, archived_at=now)
SgipUserRpt.objects.create(
    id=user, gateway_id=gateway.pk, sp_number="1" * 21, user_number=number, user_condition=1,
    sequence="3010099999:1121131500:2", received_at=now, archived_at=now)
for subject in (account.pk, -gateway.pk):
    for name in ("failed", "error 25", "error 200"):
        DayCounter.objects.create(day=timezone.localdate(), flow="sms", biz_id=account.biz_id,
                                  subject=subject, name=name, value=123456789)
alerts.raise_alert("sms.archive", "Message " + str(mt) + " cannot be archived", "why", key="test")
print(json.dumps({{"gateway": gateway.pk, "account": account.pk, "mt": mt, "mo": mo,
                   "report": report, "user": user}}))
"""
PAGES = (
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


# Cells of a list whose text is not seen whole.
CUT = """[...document.querySelectorAll("#result_list .data-row > *")].filter(cell =>
    cell.scrollHeight > cell.clientHeight + 1 || cell.scrollWidth > cell.clientWidth + 1
).map(cell => cell.className.split(" ")[0])"""


@pytest.fixture(scope="module")
def sms() -> Iterator[SmsPlatform]:
    """The web server alone: nothing is sent here."""
    folder = Path(tempfile.mkdtemp(prefix="mp-web-"))
    with SmsPlatform(folder, (WEB,)) as running:
        yield running
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def made(sms: SmsPlatform) -> dict[str, Any]:
    """The ids of the rows, as they stand in the addresses."""
    ids: dict[str, int] = sms.script(ROWS.format(slug=LONG_SLUG, text=LONG_TEXT))
    return {**ids, "number": "13800000123"}


@pytest.fixture(scope="module")
def admin(sms: SmsPlatform, made: dict[str, Any], browser: Browser) -> StorageState:
    return sms.sign_in(browser, "admin")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_page_fits_a_phone(
    browser: Browser, sms: SmsPlatform, admin: StorageState, made: dict[str, Any], dark: bool
) -> None:
    wrong: dict[str, Any] = {}
    with signed_in_page(browser, admin, set()) as page:
        page.emulate_media(color_scheme="dark" if dark else "light")
        page.set_viewport_size({"width": 390, "height": 844})
        for address in PAGES:
            page.goto(sms.base_url + address.format(**made))
            page.wait_for_load_state("networkidle")
            expect(page.locator("#content, #content-main, .console").first).to_be_visible()
            wide = page.evaluate("document.documentElement.scrollWidth")
            cut = page.evaluate(CUT)
            if wide > 390 or cut:
                wrong[address] = f"{wide} px", cut
    assert wrong == {}


def test_who_sees_what(
    browser: Browser, sms: SmsPlatform, admin: StorageState, made: dict[str, Any]
) -> None:
    hidden = ("hush-ours", "hush-theirs")
    content = (LONG_TEXT[:20], "8613800000123")
    lookup = "/admin/gateway/smsgateway/?login_password__startswith=hush"
    everything = [address.format(**made) for address in PAGES]
    with signed_in_page(browser, sms.sign_in(browser, "guest"), {403}) as page:
        for address in everything:
            page.goto(sms.base_url + address)
            for words in (*hidden, *content):
                assert words not in page.content(), f"a guest sees {words} at {address}"
    with signed_in_page(browser, sms.sign_in(browser, "viewer"), {400, 403}) as page:
        for address in (*everything, lookup):
            page.goto(sms.base_url + address)
            for words in (*hidden, *content):
                assert words not in page.content(), f"a viewer sees {words} at {address}"
        page.goto(console(sms, f"smsgateway/{made['gateway']}/change/"))
        expect(page.locator("#content-main")).to_contain_text("a-very-long-name")
        expect(page.locator("[name=_save]")).to_have_count(0)
    with signed_in_page(browser, admin, {400}) as page:
        for address in (*everything, lookup):
            page.goto(sms.base_url + address)
            for words in hidden:
                assert words not in page.content(), f"{words} at {address}"


def test_unmatched_reports_and_alerts(
    browser: Browser, sms: SmsPlatform, admin: StorageState, made: dict[str, Any]
) -> None:
    with signed_in_page(browser, admin, set()) as page:
        page.goto(console(sms, "sgipreport/"))
        page.click("text=Filters")
        page.select_option("#changelist-filter select[name=matched]", label="matched nothing")
        page.click("text=Apply Filters")
        stranger = row(page, "3010099999:1121131500:4711")
        expect(stranger.locator(".field-message")).to_have_text("matched nothing")
        expect(stranger.locator(".field-state_mark")).to_have_text("failed")
        expect(stranger.locator(".field-meaning")).to_have_text("200 a code of the gateway's own")
        page.goto(sms.base_url + "/console/")
        page.click(f"text=Message {made['mt']} cannot be archived")
        expect(page.locator(".console")).to_contain_text("sms.archive")


def test_without_redis(
    browser: Browser, sms: SmsPlatform, admin: StorageState, made: dict[str, Any]
) -> None:
    """What the database knows is shown, with a sentence about the rest."""
    sms.sms_server.kill()
    with signed_in_page(browser, admin, {503}) as page:
        page.goto(console(sms, "smsgateway/"))
        expect(page.get_by_text("The SMS Redis does not answer")).to_be_visible()
        expect(row(page, LONG_SLUG).locator(".field-up")).to_have_text("unknown")
        page.goto(f"{sms.base_url}/console/search/sms?number=13800000123")
        expect(page.get_by_text("only the archive was searched")).to_be_visible()
        expect(page.locator("#found-sms tbody tr", has_text=str(made["mt"]))).to_be_visible()
        page.goto(f"{sms.base_url}/console/sms/{made['mt']}")
        expect(page.locator("#content > pre")).to_have_text(LONG_TEXT)
        page.goto(f"{sms.base_url}/console/sms/{made['mt'] + 2**20}")
        expect(page.locator(".notice")).to_contain_text("The SMS Redis does not answer")
        page.goto(f"{sms.base_url}/console/search?q=13800000123")
        expect(page.locator(".console")).to_contain_text("The SMS Redis does not answer")
        expect(page.locator(".console td a")).to_have_count(1)
        page.goto(sms.base_url + "/console/")
        expect(page.locator(".card", has_text="SMS").locator(".notice.bad")).not_to_be_empty()
        page.goto(f"{sms.base_url}/console/sms/{made['mt']}")
        page.click("summary:has-text('Send again')")
        page.click("button:text-is('Yes, send it again')")
        expect(page.get_by_text("It was not sent again")).to_be_visible()
        expect(page.locator(".figures").first).to_contain_text(LONG_NAME)
    sms.sms_server.start()
