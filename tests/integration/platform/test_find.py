"""The search through texts, what fields offer, and saved filters: what they find, and for whom."""

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from msgplatform import roles
from msgplatform.core import flows
from msgplatform.core.flows.contract import Flow
from msgplatform.doors.console.views import saved_filters, search
from msgplatform.messages import engine
from msgplatform.models import Biz, Role, SavedFilter
from notify.models import BizReceive, ReceiveMsg
from tests.support.archive_support import message
from tests.support.notify_rows import publish, subscription

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
PARCEL = b'{"parcel":"RB123456785CN"}'


@pytest.fixture
def row() -> BizReceive:
    return subscription(Biz.objects.create(name="orders", title="Web shop"))


def person(name: str, *permissions: str) -> Client:
    user = User.objects.create_user(name, password="x", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


def pieces(client: Client, query: str, flow: str = "notify") -> list[dict[str, Any]]:
    """The answers of a whole search through texts."""
    answers: list[dict[str, Any]] = []
    cursor = ""
    while not answers or cursor:
        given = {"q": query, "cursor": cursor}
        answers.append(client.get(f"/console/texts/{flow}", given).json())
        cursor = answers[-1]["cursor"]
        assert len(answers) < 100
    return answers


# -- texts ---------------------------------------------------------------------------------------
def test_a_text_of_the_last_day_is_found_piece_by_piece(
    row: BizReceive, admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "TEXT_SECONDS", 0.0)  # a piece is one batch
    monkeypatch.setattr(engine, "BATCH", 10)
    (new,) = publish(row.biz, 1, PARCEL)
    publish(row.biz, 35)
    done = [message(row, ReceiveMsg.Status.DELIVERED, days=days, payload=PARCEL)
            for days in (0.5, 3)]  # fmt: skip
    answers = pieces(admin_client, "RB123456785CN")
    assert len(answers) > 3
    rows = "".join(answer["rows"] for answer in answers)
    assert f'data-key="notify-{new}"' in rows
    assert f'data-key="notify-{done[0]}"' in rows
    assert str(done[1]) not in rows, "it is older than a day"
    assert all("back to" in answer["range"] for answer in answers[:-1])
    assert "all searched" in answers[-1]["range"]


def test_an_answer_is_searched_too(row: BizReceive, admin_client: Client) -> None:
    answered = message(row, ReceiveMsg.Status.DELIVERED, days=0.9, answer="no RB123456785CN here")
    (answer,) = pieces(admin_client, "RB123456785CN")
    assert str(answered) in answer["rows"]


def test_what_is_shown_is_escaped(row: BizReceive, admin_client: Client) -> None:
    pk = message(row, days=0.1, event_type="<b>x</b>", payload=PARCEL)
    (answer,) = pieces(admin_client, "RB123456785CN")
    assert str(pk) in answer["rows"]
    assert "&lt;b&gt;" in answer["rows"]
    assert "<b>" not in answer["rows"]


@pytest.mark.parametrize("flow", flows.all(), ids=lambda flow: flow.name)
def test_every_flow_searches_texts(flow: Flow, admin_client: Client, sms_redis: Any) -> None:
    for query in ("消息 100%", "' OR 1=1 --"):
        assert all(
            answer["rows"].strip() == "" for answer in pieces(admin_client, query, flow.name)
        )
    for given in ({"q": "ab"}, {"q": "abc\x00"}, {"q": "abc", "cursor": "x"},
                  {"q": "abc", "cursor": "redis:x:1"}):  # fmt: skip
        assert admin_client.get(f"/console/texts/{flow.name}", given).status_code == 400


def test_the_page_says_what_was_not_searched(row: BizReceive) -> None:
    (pk,) = publish(row.biz, 1, PARCEL)
    # Whether a text is there is for those who may see it.
    page = person("masked", "view_bizmsg").get("/console/search?q=RB123456785CN").content.decode()
    assert "data-auto" not in page
    client = person("reader", "view_bizmsg", "view_personal")
    page = client.get("/console/search?q=RB123456785CN").content.decode()
    assert "data-auto" in page
    unseen = page.partition("because you may not see them:")[2].partition("<")[0]
    assert all(title in unseen for title in ("SMS", "Feed", "CRM sync"))
    assert "Notify" not in unseen
    opened = client.get(f"/console/search?find={pk}", follow=True)
    assert opened.redirect_chain == [(f"/console/notify/{pk}", 302)]
    on = f"/console/search?q={pk}&all=1"
    link = on.replace("&", "&amp;")
    assert f'The only hit. <a href="{link}">Search on</a>' in opened.content.decode()
    page = client.get(on).content.decode()
    assert f'data-key="notify-{pk}"' in page
    assert "data-auto" not in page, "the message is found: texts are searched when asked for"
    page = client.get("/console/search?q=RB").content.decode()
    assert "data-texts" not in page
    assert "three characters" in page
    for flow in ("sms", "feed", "crmsync"):
        assert client.get(f"/console/texts/{flow}?q=RB123456785CN").status_code == 403


@pytest.mark.parametrize(
    ("query", "is_searched"),
    [("库存", True), ("库", False), ("ab", False), ("a库", True), ("カナ", True), ("재고", True)],
)
def test_a_chinese_word_has_two_characters(
    row: BizReceive, admin_client: Client, query: str, is_searched: bool
) -> None:
    publish(row.biz, 1, f'{{"text": "{query} 25"}}'.encode())
    page = admin_client.get("/console/search", {"q": query}).content.decode()
    assert ("data-texts" in page) is is_searched
    answer = admin_client.get("/console/texts/notify", {"q": query})
    assert answer.status_code == (200 if is_searched else 400)
    if is_searched:
        assert "order.paid" in answer.json()["rows"]


def test_a_url_finds_who_delivers_there(row: BizReceive, admin_client: Client) -> None:
    url = row.receive.url
    answer = admin_client.get("/console/search", {"q": url})
    ((_flow, hit),) = answer.context["hits"]
    assert hit.link == f"/console/search/notify?subscription={row.pk}"
    assert hit.link in answer.content.decode()
    # Not letter by letter: an address may hold a secret.
    assert admin_client.get("/console/search", {"q": url[:-1]}).context["hits"] == []


# -- fields --------------------------------------------------------------------------------------
def test_names_are_offered_to_who_may_see_the_messages(row: BizReceive) -> None:
    subscription(Biz.objects.create(name="stock"), "shop")
    client = person("reader", "view_bizmsg")
    address = "/console/options/notify/search/subscription"
    for typed in ("ware", "WEB", "orders/w", str(row.pk)):
        (option,) = client.get(address, {"q": typed}).json()["options"]
        assert option == {"value": "orders/warehouse", "label": "Web shop → warehouse"}
    assert len(client.get(address).json()["options"]) == 2
    (biz,) = client.get("/console/options/notify/resend/biz", {"q": "sto"}).json()["options"]
    assert biz["value"] == "stock"
    for event_type in ("order.paid", "order.late", "stock.empty"):
        message(row, days=1, event_type=event_type)
        message(row, days=1, event_type=event_type)
    offered = client.get("/console/options/notify/search/event_type", {"q": "order."}).json()
    assert [each["value"] for each in offered["options"]] == ["order.late", "order.paid"]
    for path in ("notify/messages/channel", "notify/messages/nothing", "notify/nothing/biz"):
        assert client.get(f"/console/options/{path}").status_code == 404
    assert client.get("/console/options/sms/search/account").status_code == 403


@pytest.mark.parametrize("flow", flows.all(), ids=lambda flow: flow.name)
def test_what_a_field_offers_the_flow_takes(flow: Flow, row: BizReceive) -> None:
    pages = [("search", flow.messages.fields)]
    pages += [(name, action.fields) for name, action in flow.actions.items()]
    for page, fields in pages:
        for name, field in fields.items():
            offered = [value for value, _label in field.choices]
            if field.options:
                offered += [option.value for option in field.options("", None)]
            for value in offered:
                assert (
                    page != "search" or engine.find(flow.messages, {name: value}, "", 1) is not None
                ), name


def test_a_time_in_a_link_is_shown_in_the_field(row: BizReceive, admin_client: Client) -> None:
    shown = {
        "2026-11-20T14:30:00+00:00": 'value="2026-11-20T14:30"',
        "2026-11-20": 'value="2026-11-20T00:00"',
        "2026-11-20 14:30:15": 'value="2026-11-20T14:30:15"',
        "soon": 'value="soon"',
    }
    for given, expected in shown.items():
        answer = admin_client.get("/console/search/notify", {"since": given, "biz": "orders"})
        assert expected in answer.content.decode()
    assert "Last night" in answer.content.decode()


# -- saved filters -------------------------------------------------------------------------------
def save(client: Client, name: str, page: str = "search", **fields: str) -> Any:
    given = {f"filter-{field}": value for field, value in fields.items() if field != "shared"}
    shared = {"shared": "on"} if "shared" in fields else {}
    return client.post(f"/console/filters/notify/{page}", {"name": name, **given, **shared})


def test_a_filter_is_saved_seen_and_deleted(row: BizReceive) -> None:
    ann, bob = person("ann", "view_bizmsg"), person("bob", "view_bizmsg")
    answer = save(ann, "failing", biz="orders", status="exhausted")
    assert answer["Location"] == "/console/search/notify?biz=orders&status=exhausted"
    save(ann, "failing", biz="orders", status="poison")  # the same name: replaced
    save(ann, "ours", biz="orders", shared="yes")
    save(ann, "", biz="orders")
    page = ann.get("/console/search/notify").content.decode()
    assert "biz=orders&amp;status=poison" in page
    assert SavedFilter.objects.count() == 2
    page = bob.get("/console/search/notify").content.decode()
    assert "ours" in page
    assert "failing" not in page
    mine, shared = SavedFilter.objects.order_by("id")
    assert bob.post(f"/console/filters/{mine.pk}/delete").status_code == 404
    assert bob.post(f"/console/filters/{shared.pk}/delete").status_code == 403
    assert ann.post(f"/console/filters/{mine.pk}/delete").status_code == 302
    assert list(SavedFilter.objects.all()) == [shared]


def test_all_of_ones_own_are_shown_beside_some_that_others_share(row: BizReceive) -> None:
    ann, bob = person("ann", "view_bizmsg"), User.objects.create_user("bob", is_staff=True)
    SavedFilter.objects.bulk_create(
        SavedFilter(owner=owner, flow="notify", page="search", name=f"a {n:03}", shared=True)
        for owner in (User.objects.get(username="ann"), bob)
        for n in range(saved_filters.SHOWN + 10)
    )
    save(ann, "zebra", biz="orders")
    ann.get("/console/search/notify")  # says once that it was saved
    page = ann.get("/console/search/notify").content.decode()
    assert "zebra" in page
    assert page.count("Delete the filter") == saved_filters.SHOWN + 11
    assert page.count("of bob") == saved_filters.SHOWN


def test_a_filter_of_a_bulk_action_keeps_its_pace(row: BizReceive) -> None:
    client = person("ann", "view_bizmsg", "add_bulkjob", "change_receivemsg")
    answer = save(client, "lost nights", "resend", biz="orders", rate="7")
    assert answer["Location"] == "/console/bulk/notify?action=resend&biz=orders&rate=7"
    assert "lost nights" in client.get(answer["Location"]).content.decode()
    other = client.get("/console/bulk/notify?action=replay").content.decode()
    assert "lost nights" not in other


def test_filters_are_saved_by_who_may_use_them(row: BizReceive) -> None:
    reader, stranger = person("reader", "view_bizmsg"), person("stranger", "add_bulkjob")
    assert save(reader, "again", "resend", biz="orders").status_code == 403
    assert save(stranger, "x", biz="orders").status_code == 403
    assert save(reader, "x", "nothing", biz="orders").status_code == 404
    assert not SavedFilter.objects.exists()


def test_the_role_administrator_may_forget_what_others_share(row: BizReceive) -> None:
    owner = User.objects.create_user("owner", is_staff=True)
    shared, own = (
        SavedFilter.objects.create(owner=owner, flow="notify", page="search", name=name, shared=on)
        for name, on in (("shared", True), ("own", False))
    )
    roles.make()
    for role, allowed in (("operator", False), ("administrator", True)):
        user = User.objects.create_user(role, is_staff=True)
        user.groups.add(Role.objects.get(name=role).group)
        client = Client()
        client.force_login(user)
        addresses = [f"/console/filters/{each.pk}/delete" for each in (shared, own)]
        codes = [client.post(address).status_code for address in addresses]
        assert codes == ([302, 404] if allowed else [403, 404]), role
    assert list(SavedFilter.objects.all()) == [own]
