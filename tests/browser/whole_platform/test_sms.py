"""The console's SMS pages as an operator uses them, in a real browser, with real gateways."""

import csv
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from gateway import sgip
from tests.browser.pages import fill, refused, row, table
from tests.browser.whole_platform.platform import HAPPY, SECRET, ZONE, Platform
from tests.support.long_texts import LONG_NAME, LONG_TEXT
from tests.support.sms_net_support import Raw

LINES = "#found-sms tbody tr"
SLOW = 120_000  # ms: what comes from another process, or with the list's own renewal

# What the statistics have to show, counted from the archive's rows.
COUNTS = """
import json
from collections import Counter, defaultdict
from django.utils import timezone
from gateway.models import SgipMo, SgipMt, SgipMtPart, SmsAccount, SmsGateway
columns = {"delivered": 2, "failed": 3, "expired": 3, "unknown": 4, "accepted": 5}
gateways = dict(SmsGateway.objects.values_list("pk", "name"))
accounts = dict(SmsAccount.objects.values_list("pk", "name")) | {0: "nobody's"}
titles = {"day": "Per day, the latest first", "gateway": "By gateway, what lost most first",
          "account": "By account, what lost most first"}
found = {"sent": 0, "codes": Counter()}
found |= {title: defaultdict(lambda: [0] * 7) for title in titles.values()}
parts = list(SgipMtPart.objects.values_list("mt_id", "part", "result"))
billed = {(mt, part) for mt, part, _ in parts} - {(mt, part) for mt, part, code in parts if code}
segments = Counter(mt for mt, _ in billed)
for mt in SgipMt.objects.all():
    found["sent"] += 1
    if mt.final == "failed":
        found["codes"][mt.error_code] += 1
    day = timezone.localtime(mt.archived_at).date().isoformat()
    for by, name in (("day", day), ("gateway", gateways[mt.gateway_id]),
                     ("account", accounts[mt.account_id])):
        line = found[titles[by]][name]
        line[0] += 1
        line[1] += segments[mt.pk]
        line[columns[mt.final]] += 1
for mo in SgipMo.objects.all():
    day = timezone.localtime(mo.archived_at).date().isoformat()
    for by, name in (("day", day), ("account", accounts[mo.account_id]),
                     ("gateway", gateways.get(mo.gateway_id))):
        if name is None:
            continue
        found[titles[by]][name][6] += 1
print(json.dumps(found))
"""
RECEIVED = """
from gateway.models import SgipMo
print(SgipMo.objects.count())
"""


@pytest.fixture(scope="module")
def sms(platform: Platform) -> Iterator[Platform]:
    platform.start_sms()
    yield platform
    platform.stop_sms()


def console(sms: Platform, path: str) -> str:
    return f"{sms.base_url}/admin/gateway/{path}"


# -- gateways and accounts -----------------------------------------------------------------------
def test_a_gateway_is_added_and_its_link_comes_and_goes(page: Page, sms: Platform) -> None:
    page.goto(console(sms, "smsgateway/add/"))
    fill(page, {
        "name": "two words", "host": "http://smg:1", "port": "99999", "login_name": "我们",
        "smg_login_name": "harbour", "smg_login_password": "密码", "corp_id": "12a",
        "prefixes": "186\n13x", "connections": "0", "response_timeout": "-1", "idle_timeout": "0",
    })  # fmt: skip
    refused(page, {
        "name": "no spaces", "host": "without a port", "port": "65535", "login_name": "ASCII",
        "login_password": "Give a password", "smg_login_password": "ASCII",
        "corp_id": "Digits only", "prefixes": "13x: digits only", "connections": "equal to 1",
        "response_timeout": "equal to 5", "idle_timeout": "equal to 1",
    })  # fmt: skip
    fill(page, {
        "name": "harbour", "host": "127.0.0.1", "port": str(sms.ports["harbour"]),
        "login_name": "sp", "login_password": SECRET, "smg_login_password": "secret",
        "corp_id": "12345", "prefixes": "186", "connections": "1", "response_timeout": "5",
        "idle_timeout": "60",
    })  # fmt: skip
    page.click("[name=_save]")
    link = row(page, "harbour").locator(".field-up")
    expect(link).to_contain_text("1 out", timeout=SLOW)
    page.evaluate("window.isTheSamePage = true")
    sms.kill("harbour")
    expect(link.locator(".mark.bad")).to_have_text("down", timeout=SLOW)
    expect(link.locator(".why")).not_to_be_empty()
    assert page.evaluate("window.isTheSamePage")
    page.goto(sms.base_url + "/console/")
    expect(page.locator(".figures div", has_text="links of harbour")).to_contain_text("down")
    sms.start("harbour")
    page.goto(console(sms, "smsgateway/"))
    expect(link.locator(".mark.good")).to_contain_text("1 out", timeout=SLOW)
    page.click("text=harbour")
    expect(page.locator("[name=login_password]")).to_have_value("")
    assert SECRET not in page.locator("#content-main").inner_text()


def test_an_account_is_added(page: Page, sms: Platform) -> None:
    page.goto(console(sms, "smsaccount/add/"))
    fill(page, {
        "name": "clinic", "sp_number": "10655x", "extension_digits": "20", "corp_id": "12345",
        "keywords": "TD\n" + "x" * 41, "service_type": "服务", "charge_number": "me",
        "recipients_limit": "0",
    })  # fmt: skip
    refused(page, {
        "biz": "required", "name": "already exists", "sp_number": "Digits only",
        "keywords": "at most 40", "service_type": "ASCII", "charge_number": "Digits only",
        "recipients_limit": "equal to 1",
    })  # fmt: skip
    page.click(".field-biz .select2-selection")
    page.fill(".select2-search__field", "clinic")
    page.locator(".select2-results__option").filter(has_text=LONG_NAME).click()
    page.check("[name=is_default]", force=True)
    fill(page, {
        "name": "night", "sp_number": "106550041234567890", "keywords": "", "service_type": "",
        "charge_number": "", "recipients_limit": "5",
    })  # fmt: skip
    refused(page, {"extension_digits": "at most 21 digits", "is_default": "default already"})
    page.uncheck("[name=is_default]", force=True)
    page.fill("[name=extension_digits]", "2")
    page.select_option("[name=fee_type]", label="2: per message")
    page.click("[name=_save]")
    expect(row(page, "night")).to_contain_text("106550041234567890")
    row(page, "night").get_by_role("link").click()
    expect(page.locator("[name=fee_type]")).to_have_value("2")
    expect(page.locator("[name=morelateto_mt_flag]")).to_have_value("2")


# -- messages ------------------------------------------------------------------------------------
def test_a_number_is_searched_and_every_step_is_seen(page: Page, sms: Platform) -> None:
    (id,) = sms.send("13800000077", text=LONG_TEXT, reference="order-77", idempotency_key="key-77")
    page.goto(f"{sms.base_url}/console/")
    page.click("nav a:has-text('Messages sent')")
    page.click(".finder summary")
    page.fill("[name=number]", "13800000077")
    page.press("[name=number]", "Enter")
    expect(page.locator(LINES)).to_have_count(1)
    line = page.locator(LINES, has_text=id)
    expect(line.locator(".mark.good")).to_have_text("delivered (archived)")
    expect(line).to_contain_text("clinic · city")
    expect(line).to_contain_text("ended after")
    line.get_by_role("link").click()
    steps = page.locator(".timeline li")
    expect(steps.last).to_contain_text("Archived")  # the page is there
    parts = steps.filter(has_text=re.compile(r"Submit \d+/\d+")).count()
    assert parts > 10
    # Without a response where the Report was faster: it says the same.
    assert [t for t in steps.locator("b").all_inner_texts() if t != "Response"] == [
        "Accepted",
        *(f"Submit {n}/{parts}" for n in range(1, parts + 1)),
        *(f"Report {n}/{parts}" for n in range(1, parts + 1)),
        "delivered", "Published as sms.report: delivered", "Archived",
    ]  # fmt: skip
    expect(page.locator("#content > pre")).to_have_text(LONG_TEXT)
    expect(page.locator(".figures").first).to_contain_text("key-77")
    title = page.get_by_role("heading", name="What the operator got")
    operator = page.locator(".card").filter(has=title)
    for words in ("12345", "15: GBK", "2: not caused by an MO", "1: always"):
        expect(operator).to_contain_text(words)
    at = datetime.fromisoformat(sms.state(id)["accepted_at"]).astimezone(ZONE)
    expect(steps.first).to_contain_text(f"{at:%Y-%m-%d %H:%M:%S}")


def test_a_test_sms_is_followed_to_the_handset(page: Page, sms: Platform) -> None:
    page.goto(f"{sms.base_url}/console/search/sms")
    page.click(".console a:text-is('Test SMS')")
    page.select_option("[name=account]", label="clinic")
    fill(page, {"to": "13800000088", "text": "您好"})
    page.click("button:text-is('Send')")
    page.wait_for_url("**/?message=*")
    page.evaluate("window.isTheSamePage = true")
    expect(page.locator(".timeline .delivered b").last).to_have_text("delivered", timeout=SLOW)
    expect(page.locator("[data-live-button]")).to_be_hidden()
    assert page.evaluate("window.isTheSamePage")
    page.click("text=Its page")
    expect(page.locator(".figures").first).to_contain_text("test from the console")


def test_a_failed_one_is_sent_again_and_followed(page: Page, sms: Platform) -> None:
    first, second = sms.send("13300000001", "13300000002")
    sms.kill("moody")
    sms.manners["moody"] = HAPPY
    sms.start("moody")
    page.goto(f"{sms.base_url}/console/search/sms?state=failed")
    line = page.locator(LINES, has_text=first)
    expect(line.locator("td", has=page.locator(".mark.bad"))).to_contain_text("29 Unknown user")
    line.get_by_role("link").click()
    page.click("summary:has-text('Send again')")
    page.click("button:text-is('Yes, send it again')")
    expect(page.locator(".timeline")).to_contain_text(f"another try of {first}")
    new = page.url.rpartition("/")[2]
    sms.wait_until(lambda: sms.state(new)["archived_at"], "the second try's end")
    page.reload()
    expect(page.locator(".timeline .delivered b").last).to_have_text("delivered")
    page.goto(f"{sms.base_url}/console/sms/{first}")
    expect(page.locator(".timeline")).to_contain_text(f"Sent again as {new}")

    page.goto(f"{sms.base_url}/console/search/sms?number=133000")
    expect(page.get_by_text("No message matches.")).to_be_visible()  # no number begins so
    page.goto(f"{sms.base_url}/console/search/sms?state=failed")
    page.locator(LINES, has_text=second).locator("[type=checkbox]").check()
    page.click("button:text-is('Send the ticked ones again')")
    expect(page.get_by_text("1 message is sent again:")).to_be_visible()
    page.goto(f"{sms.base_url}/console/search/sms?id={new}")
    page.locator(LINES, has_text=new).locator("[type=checkbox]").check()
    page.click("button:text-is('Send the ticked ones again')")
    expect(page.get_by_text("1 was left alone")).to_be_visible()


def test_failed_ones_are_sent_again_in_bulk(page: Page, sms: Platform) -> None:
    numbers = [f"132000001{n:02d}" for n in range(7)]
    ids = sms.send(*numbers, account="bulk")
    page.goto(f"{sms.base_url}/console/bulk/sms?count=1&since=yesterday")
    expect(page.locator("em")).to_contain_text("use a time such as")
    page.fill("[name=since]", f"{datetime.now(ZONE) - timedelta(days=1):%Y-%m-%d}")
    page.fill("[name=account]", "bulk")
    page.click("button:text-is('Preview')")
    expect(page.locator(".console")).to_contain_text("7 match.")
    with sms.running("run_bulk"):
        page.click("button:text-is('Start')")
        expect(page.get_by_text("Bulk job started")).to_be_visible()
        # The page reads itself anew.
        expect(page.locator("#job")).to_have_attribute("data-state", "done", timeout=60_000)
        expect(page.locator("[data-failed]")).to_have_text("7", timeout=60_000)
    page.goto(f"{sms.base_url}/console/sms/{ids[0]}")
    again = re.search(r"Sent again as (\d+)", page.locator(".timeline").inner_text())
    assert again
    sms.wait_until(lambda: sms.state(again[1])["archived_at"], "the second try's end")
    page.goto(f"{sms.base_url}/console/search/sms?number={numbers[0]}")
    expect(page.locator(LINES)).to_have_count(2)


# -- what was received, and how much it was ------------------------------------------------------
def test_what_handsets_and_gateways_tell(page: Page, sms: Platform) -> None:
    sms.deliver("city", "13800000001", "10655001", LONG_TEXT)
    sms.deliver("city", "13800000002", "99999", "whose am I?")
    with Raw(sms.receiver_port) as smg:
        assert smg.bind("city", SECRET) == 0
        for condition in (0, 1, 2):
            rpt = sgip.UserRpt(smg.sequence(), "10655001", "8613800000003", condition)
            assert smg.ask(rpt) == 0
    sms.wait_until(lambda: sms.script(RECEIVED) == 2, "both MOs in the archive")
    page.goto(console(sms, "sgipmo/"))
    expect(page.locator("#result_list .data-row")).to_have_count(2)
    expect(row(page, "8613800000002").locator(".field-owner")).to_have_text("nobody")
    row(page, "8613800000001").get_by_role("link").click()
    expect(page.locator("#content-main")).to_contain_text(LONG_TEXT)
    expect(page.locator("#content-main")).to_contain_text("15: GBK")
    page.goto(console(sms, "sgipmo/?owner=0"))
    expect(page.locator("#result_list .data-row")).to_have_count(1)
    page.goto(console(sms, "sgipuserrpt/"))
    for words in ("deregistered", "suspended", "back to normal"):
        expect(row(page, words)).to_have_count(1)


def test_statistics_equal_the_rows(page: Page, sms: Platform) -> None:
    sms.send("13800000501", "13800000502", "13200000503", account="ward")
    sms.send("13800000504")
    sms.settle()
    wanted = sms.script(COUNTS)

    def shown() -> str:
        page.goto(f"{sms.base_url}/console/statistics?flow=sms&period=7d")
        return page.locator(".figures dd").first.inner_text()

    with sms.running("run_bulk"):  # a new one adds the minutes up to days at once
        sms.wait_until(lambda: shown() == str(wanted["sent"]), "the day's counts")
    headings = [heading for heading in wanted if heading not in ("sent", "codes")]
    assert len(headings) == 3
    for heading in headings:
        lines = {
            name.removesuffix(" open"): list(map(int, cells[:7]))
            for name, *cells in table(page, heading)
        }
        assert lines == wanted[heading], heading
    answers = {text: int(n) for text, n in table(page, "By answer, of what failed")}
    assert answers == {f"{c}: {sgip.result_text(int(c))}": n for c, n in wanted["codes"].items()}
    with page.expect_download() as download:
        page.locator("form.choose").get_by_text("CSV").click()
    with Path(download.value.path()).open(encoding="utf-8-sig", newline="") as file:
        days = list(csv.DictReader(file))  # two, if it became midnight meanwhile
    assert sum(int(day["sent"]) for day in days) == wanted["sent"]
    page.select_option("[name=gateway]", label="city")
    page.select_option("[name=account]", label="ward")
    page.click("button:text-is('Show')")
    expect(page.locator(".choose em")).to_contain_text("choose one")
