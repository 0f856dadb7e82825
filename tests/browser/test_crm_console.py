"""CRM sync's console as an operator uses it, in a real browser: set up, try, run, recover."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, StorageState, expect

from bench.harness.mariadb import MariaDb
from tests.browser.conftest import ADMIN
from tests.browser.pages import fill, refused, row, sign_in, signed_in_page
from tests.cluster import WEB, Cluster

MAX_NAME = 60  # characters that the CRM's column holds
SECRET = "pw-of-the-crm"
ROWS = """
import json
from tests.support import crm_rows
print(json.dumps(crm_rows.make({folder!r})))
"""
LEADS = """
import json
from msgplatform.models import Biz
from tests.support import crm_rows
biz, _ = Biz.objects.get_or_create(name="cars")
made = [crm_rows.lead(biz, name=name, extra={{}}) for name in {names!r}]
print(json.dumps([str(lead.pk) for lead in made]))
"""
STATES = """
import json
from crmsync.models import Record
print(json.dumps(dict(Record.objects.filter(policy_id={policy}).values_list("key", "state"))))
"""
READ_ON = """
import json
from crmsync.models import Run
print(json.dumps(Run.objects.filter(id={run}).update(read=5000)))
"""
END = """
import json
from crmsync.models import Operation, Run
from msgplatform.core.data import sql
Operation.objects.filter(run_id={run}).update(confirmed=1000)
print(json.dumps(Run.objects.filter(id={run}).update(state=Run.State.READ, read_at=sql.now())))
"""
LISTS = (
    "",
    "?phone=13800000000",
    "?rows=records",
    "?state=dead&crm=sales",
    "?uid=nobody-has-it",
    "?rows=records&phone=1",
)
PAGES = (
    "crm/", "crm/?enabled__exact=0", "crm/add/", "crm/{sales}/change/", "crm/{refused}/change/",
    "source/", "source/add/", "source/{source}/change/", "source/{hive}/change/",
    "policy/", "policy/add/", "policy/{policy}/change/", "policy/{third}/change/",
    "run/", "run/{run}/change/", "run/{going}/change/", "run/{failed}/change/",
    "operation/", "operation/?q=7", "operation/{operation}/change/",
    "recoveryentry/", "recoveryentry/?state=3",
    "recoveryentry/{entry}/change/", "exceptionentry/",
)  # fmt: skip
# Cells of a list whose text is not seen whole.
CUT = """[...document.querySelectorAll("#result_list .data-row > *")].filter(cell =>
    cell.scrollHeight > cell.clientHeight + 1 || cell.scrollWidth > cell.clientWidth + 1
).map(cell => cell.className.split(" ")[0])"""


def running(*programs: str) -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="mp-crm-"))
    with Cluster(folder, f"sqlite:///{folder / 'platform.db'}", (WEB, *programs)) as cluster:
        cluster.script(ADMIN)
        yield cluster
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def platform() -> Iterator[Cluster]:
    """With poller and handler."""
    yield from running("run_sync_poller", "run_sync_handler")


@pytest.fixture(scope="module")
def operator(platform: Cluster, browser: Browser) -> StorageState:
    return sign_in(browser, platform.base_url, "admin")


@pytest.fixture
def page(operator: StorageState, browser: Browser) -> Iterator[Page]:
    with signed_in_page(browser, operator, set()) as tab:
        yield tab


@pytest.fixture
def customers(mariadb: MariaDb) -> Iterator[str]:
    """A CRM of somebody else on MariaDB; its URL without the password."""
    mariadb.create("customers")
    mariadb.execute(
        "CREATE TABLE customers.customer (id VARCHAR(40) PRIMARY KEY, "
        f"name VARCHAR({MAX_NAME}), phone VARCHAR(40), version BIGINT NOT NULL DEFAULT 0)"
    )
    mariadb.execute(f"CREATE OR REPLACE USER crm@'%' IDENTIFIED BY '{SECRET}'")
    mariadb.execute("GRANT ALL ON customers.* TO crm@'%'")
    yield f"mysql://crm:%s@127.0.0.1:{mariadb.port}/customers"
    mariadb.execute("DROP DATABASE customers")
    mariadb.execute("DROP USER crm@'%'")


def console(platform: Cluster, path: str) -> str:
    return f"{platform.base_url}/admin/crmsync/{path}"


def probe(page: Page, button: str) -> str:
    """Press a button that asks another system; the answer."""
    page.click(f"button:text-is('{button}')")
    expect(page.locator(f"button:text-is('{button}')")).to_be_enabled(timeout=60_000)
    return page.locator("#probe-answer").inner_text()


def in_crm(mariadb: MariaDb) -> dict[str, tuple[str, str]]:
    """Name and phone number by key, as the CRM holds them."""
    session = mariadb.connect("customers")
    try:
        cursor = session.cursor()
        cursor.execute("SELECT id, name, phone FROM customer")
        return {key: (name, phone) for key, name, phone in cursor.fetchall()}
    finally:
        session.close()


def test_from_a_wrong_password_to_a_dead_record_that_arrives(
    page: Page, platform: Cluster, customers: str, mariadb: MariaDb
) -> None:
    too_long = "x" * (MAX_NAME + 1)
    short, dead = platform.script(LEADS.format(names=["王小明", too_long]))

    # An example of its kind, which replaces nothing that is written.
    page.goto(console(platform, "crm/add/"))
    page.select_option("[name=adapter]", label="HubSpot")
    page.locator(".kind-help[data-kind=hubspot]").get_by_text("Insert an example").click()
    assert json.loads(page.input_value("[name=settings]"))["id_property"] == "hive_id"
    assert json.loads(page.input_value("[name=credentials]")) == {"token": ""}
    page.select_option("[name=adapter]", label="Any SQL database")
    page.locator(".kind-help[data-kind=sql]").get_by_text("Insert an example").click()
    assert "id_property" in page.input_value("[name=settings]")

    # A CRM with a wrong password says so, and is tested before it is saved.
    page.goto(console(platform, "crm/add/"))
    fill(page, {"name": "sales", "settings": '{"table": "customer"',
                "credentials": json.dumps({"url": customers % "wrong"})})  # fmt: skip
    page.select_option("[name=adapter]", label="Any SQL database")
    expect(page.locator(".kind-help[data-kind=sql] code", has_text="key_column")).to_be_visible()
    expect(page.locator(".kind-help[data-kind=http]")).to_be_hidden()
    assert "Line 1, column 21: this is not JSON" in probe(page, "Test")
    page.fill("[name=settings]", '{"table": "customer"}')
    assert "refuses the credentials" in probe(page, "Test")
    page.fill("[name=credentials]", json.dumps({"url": customers % SECRET}))
    assert "answers and accepts the credentials" in probe(page, "Test")
    page.click("[name=_continue]")
    expect(page.get_by_text("Set: url. Never shown")).to_be_visible()
    assert SECRET not in page.content()
    assert "answers and accepts the credentials" in probe(page, "Test")  # by what is stored

    # A policy with mistakes in its mapping, repaired, tried, held against the CRM, saved.
    page.goto(console(platform, "policy/add/"))
    page.select_option("[name=source]", label="hive")
    page.select_option("[name=crm]", label="sales")
    assert "phone" in probe(page, "Fields and columns")
    fill(page, {"mapping": "name = name\nphone = fone", "hours": "8-20", "interval_seconds": "1"})
    refused(page, {"mapping": "Line 2: the source has no column fone",
                   "hours": "8-20 is no span of hours"})  # fmt: skip
    fill(page, {"mapping": "name = name\nphone = phone", "hours": ""})
    assert "王小明" in probe(page, "Try on a sample")
    assert "created\n2" in probe(page, "Dry run")
    assert in_crm(mariadb) == {}
    page.click("[name=_continue]")
    expect(page.locator("button:text-is('Run now')")).to_be_visible()
    policy = page.url.split("/")[-3]

    # A run that somebody asks for; what the CRM refuses is dead, the rest arrives.
    page.click("button:text-is('Everything')")
    expect(page.get_by_text("A run was asked for")).to_be_visible()

    def states() -> Any:
        return platform.script(STATES.format(policy=policy))

    # The run that was asked for may still read the row once more when the record is corrected.
    platform.wait_until(lambda: states() == {short: 3, dead: 4}, "the records")
    assert in_crm(mariadb) == {short: ("王小明", "13812345678")}
    page.goto(console(platform, f"run/?policy={policy}"))
    page.locator("#result_list .data-row a").last.click()
    expect(page.locator(".figures").first).to_contain_text("confirmed")

    # The dead record is corrected, and arrives too.
    page.goto(console(platform, "recoveryentry/"))
    expect(row(page, dead)).to_contain_text("name:")
    row(page, dead).locator(".field-since a").click()
    expect(page.locator(".notice.bad")).to_contain_text("Refused by the CRM (name)")
    page.click("button:text-is('Edit and try again')")
    expect(page.locator("label.wrong input")).to_have_value(too_long)
    page.fill("[name=field-name]", "李雷")
    page.click("button:text-is('Send it so')")
    expect(page.get_by_text("It is sent again with these values.")).to_be_visible()
    platform.wait_until(lambda: states() == {short: 3, dead: 3}, "the corrected record")
    assert in_crm(mariadb)[dead] == ("李雷", "13812345678")
    page.goto(f"{platform.base_url}/console/search/crmsync?rows=records&record_key={dead}")
    expect(page.locator("tr", has_text=dead)).to_contain_text("confirmed")
    page.locator("tr", has_text=dead).get_by_role("link").first.click()
    expect(page.locator(".timeline")).to_contain_text("sales")


@pytest.fixture(scope="module")
def shown() -> Iterator[tuple[Cluster, dict[str, str]]]:
    """A web server alone, with one of everything."""
    for cluster in running():
        yield cluster, cluster.script(ROWS.format(folder=str(cluster.folder)))


@pytest.fixture(scope="module")
def viewer(shown: tuple[Cluster, dict[str, str]], browser: Browser) -> StorageState:
    return sign_in(browser, shown[0].base_url, "admin")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_page_fits(
    browser: Browser, shown: tuple[Cluster, dict[str, str]], viewer: StorageState, dark: bool
) -> None:
    platform, made = shown
    wrong: dict[str, Any] = {}
    asked: set[str] = set()
    with signed_in_page(browser, viewer, set()) as page:
        page.on("request", lambda request: asked.add(request.url))
        page.emulate_media(color_scheme="dark" if dark else "light")
        for width in (390, 1300):
            page.set_viewport_size({"width": width, "height": 844})
            lists = [f"{platform.base_url}/console/search/crmsync{query}" for query in LISTS]
            pages = [console(platform, address.format(**made)) for address in PAGES]
            for address in (*pages, *lists):
                page.goto(address)
                page.wait_for_load_state("load")
                expect(page.locator("#content, #content-main, .console").first).to_be_visible()
                wide = page.evaluate("document.documentElement.scrollWidth")
                cut = page.evaluate(CUT) if width == 390 else []
                if wide > width or cut:
                    wrong[f"{address} at {width}"] = wide, cut
    assert wrong == {}
    elsewhere = {u for u in asked if not u.startswith((platform.base_url, "data:", "blob:"))}
    assert elsewhere == set()


def test_a_paused_crm_is_repaired_and_resumed(
    browser: Browser, shown: tuple[Cluster, dict[str, str]], viewer: StorageState
) -> None:
    platform, made = shown
    with signed_in_page(browser, viewer, set()) as page:
        page.goto(console(platform, f"crm/{made['refused']}/change/"))
        expect(page.locator(".notice.bad")).to_contain_text("Access denied for user")
        page.click("button:text-is('Resume')")
        expect(page.get_by_text("It stays paused. The database cannot be reached")).to_be_visible()
        page.fill("[name=credentials]", json.dumps({"url": made["url"]}))
        page.click("[name=_continue]")
        expect(page.get_by_text("It is still paused: press Resume.")).to_be_visible()
        page.click("button:text-is('Resume')")
        expect(page.get_by_text("works; its records go on.")).to_be_visible()
        expect(page.locator("button:text-is('Resume')")).to_have_count(0)


def test_a_dry_run_shows_what_would_change(
    browser: Browser, shown: tuple[Cluster, dict[str, str]], viewer: StorageState
) -> None:
    platform, made = shown
    database = made["url"].removeprefix("sqlite:///")

    def held() -> list[Any]:
        with closing(sqlite3.connect(database)) as connection:
            return connection.execute("SELECT * FROM customer ORDER BY id").fetchall()

    before = held()
    with signed_in_page(browser, viewer, set()) as page:
        page.goto(console(platform, f"policy/{made['policy']}/change/"))
        text = probe(page, "Dry run")
        for words in ("changed\n2", "created\n6", "unchanged\n4", "ACME"):
            assert words in text
        expect(page.locator(".dry del").first).to_have_text("ACME")
    assert held() == before


def test_personal_data_is_shown_when_it_is_asked_for(
    browser: Browser, shown: tuple[Cluster, dict[str, str]], viewer: StorageState
) -> None:
    platform, made = shown
    with signed_in_page(browser, viewer, set()) as page:
        page.goto(console(platform, f"operation/{made['operation']}/change/"))
        expect(page.locator("pre")).to_contain_text("138****0003")
        page.click("button:text-is('Show personal data')")
        expect(page.locator("pre")).to_contain_text("13800000003")
        page.click("text=Mask again")
        expect(page.locator("pre")).not_to_contain_text("13800000003")


def test_the_page_of_a_run_renews_itself_until_the_run_is_over(
    browser: Browser, shown: tuple[Cluster, dict[str, str]], viewer: StorageState
) -> None:
    """Without a reload, and not while somebody has selected a text of it."""
    platform, made = shown
    asked: list[str] = []
    with signed_in_page(browser, viewer, set()) as page:
        page.on("request", lambda request: "live=1" in request.url and asked.append(request.url))
        page.clock.install()
        page.goto(console(platform, f"run/{made['going']}/change/"))
        page.evaluate("window.isTheSamePage = true")
        run = page.locator("#live-run")
        expect(run).to_contain_text("4000")
        platform.script(READ_ON.format(run=made["going"]))
        page.clock.run_for(4_000)
        expect(run).to_contain_text("5000")

        run.locator("h2").select_text()
        before = len(asked)
        platform.script(END.format(run=made["going"]))
        page.clock.run_for(30_000)
        assert len(asked) == before
        assert page.evaluate("getSelection().toString()")

        page.evaluate("getSelection().empty()")
        page.clock.run_for(4_000)
        expect(run.locator("progress")).to_have_count(0)
        expect(page.locator("[data-live-button]")).to_be_hidden()
        before = len(asked)
        page.clock.run_for(60_000)
        assert len(asked) == before
        assert page.evaluate("window.isTheSamePage")
