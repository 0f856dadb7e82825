"""The pages of CRM sync with one of everything, in a real browser: on a telephone, at night, in
trouble, and while a run goes on."""

import json
import sqlite3
from contextlib import closing
from typing import Any

import pytest
from playwright.sync_api import Browser, StorageState, expect

from tests.browser.pages import probe
from tests.browser.tabs import Tab, page_of_its_own
from tests.browser.walk import Walk
from tests.browser.web_server.conftest import Ids
from tests.cluster import Cluster

# What handlers and pollers tell is forgotten within seconds.
REPORT = """
import json
from crmsync.models import Crm, Policy
from tests.support import crm_rows
crms = Crm.objects.in_bulk(["sales", "east"], field_name="name")
policies = Policy.objects.in_bulk([{policy}, {third}])
crm_rows.report(crms["sales"], crms["east"], policies[{policy}], policies[{third}])
print(json.dumps(True))
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
STOP = """
import json
from crmsync.models import Policy
from msgplatform.core.data import sql
stop = dict(stopped_at=sql.now(), stopped_removals=10234, stopped_records=20468)
print(json.dumps(Policy.objects.filter(id={policy}).update(**stop)))
"""
PATHS = (
    *(f"/admin/crmsync/{path}" for path in (
        "crm/", "crm/?enabled__exact=0", "crm/add/", "crm/{sales}/change/", "crm/{refused}/change/",
        "source/", "source/add/", "source/{source}/change/", "source/{hive}/change/",
        "policy/", "policy/add/", "policy/{policy}/change/", "policy/{third}/change/",
        "run/", "run/{run}/change/", "run/{going}/change/", "run/{failed}/change/",
        "operation/", "operation/?q=7", "operation/{operation}/change/",
        "recoveryentry/", "recoveryentry/?state=3",
        "recoveryentry/{entry}/change/", "exceptionentry/",
    )),
    *(f"/console/search/crmsync{query}" for query in (
        "", "?phone=13800000000", "?rows=records", "?state=dead&crm=sales", "?uid=nobody-has-it",
        "?rows=records&phone=1",
    )),
)  # fmt: skip


@pytest.fixture
def crm(ids: Ids) -> dict[str, str]:
    """The ids of CRM sync's rows."""
    return ids["crm"]


def console(platform: Cluster, path: str) -> str:
    return f"{platform.base_url}/admin/crmsync/{path}"


@pytest.fixture(scope="module")
def walk(platform: Cluster, tab: Tab, admin: StorageState, ids: Ids) -> Walk:
    platform.script(REPORT.format(**ids["crm"]))
    with tab.of(admin) as page:
        return Walk(platform.base_url).visit(page, [path.format(**ids["crm"]) for path in PATHS])


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_fits(walk: Walk, theme: str) -> None:
    assert walk.misfits[theme] == {}
    assert walk.foreign == set()


def test_a_paused_crm_is_repaired_and_resumed(
    tab: Tab, platform: Cluster, admin: StorageState, crm: dict[str, str]
) -> None:
    with tab.of(admin) as page:
        page.goto(console(platform, f"crm/{crm['refused']}/change/"))
        expect(page.locator(".notice.bad")).to_contain_text("Access denied for user")
        page.click("button:text-is('Resume')")
        expect(page.get_by_text("It stays paused. The database cannot be reached")).to_be_visible()
        page.fill("[name=credentials]", json.dumps({"url": crm["url"]}))
        page.click("[name=_continue]")
        expect(page.get_by_text("It is still paused: press Resume.")).to_be_visible()
        page.click("button:text-is('Resume')")
        expect(page.get_by_text("works; its records go on.")).to_be_visible()
        expect(page.locator("button:text-is('Resume')")).to_have_count(0)


def test_removals_are_refused_by_a_person(
    tab: Tab, platform: Cluster, admin: StorageState, crm: dict[str, str]
) -> None:
    path = f"policy/{crm['policy']}/change/"
    platform.script(STOP.format(**crm))
    with tab.of(admin) as page:
        walk = Walk(platform.base_url).visit(page, [f"/admin/crmsync/{path}"])
        assert walk.misfits == {}
        page.goto(console(platform, path))
        expect(page.locator(".notice.bad")).to_contain_text("10,234 of 20,468 records would be")
        page.click("button:text-is('Refuse')")
        expect(page.get_by_text("Refused: the CRM keeps what it has.")).to_be_visible()
        expect(page.locator(".notice.bad")).to_contain_text("A person has refused")
        expect(page.locator("button:text-is('Confirm')")).to_have_count(0)


def test_a_dry_run_shows_what_would_change(
    tab: Tab, platform: Cluster, admin: StorageState, crm: dict[str, str]
) -> None:
    database = crm["url"].removeprefix("sqlite:///")

    def held() -> list[Any]:
        with closing(sqlite3.connect(database)) as connection:
            return connection.execute("SELECT * FROM customer ORDER BY id").fetchall()

    before = held()
    with tab.of(admin) as page:
        page.goto(console(platform, f"policy/{crm['policy']}/change/"))
        text = probe(page, "Dry run")
        for words in ("changed\n2", "created\n6", "unchanged\n4", "ACME"):
            assert words in text
        expect(page.locator(".dry del").first).to_have_text("ACME")
    assert held() == before


def test_personal_data_is_shown_when_it_is_asked_for(
    tab: Tab, platform: Cluster, admin: StorageState, crm: dict[str, str]
) -> None:
    with tab.of(admin) as page:
        page.goto(console(platform, f"operation/{crm['operation']}/change/"))
        expect(page.locator("pre")).to_contain_text("138****0003")
        page.click("button:text-is('Show personal data')")
        expect(page.locator("pre")).to_contain_text("13800000003")
        page.click("text=Mask again")
        expect(page.locator("pre")).not_to_contain_text("13800000003")


def test_the_page_of_a_run_renews_itself_until_the_run_is_over(
    browser: Browser, platform: Cluster, admin: StorageState, crm: dict[str, str]
) -> None:
    """Without a reload, and not while somebody has selected a text of it."""
    asked: list[str] = []
    with page_of_its_own(browser, admin) as page:
        page.on("request", lambda request: "live=1" in request.url and asked.append(request.url))
        page.clock.install()
        page.goto(console(platform, f"run/{crm['going']}/change/"))
        page.evaluate("window.isTheSamePage = true")
        run = page.locator("#live-run")
        expect(run).to_contain_text("4000")
        platform.script(READ_ON.format(run=crm["going"]))
        page.clock.run_for(4_000)
        expect(run).to_contain_text("5000")

        run.locator("h2").select_text()
        before = len(asked)
        platform.script(END.format(run=crm["going"]))
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
