"""Getting started: it says what is there, offers what one may do, and shows no secret."""

import html
import json
import re
import shlex
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from crmsync.models import Crm, LandingPage, Policy, Record
from gateway.intake import accept
from msgplatform.core import flows
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
from notify.maker.maker import Maker
from notify.models import BizReceive, Receive, ReceiveMsg
from tests.support import crm_rows, sms_rows
from tests.support.notify_rows import publish, subscription

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("work_redis", "sms_redis"),
]
PAGE = "/console/getting-started"
NEW = b"Nothing has gone through this platform yet"


@pytest.fixture(autouse=True)
def _knows_nothing() -> Iterator[None]:
    """The process has no key and no gateway from tests before."""
    keys.forget()
    accept.intake.cache_clear()
    yield
    accept.intake.cache_clear()
    keys.forget()


def staff(*permissions: str) -> Client:
    user = User.objects.create_user("somebody", password="x", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


def part(client: Client, anchor: str) -> Any:
    (found,) = [one for one in client.get(PAGE).context["parts"] if one.anchor == anchor]
    return found


def done(client: Client, anchor: str) -> list[bool]:
    return [step.done for step, _link in part(client, anchor).steps]


def commands(client: Client) -> list[list[list[str]]]:
    """The commands that the page shows for each flow, as a shell reads them."""
    shown = re.findall(
        r'<pre class="code command" tabindex="0">(curl .*?)</pre>',
        client.get(PAGE).content.decode(),
        re.S,
    )
    return [[shlex.split(one) for one in html.unescape(text).split("\n\n")] for text in shown]


def test_the_list_fills_itself_in(admin_client: Client) -> None:
    assert [done(admin_client, flow.name) for flow in flows.all()] == [
        [False] * 5, [False] * 3, [False] * 4, [False] * 6,
    ]  # fmt: skip
    biz = Biz.objects.create(name="orders")
    assert done(admin_client, "platform") == [True, False]
    keys.create(biz, "till", ["events:write"])
    assert done(admin_client, "platform") == [True, True]
    Receive.objects.create(name="till", url="http://127.0.0.1:9/")
    assert done(admin_client, "notify") == [True, True, False, False, False]
    BizReceive.objects.create(biz=biz, receive=Receive.objects.get())
    assert done(admin_client, "notify") == [True, True, True, False, False]
    publish(biz)
    assert done(admin_client, "notify") == [True, True, True, True, False]
    Maker().splitter.split()
    ReceiveMsg.objects.update(status=ReceiveMsg.Status.DELIVERED)
    assert done(admin_client, "notify") == [True] * 5
    assert part(admin_client, "notify").is_complete


def test_the_lists_of_the_other_flows_do_so_too(admin_client: Client) -> None:
    caller = sms_rows.Caller("orders", "sms:write", "leads:write", "feed:write", "feed:read")
    sms_rows.gateway()
    sms_rows.account(caller.biz)
    assert done(admin_client, "sms") == [True, True, False, False]
    assert caller.post("/api/v1/sms", {"to": ["13800000000"], "text": "hello"}).status_code == 202
    assert done(admin_client, "sms") == [True, True, True, False]

    friends = {"action": "befriend", "uid": "ann", "other": "bob"}
    assert caller.post("/api/v1/feed/relations", friends).status_code == 200
    assert done(admin_client, "feed") == [True, False, False]
    assert caller.post("/api/v1/feed/posts", {"uid": "ann", "data": "Hello"}).status_code == 202
    assert done(admin_client, "feed") == [True, True, False]
    assert caller.get("/api/v1/feed/timelines/bob").status_code == 200
    assert done(admin_client, "feed") == [True, True, True]

    page = LandingPage.objects.create(biz=caller.biz, title="x")
    crm = Crm.objects.create(name="sales", adapter="sql")
    policy = Policy.objects.create(source=crm_rows.hive(), crm=crm, mapping="name = name")
    lead = {"appkey": page.appkey, "name": "ann", "phone": "13800000000"}
    assert caller.post("/api/v1/leads", lead).status_code == 202
    assert done(admin_client, "crmsync") == [True] * 5 + [False]
    Record.objects.create(
        id=1, policy_id=policy.pk, key="1", version=1, operation_id=1, digest="x",
        state=Record.State.CONFIRMED, updated_at=timezone.now(),
    )  # fmt: skip
    assert part(admin_client, "crmsync").is_complete


def test_it_comes_first_until_something_was_delivered(admin_client: Client) -> None:
    assert NEW in admin_client.get("/console/").content
    biz = Biz.objects.create(name="orders")
    subscription(biz)
    publish(biz)
    Maker().splitter.split()
    assert NEW in admin_client.get("/console/").content
    ReceiveMsg.objects.update(status=ReceiveMsg.Status.DELIVERED)
    assert NEW not in admin_client.get("/console/").content
    assert admin_client.get(PAGE).status_code == 200


def test_it_can_be_dismissed(admin_client: Client) -> None:
    assert admin_client.get(f"{PAGE}/dismiss").status_code == 405
    assert NEW in admin_client.get("/console/").content
    answer = admin_client.post(f"{PAGE}/dismiss", follow=True)
    assert answer.redirect_chain == [("/console/", 302)]
    assert NEW not in answer.content
    assert admin_client.get(PAGE).status_code == 200
    assert Client(enforce_csrf_checks=True).post(f"{PAGE}/dismiss").status_code == 403


def test_what_is_refused_is_not_offered() -> None:
    client = staff("view_bizmsg", "add_receive")
    page = client.get(PAGE)
    assert [one.anchor for one in page.context["parts"]] == ["platform", "notify"]
    assert [link for _step, link in part(client, "platform").steps] == ["", ""]
    links = [link for _step, link in part(client, "notify").steps]
    try_out, consumer, joined, accepted, _delivered = links
    assert consumer == ("/admin/notify/receive/add/?next=%2Fconsole%2Fgetting-started%23notify")
    assert not try_out
    assert not joined
    assert not accepted
    assert b"/admin/notify/bizreceive/add/" not in page.content
    assert Client().get(PAGE).status_code == 302


def test_who_may_see_no_flow_is_shown_no_list_first() -> None:
    assert NEW not in staff().get("/console/").content


def test_the_commands_have_the_newest_key_that_may_and_never_its_secret(
    admin_client: Client,
) -> None:
    biz, away = Biz.objects.create(name="orders"), timezone.now() + timedelta(days=1)
    key, plain = keys.create(biz, "till", ["events:write"], away)
    other, _ = keys.create(biz, "reader", ["events:read"])
    revoked, _ = keys.create(biz, "old", ["events:write"])
    keys.revoke(revoked)
    assert plain.encode() not in admin_client.get(PAGE).content
    (publishes,), (posts, _), *_rest = commands(admin_client)
    assert publishes[publishes.index("-H") + 1] == f"Authorization: Bearer mp_{key.prefix}_…"
    assert posts[posts.index("-H") + 1] == "Authorization: Bearer mp_…"
    # Whoever may not see keys sees none of their prefixes.
    shown = staff("view_bizmsg").get(PAGE).content.decode()
    assert key.prefix not in shown
    assert other.prefix not in shown


def test_the_commands_are_taken_by_the_api(admin_client: Client, client: Client) -> None:
    """Each as it stands on the page, with a key in it that has only the scope that it names."""
    biz = Biz.objects.create(name="orders")
    LandingPage.objects.create(biz=biz, title="x")
    page = admin_client.get(PAGE).content.decode()
    scopes = re.findall(r'the scope <b class="mono">([a-z:]+)</b>', page)
    answers = {}
    for of_flow, scope in zip(commands(admin_client), scopes, strict=True):
        _, plain = keys.create(biz, scope, [scope])
        for words in of_flow:
            path = words[words.index("POST") + 1].removeprefix("http://testserver")
            body = words[words.index("--data-raw") + 1]
            json.loads(body)
            answers[path] = client.post(
                path,
                body,
                content_type="application/json",
                headers={"Authorization": f"Bearer {plain}"},
            )
    taken = {path: answer.status_code for path, answer in answers.items()}
    assert taken.pop("/api/v1/sms") == 400  # there is no account and no gateway yet
    assert taken == {
        "/api/v1/messages": 202, "/api/v1/leads": 202, "/api/v1/feed/relations": 200,
        "/api/v1/feed/posts": 202,
    }  # fmt: skip


def test_one_language_is_shown(admin_client: Client) -> None:
    for name, line in (
        ("", "def verify("),
        ("php", "function verify("),
        ("nothing", "def verify("),
    ):
        shown = html.unescape(admin_client.get(PAGE, {"language": name}).content.decode())
        assert shown.count(line) == 1, name
        assert ("<?php" in shown) == (name == "php")


def test_it_asks_as_much_for_many_rows_as_for_few(admin_client: Client) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert admin_client.get(PAGE).status_code == 200
        counts = [query["sql"] for query in captured if "COUNT(" in query["sql"]]
        assert [sql for sql in counts if "LIMIT" not in sql and "lert" not in sql] == []
        return len(captured)

    biz = Biz.objects.create(name="orders")
    keys.create(biz, "till", ["events:write"])
    subscription(biz)
    publish(biz)
    Maker().splitter.split()
    queries()  # the first request of a session notes it
    few = queries()
    for n in range(20):
        subscription(biz, f"more-{n}")
    publish(biz, 30)
    Maker().splitter.split()
    assert queries() == few


def test_a_saved_form_leads_back_to_the_checklist(admin_client: Client) -> None:
    ((_step, link), *_others) = part(admin_client, "platform").steps
    form = {"name": "shop", "title": "", "enabled": "on", "_save": "Save"}
    answer = admin_client.post(link, form)
    assert answer["Location"] == "/console/getting-started#platform"
    elsewhere = link.partition("?")[0] + "?next=https%3A%2F%2Fevil.example%2F"
    answer = admin_client.post(elsewhere, {**form, "name": "other"})
    assert answer["Location"] == "/admin/msgplatform/biz/"


def test_an_empty_list_says_what_is_empty(admin_client: Client) -> None:
    alerts = "/admin/msgplatform/alert/"
    assert "No alert has been raised yet." in admin_client.get(alerts).content.decode()
    filtered = admin_client.get(f"{alerts}?state=open").content.decode()
    assert "Nothing matches the search and the filters." in filtered
    consumers = admin_client.get("/admin/notify/receive/").content.decode()
    assert "There are no consumers yet." in consumers
