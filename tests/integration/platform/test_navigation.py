"""The menu, the titles of tabs and the way past the menu, the same for everybody."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils import translation

from msgplatform.core import flows
from msgplatform.core.data import sql
from msgplatform.doors.admin.rows import BoundedPaginator
from msgplatform.doors.console import navigation
from msgplatform.doors.console.views import page as pages
from msgplatform.jobs.models import BulkJob
from msgplatform.models import Alert, Biz, Preferences
from tests.support.notify_rows import publish, subscription

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("work_redis", "sms_redis"),
]


def menu(client: Client) -> list[dict[str, Any]]:
    request = client.get("/console/").wsgi_request
    return navigation.sidebar(request)


def titles(client: Client) -> list[str]:
    return [str(group["title"]) for group in menu(client)]


def tab_title(client: Client, path: str) -> str:
    page = client.get(path).content.decode()
    found = re.search(r"<title>(.*?)</title>", page, re.DOTALL)
    assert found, path
    return " ".join(found[1].split())


def test_the_order_of_the_menu_is_the_same_in_every_language(admin_client: Client) -> None:
    order = ["Console", "Notify", "SMS", "Feed", "CRM sync", "Platform", "People", "Internals"]
    assert titles(admin_client) == order
    user = User.objects.get(username="admin")
    Preferences.objects.create(user=user, language="zh-hans")
    links = [group["items"][0]["link"] for group in menu(admin_client)]
    with translation.override("zh-hans"):
        assert titles(admin_client)[1:4] == ["通知", "短信", "动态"]
    translation.deactivate()
    assert [group["items"][0]["link"] for group in menu(admin_client)] == links


def test_flows_of_which_nothing_is_set_up_are_folded(admin_client: Client) -> None:
    pages.set_up_flows.clear()

    def folded() -> set[str]:
        return {str(group["title"]) for group in menu(admin_client) if group.get("collapsible")}

    assert folded() == {"Notify", "SMS", "Feed", "CRM sync", "Internals"}
    subscription(Biz.objects.create(name="orders"))
    pages.unused_until.clear()  # a while later
    assert folded() == {"SMS", "Feed", "CRM sync", "Internals"}


def test_a_menu_has_what_its_person_may_see(admin_client: Client) -> None:
    """Whoever asked this process before."""
    assert "Platform" in titles(admin_client)
    reader = User.objects.create_user("reader", password="x", is_staff=True)
    reader.user_permissions.add(Permission.objects.get(codename="view_bizmsg"))
    client = Client()
    client.force_login(reader)
    for _ in range(2):
        assert titles(client) == ["Console", "Notify"]
        links = [item["link"] for group in menu(client) for item in group["items"]]
        assert sorted(links) == sorted(set(links))


def test_nothing_is_in_the_menu_twice(admin_client: Client) -> None:
    items = [item["title"] for group in menu(admin_client) for item in group["items"]]
    assert items.count("Bulk jobs") == 1
    internals = menu(admin_client)[-1]
    assert [item["title"] for item in internals["items"]] == ["Queues"]
    looker = User.objects.create_user("looker", password="x", is_staff=True)
    looker.user_permissions.add(Permission.objects.get(codename="view_bulkjob"))
    client = Client()
    client.force_login(looker)
    links = {item["title"]: item["link"] for group in menu(client) for item in group["items"]}
    assert links["Bulk jobs"] == "/admin/msgplatform/bulkjob/"
    assert "Internals" not in titles(client)


def test_a_tab_says_what_it_shows(admin_client: Client) -> None:
    row = subscription(Biz.objects.create(name="orders"))
    (message,) = publish(row.biz, 1)
    title = tab_title(admin_client, f"/console/notify/{message}")
    assert title.endswith(f" {message} · Message | msgplatform")
    assert tab_title(admin_client, "/admin/gateway/smsgateway/").startswith("Gateways | ")
    alert = Alert.objects.create(
        kind="a.b", key="a.b:1", subject="Gateway 7 is down", first_at=sql.now(), last_at=sql.now()
    )
    title = tab_title(admin_client, f"/admin/msgplatform/alert/{alert.pk}/change/")
    assert title == "Gateway 7 is down · Alert | msgplatform"
    Alert.objects.filter(pk=alert.pk).update(subject="13812345678 waits")
    title = tab_title(admin_client, f"/admin/msgplatform/alert/{alert.pk}/change/")
    assert "waits · Alert" in title
    assert "13812345678" not in title


def test_a_page_of_the_menu_has_its_own_name_in_the_header(admin_client: Client) -> None:
    addresses = [link.address for flow in flows.all() for link in flow.links if not link.query]
    assert len(addresses) > 3
    for address in addresses:
        header = admin_client.get(address).content.decode().partition("<header>")[2]
        name = header.partition("</header>")[0].partition("<form")[0]
        assert not re.search(r'href="/admin/\w+/\w+/"', name), address


def test_the_first_stop_leads_past_the_menu(admin_client: Client) -> None:
    for path in ("/console/", "/admin/notify/bizreceive/"):
        page = admin_client.get(path).content.decode()
        body = page.partition("<body")[2]
        first = re.search(r"<a [^>]*>", body)
        assert first
        assert 'href="#content"' in first[0]
        assert 'id="content" tabindex="-1"' in body


def test_a_count_that_ends_says_more_than(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(5):
        BulkJob.objects.create(flow="notify", action="resend", filter={}, created_by="admin")
    monkeypatch.setattr(BoundedPaginator, "MAX_COUNT", 5)
    assert "more than" not in admin_client.get("/admin/msgplatform/bulkjob/").content.decode()
    monkeypatch.setattr(BoundedPaginator, "MAX_COUNT", 4)
    assert "more than 4 bulk jobs" in " ".join(
        admin_client.get("/admin/msgplatform/bulkjob/").content.decode().split()
    )
