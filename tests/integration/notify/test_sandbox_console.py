"""Sandboxes and test events in the console: what people see and may do."""

import json
import time
from typing import Any

import pytest
from django.conf import LazySettings
from django.contrib.auth.models import Permission, User
from django.test import Client

from msgplatform import person_limits
from msgplatform.models import AuditLog, Biz
from notify import sandbox_receiver
from notify.admin.publish import sample
from notify.intake import catalogue
from notify.models import BizMsg, BizReceive, EventType, Receive
from notify.subscriptions import sandbox

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
LIST, PUBLISH = "/admin/notify/bizreceive/sandbox/", "/admin/notify/bizreceive/publish/"


@pytest.fixture
def shop() -> Biz:
    catalogue.current.cache_clear()
    return Biz.objects.create(name="shop")


def staff(*permissions: str) -> Client:
    user = User.objects.create_user("staff", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


def make(client: Client, biz: Biz, **values: str) -> str:
    """Make a sandbox; the address of its page."""
    answer = client.post(LIST, {"system": biz.pk, "format": "standard", **values})
    assert answer.status_code == 302, answer.content.decode()
    return str(answer["Location"])


def keep(row: BizReceive, **fields: object) -> None:
    call: dict[str, Any] = {
        "message_id": "42", "headers": {"Webhook-Id": "42"}, "size": 60, "signature": "current",
        "status": 200, "body": '{"type":"order.paid","data":{"name":"Ann Lee"}}', **fields,
    }  # fmt: skip
    sandbox_receiver.store(row.pk).keep(sandbox_receiver.Call(**call))


def test_one_click_makes_a_sandbox(admin_client: Client, shop: Biz) -> None:
    assert b"There is none yet" in admin_client.get(LIST).content
    page = make(admin_client, shop, event_types="order.*")
    row = BizReceive.objects.get()
    assert page == f"/admin/notify/bizreceive/{row.pk}/sandbox/"
    assert (row.receive.name, row.receive.url) == ("sandbox-shop", sandbox.URL)
    assert row.event_types == ["order.*"]
    text = admin_client.get(page).content.decode()
    assert "Nothing came in the last hour" in text
    assert "Publish a test event" in text
    BizReceive.objects.update(status=BizReceive.Status.DISABLED)
    assert make(admin_client, shop, format="cloudevents-binary") == page
    row.refresh_from_db()
    assert (row.status, row.format, row.event_types) == (0, "cloudevents-binary", [])
    assert "shop → Sandbox" in admin_client.get(LIST).content.decode()
    actions = list(AuditLog.objects.order_by("id").values_list("action", flat=True))
    assert actions == ["consumer_added", "subscription_added", "subscription_changed"]
    Receive.objects.update(url="https://elsewhere.example/")
    answer = admin_client.post(LIST, {"system": shop.pk, "format": "standard"})
    assert b"exists already, and is no sandbox" in answer.content
    assert admin_client.get(page).status_code == 404


def test_what_came_is_shown_filtered_and_emptied(admin_client: Client, shop: Biz) -> None:
    page = make(admin_client, shop)
    row = BizReceive.objects.get()
    keep(row, status=503)
    keep(row)
    keep(row, message_id="43", signature=sandbox_receiver.WRONG, body='{"type":"stock.empty"}')
    text = admin_client.get(page).content.decode()
    assert text.count("<details id=") == 3 + 1  # the form is folded, too
    assert "request 2 of this message" in text
    assert "No entry of the signature fits" in text
    assert "/console/notify/42" in text
    for query, count in (
        ({"message": "42"}, 2), ({"event_type": "stock.empty"}, 1), ({"answer": "failed"}, 1),
        ({"message": "44"}, 0),
    ):  # fmt: skip
        live = admin_client.get(page, {**query, "live": "1"}).content.decode()
        assert live.count("<details id=") == count, query
    assert "Nothing that came matches the filter" in live
    admin_client.post(page, {"empty": "1"})
    assert AuditLog.objects.filter(action="sandbox_emptied").count() == 1
    assert "Nothing came in the last hour" in admin_client.get(page).content.decode()


def test_its_behaviour_is_set_for_a_while(admin_client: Client, shop: Biz) -> None:
    page = make(admin_client, shop)
    store = sandbox_receiver.store(BizReceive.objects.get().pk)
    wrong = admin_client.post(page, {"answer": "503", "minutes": "0"}).content.decode()
    assert "greater than or equal to 1" in wrong
    admin_client.post(page, {"answer": "429", "minutes": "5", "retry_after": "7", "count": "2"})
    behaviour = store.behaviour()
    assert (behaviour.answer, behaviour.retry_after, behaviour.count) == ("429", 7, 2)
    assert 0 < behaviour.until - time.time() <= 300
    text = admin_client.get(page).content.decode()
    assert "It answers 429" in text
    assert "for 2 more requests" in text
    admin_client.post(page, {"usual": "1"})
    assert store.behaviour().answer == ""


def test_people_see_and_do_what_they_may(admin_client: Client, shop: Biz) -> None:
    page = make(admin_client, shop)
    keep(BizReceive.objects.get(), headers={"Webhook-Id": "42", "X-Of": "ann@example.com"})
    client = staff("view_bizreceive", "view_bizmsg")
    text = client.get(page).content.decode()
    assert "Ann Lee" not in text
    assert "A****" in text
    assert "ann@example.com" not in text
    assert "Let it answer differently" not in text
    assert "Make it" not in client.get(LIST).content.decode()
    for address, values in ((page, {"usual": "1"}), (LIST, {"system": shop.pk}), (PUBLISH, {})):
        assert client.post(address, values).status_code == 403
    User.objects.all().delete()
    client = staff("view_bizreceive")
    assert client.get(page).status_code == 403
    assert Client().get(page).status_code == 302


def test_limited_people_see_the_sandboxes_of_their_systems_alone(
    admin_client: Client, shop: Biz
) -> None:
    pages = [make(admin_client, biz) for biz in (shop, Biz.objects.create(name="bank"))]
    client = staff("view_bizreceive", "view_bizmsg")
    person_limits.limit_person(User.objects.get(username="staff"), ["shop"], "tests")
    assert [client.get(page).status_code for page in (*pages, LIST)] == [200, 404, 403]


def test_it_can_be_switched_off(admin_client: Client, shop: Biz, settings: LazySettings) -> None:
    page = make(admin_client, shop)
    settings.SANDBOX = False
    assert b"SANDBOX is no" in admin_client.get(page).content
    text = admin_client.get(LIST).content.decode()
    assert "SANDBOX is no" in text
    assert "Make it" not in text
    assert "one click makes it" not in admin_client.get("/console/getting-started").content.decode()


def test_a_test_event_goes_through_the_intake_once(admin_client: Client, shop: Biz) -> None:
    EventType.objects.create(name="order.paid", example={"order": 9})
    EventType.objects.create(
        biz=shop, name="order.sent",
        schema={"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}},
    )  # fmt: skip
    Biz.objects.update(validates_events=True)
    form = admin_client.get(PUBLISH, {"system": "shop", "event_type": "order.sent"}).context["form"]
    start = {"system": "shop", **form.initial}
    assert start["payload"] == '{\n  "n": 1\n}'
    sent = admin_client.post(PUBLISH, start)
    message = BizMsg.objects.get()
    assert sent["Location"] == f"/console/notify/{message.pk}"
    assert (message.biz_id, message.event_type, message.channel) == (shop.pk, "order.sent", "")
    assert admin_client.post(PUBLISH, start)["Location"] == sent["Location"]
    back = admin_client.post(f"{PUBLISH}?next={LIST}", {**start, "key": "console-2"}, follow=True)
    assert back.redirect_chain == [(LIST, 302)]
    assert b"The event was accepted" in back.content
    elsewhere = {**start, "key": "console-3"}
    assert "evil" not in admin_client.get(f"{PUBLISH}?next=https://evil.example/").content.decode()
    answer = admin_client.post(f"{PUBLISH}?next=https://evil.example/", elsewhere)
    assert answer["Location"].startswith("/console/notify/")
    assert BizMsg.objects.count() == 3
    for change, text in (
        ({"payload": '{"a":\r\n 1 "b"}'}, "Line 2, column 4: this is not JSON"),
        ({"payload": '{"n": "x"}'}, "by the JSON Schema of order.sent"),
        ({"event_type": "Order paid!"}, "joined by dots"),
        ({"channel": "a b"}, "at most 64 letters"),
        ({"payload": '{"n": 2}'}, "This form was sent before"),
        ({"system": "nobody"}, "Select a valid choice"),
    ):
        refused = admin_client.post(PUBLISH, {**start, **change})
        assert text in refused.content.decode(), change
    assert BizMsg.objects.count() == 3


def test_a_sample_is_of_the_system_that_is_published_for(admin_client: Client, shop: Biz) -> None:
    till = Biz.objects.create(name="till")
    Biz.objects.create(name="closed", enabled=False)
    EventType.objects.create(biz=shop, name="order.sent", example={"order": 9})
    EventType.objects.create(biz=till, name="receipt.printed", example={"n": 2})
    # From the menu: the first one that may publish, with its own entries.
    page = admin_client.get(PUBLISH)
    assert page.context["types"] == ["order.sent"]
    given = page.context["form"].initial
    assert (given["system"], given["event_type"]) == ("shop", "order.sent")
    page = admin_client.get(PUBLISH, {"system": "till", "event_type": "order.sent"})
    assert page.context["types"] == ["receipt.printed"]
    given = page.context["form"].initial
    assert (given["system"], given["event_type"]) == ("till", "receipt.printed")
    assert json.loads(given["payload"]) == {"n": 2}
    form, _, publish = page.content.decode().partition('<form method="post" class="stacked wide">')
    for text in (form, publish):
        assert text.count('<option value="till" selected>') == 1, "where it can be seen"
    # What was wrong with an event does not change its system.
    values = {**given, "payload": "{"}
    refused = admin_client.post(PUBLISH, values)
    assert refused.context["types"] == ["receipt.printed"]
    assert refused.content.decode().count('<option value="till" selected>') == 2


def test_a_sample_follows_a_schema() -> None:
    schema = {
        "type": "object", "$defs": {"line": {"type": "object", "properties": {"n": {"const": 3}}}},
        "properties": {
            "id": {"type": "string", "format": "uuid"}, "count": {"type": "integer", "minimum": 5},
            "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}, "minItems": 2},
            "state": {"enum": ["paid", "sent"]}, "is_gift": {"type": ["boolean", "null"]},
            "note": {"anyOf": [{"type": "string", "minLength": 6}, {"type": "null"}]},
            "self": {"$ref": "#"}, "nothing": {"type": "null"},
        },
    }  # fmt: skip
    value = sample(schema)
    assert value["lines"] == [{"n": 3}, {"n": 3}]
    assert (value["count"], value["state"], value["is_gift"]) == (5, "paid", True)
    assert (value["note"], value["nothing"]) == ("textxx", None)
    assert sample(True) == sample({}) == {}


def test_a_sample_of_a_small_schema_is_small() -> None:
    reference = {"$ref": "#/$defs/a"}
    tree = {"properties": {f"p{number}": reference for number in range(8)}}
    arrays: dict[str, Any] = {}
    for _ in range(12):
        arrays = {"type": "array", "minItems": 5, "items": arrays}
    text = "x" * 10_000
    texts: dict[str, Any] = {"type": "array", "minItems": 5, "items": {"const": text}}
    names: dict[str, Any] = {**texts, "items": {"properties": {text: {}}}}
    for schema in (
        {**reference, "$defs": {"a": tree}}, arrays,
        {"properties": {f"p{number}": texts for number in range(20)}},
        {"properties": {f"p{number}": names for number in range(20)}},
    ):  # fmt: skip
        assert 1000 < len(json.dumps(sample(schema))) < 100_000
    # No meta-schema is applied to a place of another name.
    unchecked = {"$ref": "#/x", "x": {"type": "array", "minItems": "many"}}
    assert sample(unchecked) == [{}]
