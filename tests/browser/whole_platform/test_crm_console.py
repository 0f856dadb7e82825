"""CRM sync's console as an operator uses it, in a real browser: set up, try, run, recover."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from bench.harness.mariadb import MariaDb
from tests.browser.pages import fill, probe, refused, row
from tests.cluster import Cluster

MAX_NAME = 60  # characters that the CRM's column holds
SECRET = "pw-of-the-crm"
# The policy takes no leads of other tests.
APPKEY = "crm-console"
LEADS = """
import json
from msgplatform.models import Biz
from tests.support import crm_rows
biz, _ = Biz.objects.get_or_create(name="cars")
made = [crm_rows.lead(biz, name=name, appkey={appkey!r}, extra={{}}) for name in {names!r}]
print(json.dumps([str(lead.pk) for lead in made]))
"""
STATES = """
import json
from crmsync.models import Record
print(json.dumps(dict(Record.objects.filter(policy_id={policy}).values_list("key", "state"))))
"""
MAKE_GONE = """
import json
from crmsync.models import Crm, Lead, Policy
Policy.objects.filter(crm__name="sales").delete()
Crm.objects.filter(name="sales").delete()
print(json.dumps(Lead.objects.filter(appkey={appkey!r}).delete()[0]))
"""


@pytest.fixture
def tidied(platform: Cluster) -> Iterator[None]:
    """Other tests begin without a CRM, and without leads."""
    yield
    platform.script(MAKE_GONE.format(appkey=APPKEY))


@pytest.fixture
def customers(mariadb: MariaDb) -> Iterator[str]:
    """A CRM of somebody else on MariaDB; its URL without the password."""
    mariadb.create("customers")
    mariadb.execute(
        "CREATE TABLE customers.customer (id VARCHAR(40) PRIMARY KEY, "
        f"name VARCHAR({MAX_NAME}), phone VARCHAR(40), version BIGINT NOT NULL DEFAULT 0)"
    )
    mariadb.execute("DROP USER IF EXISTS crm@'%'")
    mariadb.execute(f"CREATE USER crm@'%' IDENTIFIED BY '{SECRET}'")
    mariadb.execute("GRANT ALL ON customers.* TO crm@'%'")
    yield f"mysql://crm:%s@127.0.0.1:{mariadb.port}/customers"
    mariadb.execute("DROP DATABASE customers")
    mariadb.execute("DROP USER crm@'%'")


def console(platform: Cluster, path: str) -> str:
    return f"{platform.base_url}/admin/crmsync/{path}"


def in_crm(mariadb: MariaDb) -> dict[str, tuple[str, str]]:
    """Name and phone number by key, as the CRM holds them."""
    session = mariadb.connect("customers")
    try:
        cursor = session.cursor()
        cursor.execute("SELECT id, name, phone FROM customer")
        return {key: (name, phone) for key, name, phone in cursor.fetchall()}
    finally:
        session.close()


@pytest.mark.usefixtures("tidied", "sync")
def test_from_a_wrong_password_to_a_dead_record_that_arrives(
    page: Page, platform: Cluster, customers: str, mariadb: MariaDb
) -> None:
    too_long = "x" * (MAX_NAME + 1)
    short, dead = platform.script(LEADS.format(names=["王小明", too_long], appkey=APPKEY))

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
    page.fill("[name=appkeys]", APPKEY)
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
