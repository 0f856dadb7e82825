"""The landing page on a phone, in light and in dark."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.cluster import ROOT, Cluster

LEADS = """
import json
from crmsync.models import Lead
rows = Lead.objects.filter(appkey="phone").order_by("id")
print(json.dumps([[row.name, row.phone, row.extra] for row in rows]))
"""
PAGE = """
import json
from crmsync.models import LandingPage
from msgplatform.models import Biz
biz, _ = Biz.objects.get_or_create(name="cars")
fields = [("name", True, ""), ("phone", True, ""), ("email", False, ""),
          ("budget", False, "预算（万元）"), ("message", False, ""), ("city", False, "")]
LandingPage.objects.update_or_create(appkey="phone", defaults={
    "biz": biz, "title": "预约试驾 · Book a test drive",
    "text": "周末两天，专人陪同。\\n\\nTwo days, with somebody beside you.",
    "allowed_origins": ["http://shop.test"],
    "form_fields": [{"name": n, "required": r, "label": l} for n, r, l in fields]})
print(json.dumps(True))
"""
# Other tests count the leads of all landing pages.
FORGET = """
import json
from crmsync.models import Lead
print(json.dumps(Lead.objects.filter(appkey="phone").delete()[0]))
"""


@pytest.fixture(params=["light", "dark"])
def phone(
    request: pytest.FixtureRequest, platform: Cluster, browser: Browser
) -> Iterator[tuple[Page, str]]:
    """A visitor's phone, Chinese in the light and English in the dark."""
    platform.script(PAGE)
    scheme = request.param
    context = browser.new_context(
        viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True,
        color_scheme=scheme, locale="zh-CN" if scheme == "light" else "en-GB",
    )  # fmt: skip
    page = context.new_page()
    page.set_default_timeout(60_000)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("response", lambda answer: answer.status >= 400 and wrong.append(answer.url))
    yield page, scheme
    context.close()
    platform.script(FORGET)
    assert [url for url in wrong if not url.endswith("/favicon.ico")] == []


def brightness(page: Page) -> int:
    """Of what is behind the form, 0 to 255."""
    color = page.evaluate("getComputedStyle(document.querySelector('main')).backgroundColor")
    return max(int(part) for part in color.removeprefix("rgb(").rstrip(")").split(","))


def test_a_visitor_fills_it_in(phone: tuple[Page, str], platform: Cluster, tmp_path: Path) -> None:
    page, scheme = phone
    before = len(platform.script(LEADS))
    page.goto(f"{platform.base_url}/l/phone")
    chinese = scheme == "light"
    expect(page.get_by_role("heading", name="预约试驾")).to_be_visible()
    expect(page.get_by_label("您的姓名" if chinese else "Your name")).to_be_visible()
    assert (brightness(page) > 200) is chinese
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    expect(page.locator("[name=contact_url]")).not_to_be_in_viewport()
    page.screenshot(path=tmp_path / f"form-{scheme}.png", full_page=True)

    button = page.get_by_role("button", name="提交" if chinese else "Send")
    page.fill("[name=phone]", "12")
    page.fill("[name=message]", "周六可以吗？\n谢谢")
    button.click()
    expect(page.locator("#error-name")).to_be_visible()
    expect(page.locator("#error-phone")).to_be_visible()
    expect(page.locator("[name=phone]")).to_have_value("12")
    expect(page.locator("[name=message]")).to_have_value("周六可以吗？\n谢谢")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.screenshot(path=tmp_path / f"errors-{scheme}.png", full_page=True)
    assert len(platform.script(LEADS)) == before

    page.fill("[name=name]", "王小明")
    page.fill("[name=phone]", "138 0000 0000")
    page.fill("[name=budget]", "20")
    button.dblclick()
    # The address is looked at: the second click may abort the navigation of the first.
    expect(page).to_have_url(re.compile("/l/phone/thanks$"))
    expect(page.get_by_role("heading", name="谢谢" if chinese else "Thank you")).to_be_visible()
    page.screenshot(path=tmp_path / f"thanks-{scheme}.png")
    page.reload()
    stored = platform.script(LEADS)[before:]
    extra = {"budget": "20", "message": "周六可以吗？\n谢谢"}
    assert json.dumps(stored, sort_keys=True) == json.dumps(
        [["王小明", "13800000000", extra]], sort_keys=True
    )


def test_the_script_of_the_documents_on_a_page_without_https(
    platform: Cluster, browser: Browser
) -> None:
    """Copied as it stands; with an answer, and without."""
    document = (ROOT / "docs" / "crm-sync.md").read_text().partition("```js\n")[2]
    script = document.partition("```")[0].replace("5f1c0a9be2d34786", "phone")
    platform.script(PAGE)
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(60_000)
    fields = {"name": "Ann", "phone": "13800000000", "city": "X"}
    inputs = "".join(f"<input name={name} value={value}>" for name, value in fields.items())
    html = f"<!doctype html><form>{inputs}</form><script>{script}</script>"
    messages = "https://messages.example.com/api/v1/leads"
    api = f"{platform.base_url}/api/v1/leads"
    page.route(
        "http://shop.test/", lambda route: route.fulfill(body=html, content_type="text/html")
    )
    page.route(messages, lambda route: route.fulfill(response=route.fetch(url=api)))
    page.goto("http://shop.test/")
    assert not page.evaluate("isSecureContext")
    send = "send(document.forms[0])"
    assert [page.evaluate(send) for _ in range(2)] == ["", ""]
    assert platform.script(LEADS) == [["Ann", "13800000000", {"city": "X"}]]
    page.unroute(messages)
    page.route(messages, lambda route: route.abort())
    assert "could not be sent" in page.evaluate(send)
    context.close()
    platform.script(FORGET)


def test_a_wrong_link(platform: Cluster, browser: Browser) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, locale="zh-CN")
    page = context.new_page()
    page.set_default_timeout(120_000)
    answer = page.goto(f"{platform.base_url}/l/nothing")
    assert answer is not None
    assert answer.status == 404
    expect(page.get_by_role("heading", name="页面不存在")).to_be_visible()
    context.close()
