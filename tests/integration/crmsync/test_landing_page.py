"""The landing page: languages, errors beside fields, one lead for a double submit, limits."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection, connections
from django.test import Client
from structlog.testing import capture_logs

from crmsync.hive.pages import HONEYPOT
from crmsync.models import LandingPage
from msgplatform.doors.api.access import throttling
from msgplatform.models import Biz
from tests.integration.crmsync.support import form_fields, landing_page, stored
from tests.support.answers import Answer

pytestmark = pytest.mark.django_db(transaction=True)
FIELDS = form_fields("name *", "phone *", "email", "message", "budget: Your budget <in yuan>")
GOOD = {"name": "王小明", "phone": "138 0000 0000", "email": "w@example.com", "budget": "20 万"}


@pytest.fixture
def page(work_redis: object, monkeypatch: pytest.MonkeyPatch, db: None) -> LandingPage:
    # An earlier test may have killed Redis.
    monkeypatch.setattr(throttling, "_paused_until", 0.0)
    biz = Biz.objects.create(name="cars")
    return landing_page(biz, form_fields=FIELDS, text="Drive it\n\nfor a day", language="en")


class Visitor:
    """A browser: it keeps cookies and sends what is hidden in the form."""

    def __init__(self, appkey: str = "ad-1", **headers: str) -> None:
        self.client = Client(enforce_csrf_checks=True, headers=headers)
        self.path = f"/l/{appkey}"
        self.form = ""

    def open(self) -> str:
        response = self.client.get(self.path)
        assert response.status_code == 200, response.content
        self.form = response.content.decode()
        return self.form

    def hidden(self) -> dict[str, str]:
        return dict(re.findall(r'type="hidden" name="(\w+)" value="(\w+)"', self.form))

    def send(self, **fields: str) -> Answer:
        return self.client.post(self.path, {**self.hidden(), **fields})


def shown_value(html: str, name: str) -> str:
    found = re.search(rf'<input id="field-{name}"[^>]*?\svalue="([^"]*)"', html)
    assert found, name
    return found[1]


def error_of(html: str, name: str) -> str | None:
    found = re.search(rf'<p class="error" id="error-{name}">(.*?)</p>', html)
    return found and found[1]


def test_what_is_too_large_is_not_read(page: LandingPage) -> None:
    visitor = Visitor()
    visitor.open()
    response = visitor.send(**{**GOOD, "message": "x" * 300_000})
    assert response.status_code == 413
    assert not stored()
    assert visitor.send(**{**GOOD, "message": "试" * 2000}).status_code == 303


def test_a_person_sends_the_form(page: LandingPage) -> None:
    visitor = Visitor()
    html = visitor.open()
    assert "Test drive · 试驾" in html
    assert "<p>Drive it</p>" in html
    assert "Your budget &lt;in yuan&gt;" in html
    response = visitor.send(**GOOD)
    assert (response.status_code, response["Location"]) == (303, "/l/ad-1/thanks")
    thanks = visitor.client.get(response["Location"])
    assert "Thank you" in thanks.content.decode()
    (row,) = stored()
    assert (row.biz, row.appkey, row.name, row.phone) == (page.biz, "ad-1", "王小明", "13800000000")
    assert row.extra == {"email": "w@example.com", "budget": "20 万"}


def luminance(colour: str) -> float:
    """WCAG's relative luminance of #rgb or #rrggbb."""
    digits = colour if len(colour) == 6 else "".join(digit * 2 for digit in colour)
    parts = [part / 255 for part in bytes.fromhex(digits)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_borders_show_where_a_field_is(page: LandingPage) -> None:
    """3 : 1 by day and by night (WCAG 1.4.11), which axe does not look at."""
    html = Visitor().open()
    cards, lines = (re.findall(rf"--{name}: #(\w+)", html) for name in ("card", "line"))
    assert len(cards) == len(lines) == 2
    for pair in zip(cards, lines, strict=True):
        dark, bright = sorted(map(luminance, pair))
        assert (bright + 0.05) / (dark + 0.05) >= 3


def test_headers_and_cookies(page: LandingPage) -> None:
    visitor = Visitor()
    response = visitor.client.get(visitor.path)
    assert set(response.cookies) == {"csrftoken"}
    assert response["X-Frame-Options"] == "DENY"
    assert response["X-Content-Type-Options"] == "nosniff"
    assert response["Referrer-Policy"] == "same-origin"
    assert response["Cache-Control"] == "no-store"
    assert response["Content-Language"] == "en"
    assert set(visitor.client.get("/l/ad-1/thanks").cookies) == set()


def test_without_the_token_nothing_is_stored(page: LandingPage) -> None:
    visitor = Visitor()
    response = visitor.client.post(visitor.path, GOOD)
    assert response.status_code == 403
    assert not stored()
    # The same form again, for a visitor whose cookie is gone.
    visitor.form = response.content.decode()
    assert "console" not in visitor.form
    assert shown_value(visitor.form, "name") == "王小明"
    assert visitor.send(**GOOD).status_code == 303
    assert len(stored()) == 1


def test_errors_stand_beside_the_fields_and_what_was_typed_stays(page: LandingPage) -> None:
    visitor = Visitor()
    visitor.open()
    first_key = visitor.hidden()["form_key"]
    response = visitor.send(
        name=" ", phone='12"><b>', email="x@", budget="5 & 6", message="</textarea>"
    )
    assert response.status_code == 200
    html = visitor.form = response.content.decode()
    assert "Please look at the marked fields." in html
    assert error_of(html, "name") == "Please fill this in."
    assert "no phone number" in str(error_of(html, "phone"))
    assert "no e-mail address" in str(error_of(html, "email"))
    assert error_of(html, "budget") is None
    assert shown_value(html, "phone") == "12&quot;&gt;&lt;b&gt;"
    assert shown_value(html, "budget") == "5 &amp; 6"
    assert "&lt;/textarea&gt;</textarea>" in html
    assert visitor.hidden()["form_key"] == first_key
    assert not stored()
    assert visitor.send(**GOOD).status_code == 303
    assert len(stored()) == 1


@pytest.mark.parametrize(
    ("fields", "name", "words"),
    [
        ({"name": "x" * 101}, "name", "at most 100"),
        ({"phone": "1" * 40}, "phone", "at most 32"),
        ({"email": f"{'x' * 260}@example.com"}, "email", "at most 254"),
        ({"message": "x" * 2001}, "message", "at most 2000"),
        ({"budget": "x" * 501}, "budget", "at most 500"),
        ({"budget": "a\x07"}, "budget", "control"),
    ],
)
def test_too_long(page: LandingPage, fields: dict[str, str], name: str, words: str) -> None:
    visitor = Visitor()
    visitor.open()
    html = visitor.send(**{**GOOD, **fields}).content.decode()
    assert words in str(error_of(html, name))
    assert not stored()


class TestLanguage:
    @pytest.mark.parametrize(
        ("setting", "accepts", "language"),
        [
            ("zh", "en", "zh-hans"),
            ("en", "zh-CN", "en"),
            ("", "zh-CN,zh;q=0.9,en;q=0.8", "zh-hans"),
            ("", "zh-TW", "zh-hans"),
            ("", "en-GB,zh;q=0.5", "en"),
            ("", "fr,zh;q=0.8,en;q=0.2", "zh-hans"),
            ("", "de", "en"),
            ("", "", "en"),
            ("", ";;q=x,*", "en"),
        ],
    )
    def test_which(self, page: LandingPage, setting: str, accepts: str, language: str) -> None:
        LandingPage.objects.update(language=setting)
        visitor = Visitor(accept_language=accepts)
        response = visitor.client.get(visitor.path)
        html = response.content.decode()
        chinese = language == "zh-hans"
        assert f'<html lang="{language}">' in html
        assert ("您的姓名" in html) is chinese
        assert ("Your name" in html) is not chinese
        assert response["Content-Language"] == language
        assert "Accept-Language" in response["Vary"]

    def test_everything_is_chinese(self, page: LandingPage) -> None:
        """But what the owner of the page wrote."""
        LandingPage.objects.update(language="zh", title="试驾", text="", form_fields=form_fields(
            "name *", "phone *", "email", "company", "city", "message *"))  # fmt: skip
        visitor = Visitor()
        pages = [
            visitor.open(),
            visitor.send(phone="x", email="x", city="x" * 200).content.decode(),
        ]
        pages += [visitor.client.get(f"{visitor.path}/thanks").content.decode()]
        missing = Client(headers={"accept-language": "zh"}).get("/l/nothing")
        for html in (*pages, missing.content.decode()):
            words = re.sub(r"<style>.*?</style>|<[^>]*>", " ", html, flags=re.DOTALL)
            assert re.findall(r"[A-Za-z]{2,}", words.replace("name@example.com", "")) == []


@pytest.mark.parametrize("path", ["/l/nothing", "/l/nothing/thanks", "/l/off"])
def test_an_unknown_appkey(page: LandingPage, path: str) -> None:
    landing_page(page.biz, "off", enabled=False)
    response = Client().get(path)
    assert response.status_code == 404
    html = response.content.decode()
    assert "This page is not here any more" in html
    assert "console" not in html
    assert Client().post(path, GOOD).status_code in (404, 403)


def press(visitor: Visitor, barrier: threading.Barrier) -> int:
    """The form of a visitor, sent from a thread of its own together with others."""
    client = Client(enforce_csrf_checks=True)
    client.cookies = visitor.client.cookies
    barrier.wait(180)
    try:
        return client.post(visitor.path, {**visitor.hidden(), **GOOD}).status_code
    finally:
        connections.close_all()


class TestOnce:
    def test_pressed_twice(self, page: LandingPage) -> None:
        visitor = Visitor()
        visitor.open()
        assert [visitor.send(**GOOD).status_code for _ in range(2)] == [303, 303]
        assert len(stored()) == 1

    def test_pressed_twice_at_the_same_moment(self, page: LandingPage) -> None:
        with ThreadPoolExecutor(4) as pool:
            for number in range(5):
                visitor = Visitor()
                visitor.open()
                barrier = threading.Barrier(4)
                assert list(pool.map(press, [visitor] * 4, [barrier] * 4)) == [303] * 4
                assert len(stored()) == number + 1

    def test_going_back_to_correct_something_is_a_lead_of_its_own(self, page: LandingPage) -> None:
        visitor = Visitor()
        visitor.open()
        assert visitor.send(**GOOD).status_code == 303
        assert visitor.send(**{**GOOD, "name": "王小名"}).status_code == 303
        assert [row.name for row in stored()] == ["王小明", "王小名"]

    def test_the_same_person_at_another_time(self, page: LandingPage) -> None:
        for _ in range(2):
            visitor = Visitor()
            visitor.open()
            visitor.send(**GOOD)
        assert len(stored()) == 2


def test_what_a_program_fills_in(page: LandingPage) -> None:
    visitor = Visitor()
    visitor.open()
    response = visitor.send(**GOOD, **{HONEYPOT: "http://spam.example"})
    html = visitor.form = response.content.decode()
    assert "once more" in html
    assert "spam.example" not in html
    assert shown_value(html, "name") == "王小明"
    assert not stored()
    # A person whose browser filled it in.
    assert visitor.send(**GOOD, **{HONEYPOT: ""}).status_code == 303


@pytest.mark.parametrize("limit", ["CRM_RATE_PER_IP", "CRM_RATE_APPKEY"])
def test_limits(page: LandingPage, settings: Any, limit: str) -> None:
    setattr(settings, limit, "2/hour")
    visitor = Visitor()
    visitor.open()
    for name in ("a", "b"):
        assert visitor.send(**{**GOOD, "name": name}).status_code == 303
    response = visitor.send(**{**GOOD, "name": "c"})
    assert response.status_code == 429
    assert 3000 < int(response["Retry-After"]) <= 3600
    html = response.content.decode()
    assert "Too many forms have been sent" in html
    assert shown_value(html, "name") == "c"
    assert len(stored()) == 2


def test_a_few_addresses_close_the_page_for_nobody(page: LandingPage, settings: Any) -> None:
    settings.CRM_RATE_APPKEY, settings.CRM_RATE_PER_IP = "3/hour", "5/hour"
    crowd = Visitor()
    crowd.open()

    def send(address: str, **changes: str) -> int:
        crowd.client.defaults["REMOTE_ADDR"] = address
        return crowd.send(**{**GOOD, **changes}).status_code

    # Wrong forms count for their addresses alone.
    wrong = [send(f"192.0.2.{n}", phone="x") for n in range(4) for _ in range(6)]
    assert wrong == [200, 200, 200, 200, 200, 429] * 4
    # Right ones use the page's limit up; who has stored nothing lately may still store one.
    busy = [send("198.51.100.1", name=f"n{n}") for n in range(5)]
    assert busy == [303, 303, 303, 429, 429]
    assert [send("203.0.113.9", name=f"v{n}") for n in range(2)] == [303, 429]
    assert len(stored()) == 4


def test_an_ipv6_visitor_is_its_network(page: LandingPage, settings: Any) -> None:
    settings.CRM_RATE_PER_IP = "2/hour"
    visitor = Visitor()
    visitor.open()
    answers = []
    for address in ("2001:db8:0:1::1", "2001:db8:0:1:2::", "2001:db8:0:1:3::", "2001:db8:0:2::1"):
        visitor.client.defaults["REMOTE_ADDR"] = address
        answers.append(visitor.send(**{**GOOD, "name": address}).status_code)
    assert answers == [303, 303, 429, 303]


def test_the_limit_lets_pass_while_redis_is_unavailable(page: LandingPage, servers: Any) -> None:
    visitor = Visitor()
    visitor.open()
    servers.work.kill()
    try:
        assert visitor.send(**GOOD).status_code == 303
    finally:
        servers.work.start()
    assert len(stored()) == 1


def test_a_visitor_while_the_database_is_away_writes_one_line(page: LandingPage) -> None:
    """Each visitor causes it: no line is an error, and none has a traceback. The page is for
    visitors, and loading it again sends their form."""
    visitor = Visitor(accept_language="zh")
    visitor.open()
    name = connection.settings_dict["NAME"]
    connection.close()
    connection.settings_dict["NAME"] = "/no/such/place"
    try:
        with capture_logs() as lines:
            answers = [visitor.client.get(visitor.path), visitor.send(**GOOD)]
    finally:
        connection.close()
        connection.settings_dict["NAME"] = name
    for answer, line in zip(answers, lines, strict=True):
        assert (answer.status_code, answer["Retry-After"]) == (503, "60")
        assert answer["Content-Language"] == "zh-hans"
        assert "console" not in answer.content.decode()
        assert (line["event"], line["log_level"]) == ("landing_page_unavailable", "warning")
        assert "exc_info" not in line
    assert visitor.send(**GOOD).status_code == 303
    assert len(stored()) == 1
