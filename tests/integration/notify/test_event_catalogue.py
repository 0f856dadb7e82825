"""The catalogue of event types: in the console, at intake, and in test sends."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from msgplatform.doors.api.access import keys
from msgplatform.models import AuditLog, Biz
from notify.intake import catalogue
from notify.models import BizMsg, EventType, Receive
from notify.monitor import conditions
from tests.support import languages
from tests.support.api_support import problem
from tests.support.fast_intakes import Both, plain
from tests.support.http_sinks import Sink, answering
from tests.support.management import Manager
from tests.support.notify_rows import subscription
from tests.support.sms_rows import Caller

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
TYPES, MESSAGES = "/admin/notify/eventtype/", "/api/v1/messages"
SCHEMA = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
GOOD = {"event_type": "order.paid", "payload": {"n": 1}}
BAD = {"event_type": "order.paid", "payload": {"n": "one"}}


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The catalogue is read again when a test has it forgotten, not because seconds have passed."""
    monkeypatch.setattr(catalogue, "REFRESH_SECONDS", 3600.0)
    keys.forget()
    catalogue.current.cache_clear()
    yield
    keys.forget()
    catalogue.current.cache_clear()


@pytest.fixture
def orders() -> Caller:
    """A system that validates, with a schema that all systems share."""
    caller = Caller("orders", "events:write", "events:read")
    Biz.objects.update(validates_events=True)
    EventType.objects.create(name="order.paid", schema=SCHEMA, example={"n": 1})
    return caller


def test_a_page_without_rights_shows_json_and_no_null(client: Client, orders: Caller) -> None:
    viewer = User.objects.create_user("viewer", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_eventtype"))
    client.force_login(viewer)
    row = EventType.objects.get()
    assert "&quot;n&quot;: 1" in client.get(f"{TYPES}{row.pk}/change/").content.decode()
    EventType.objects.update(schema=None, example=None)
    page = client.get(f"{TYPES}{row.pk}/change/").content.decode()
    assert "null" not in page.partition("<form")[2].partition("</form>")[0]


# -- at intake -----------------------------------------------------------------------------------
def test_a_payload_that_does_not_match_is_refused(orders: Caller) -> None:
    said = problem(orders.post(MESSAGES, BAD), 400, "invalid-input")
    (error,) = said["errors"]
    assert error["field"] == "payload.n"
    assert error["message"] == "'one' is not of type 'integer' (by the JSON Schema of order.paid)"
    assert not BizMsg.objects.exists()
    assert orders.post(MESSAGES, GOOD).status_code == 202
    unlisted = {**BAD, "event_type": "order.unlisted"}
    assert orders.post(MESSAGES, unlisted).status_code == 202


def test_in_a_batch_only_that_event(orders: Caller) -> None:
    answer = orders.post(f"{MESSAGES}/batch", {"messages": [GOOD, BAD, GOOD]}).json()
    assert [each["outcome"] for each in answer["results"]] == ["created", "rejected", "created"]
    rejected = answer["results"][1]
    assert (rejected["code"], rejected["field"]) == ("invalid", "payload.n")
    assert BizMsg.objects.count() == 2


def test_a_repeat_of_what_was_accepted_before_the_schema_changed(orders: Caller) -> None:
    """An Agent that died after the POST sends it again: it must not take the event for dead."""
    event = {**GOOD, "idempotency_key": "order-7"}
    first = orders.post(MESSAGES, event)
    assert first.status_code == 202
    row = EventType.objects.get()
    row.schema = {**SCHEMA, "required": ["n", "currency"]}
    row.save()
    catalogue.current.cache_clear()
    again = orders.post(MESSAGES, event)
    assert (again.status_code, again.json()["outcome"]) == (200, "duplicate")
    assert again.json()["id"] == first.json()["id"]
    other = {**event, "payload": {"n": 2}}
    problem(orders.post(MESSAGES, other), 400, "invalid-input")
    problem(orders.post(MESSAGES, GOOD), 400, "invalid-input")
    new = {"event_type": "order.paid", "payload": {"n": 3, "currency": "CNY"}}
    batch = [
        event,
        other,
        new,
        {**event, "idempotency_key": "order-8"},
        {**event, "event_type": ""},
    ]
    answer = orders.post(f"{MESSAGES}/batch", {"messages": batch}).json()["results"]
    outcomes = [each["outcome"] for each in answer]
    assert outcomes == ["duplicate", "rejected", "created", "rejected", "rejected"]
    assert answer[0]["id"] == first.json()["id"]
    assert BizMsg.objects.count() == 2


def test_who_does_not_validate_pays_nothing(orders: Caller) -> None:
    """Not a statement more than once in seconds, whatever the catalogue says."""
    stock = Caller("stock", "events:write")
    assert stock.post(MESSAGES, BAD).status_code == 202  # knows the key and the catalogue now
    with CaptureQueriesContext(connection) as seen:
        assert stock.post(MESSAGES, BAD).status_code == 202
    assert not [q for q in seen if "event_type" in q["sql"].split("FROM")[-1][:14]]
    assert not [q for q in seen if "validates" in q["sql"]]


def test_an_entry_of_its_own_goes_before_the_shared_one(orders: Caller) -> None:
    own = EventType.objects.create(name="order.paid", biz=orders.biz, schema={"type": "string"})
    assert orders.post(MESSAGES, GOOD).status_code == 400
    assert orders.post(MESSAGES, {**GOOD, "payload": "text"}).status_code == 202
    own.schema = None
    own.save()
    catalogue.current.cache_clear()
    assert orders.post(MESSAGES, BAD).status_code == 202
    own.delete()
    catalogue.current.cache_clear()
    assert orders.post(MESSAGES, BAD).status_code == 400


def test_a_schema_that_was_changed_is_read_again(orders: Caller) -> None:
    """And one that was not is not compiled again."""
    types = catalogue._EventTypes()
    before = types.load().schemas[0, "order.paid"]
    assert types.load().schemas[0, "order.paid"] is before
    row = EventType.objects.get()
    row.schema = {"type": "string"}
    row.save(update_fields=["schema"])
    assert types.load().schemas[0, "order.paid"] is not before


def test_the_process_that_took_a_change_knows_at_once(orders: Caller) -> None:
    """And compiles no schema that it has."""
    manager = Manager()
    assert orders.post(MESSAGES, GOOD).status_code == 202
    compiled = catalogue.current().known.schema(0, "order.paid")
    assert manager.send("PUT", "event-types/order.new", {"schema": SCHEMA}).status_code == 201
    assert orders.post(MESSAGES, {**BAD, "event_type": "order.new"}).status_code == 400
    assert catalogue.current().known.schema(0, "order.paid") is compiled
    for validates, status in ((False, 202), (True, 400)):
        manager.send("PUT", "systems/orders", {"validates_events": validates})
        assert orders.post(MESSAGES, BAD).status_code == status


def test_a_payload_that_is_too_deep_for_its_schema(orders: Caller) -> None:
    EventType.objects.update(schema={"items": {"$ref": "#"}})
    catalogue.current.cache_clear()
    deep = b'{"event_type": "order.paid", "payload": ' + b"[" * 400 + b"]" * 400 + b"}"
    assert orders.post(MESSAGES, deep).status_code in {202, 400}


def test_a_schema_of_an_earlier_release_that_cannot_be_used(orders: Caller) -> None:
    """Nobody knows what it would let in: its events are refused, and doctor says so."""
    unusable = {"properties": {"n": {"pattern": "^(?=.*7)"}}}
    EventType.objects.filter(name="order.paid").update(schema=unusable)
    catalogue.current.cache_clear()
    said = problem(orders.post(MESSAGES, GOOD), 400, "invalid-input")
    assert "until the JSON Schema of order.paid is corrected" in said["detail"]
    assert "^(?=.*7)" in said["detail"]
    (found,) = [each for each in conditions.examine() if "JSON Schema" in each.what]
    assert (found.level, "order.paid" in found.what) == ("bad", True)
    EventType.objects.filter(name="order.paid").update(schema=SCHEMA)
    catalogue.current.cache_clear()
    assert orders.post(MESSAGES, GOOD).status_code == 202
    assert not [each for each in conditions.examine() if "JSON Schema" in each.what]


def test_the_door_says_what_django_says(sms_redis: Any) -> None:
    """The fast intake serves events that match; Django has the words for others, and the schemas
    whose validation may take long."""
    EventType.objects.create(name="order.paid", schema=SCHEMA)
    both = Both()
    try:

        def ask(event: Any) -> tuple[int, int]:
            body = json.dumps(event).encode()
            before = both.fast_intake.served
            ours, theirs = both.ask("POST", MESSAGES, plain(body), body)
            assert ours.comparable() == theirs.comparable()
            return ours.status, both.fast_intake.served - before

        ask(GOOD)  # keys and catalogue are known now
        assert ask(BAD) == (202, 1)
        Biz.objects.update(validates_events=True)
        catalogue.current.cache_clear()
        assert ask(BAD) == (400, 0)
        assert ask(GOOD) == (202, 1)
        assert ask({**BAD, "event_type": "order.unlisted"}) == (202, 1)
        assert ask({**GOOD, "payload": [*range(200)]}) == (400, 0)
        tree = {"properties": {"below": {"$ref": "#"}}}
        EventType.objects.create(name="order.tree", schema=tree)
        EventType.objects.create(name="order.unusable", schema={"pattern": "(?=x)"})
        catalogue.current.cache_clear()
        ask(GOOD)
        assert ask({**GOOD, "event_type": "order.tree"}) == (202, 0)
        assert ask({**GOOD, "event_type": "order.unusable"}) == (400, 0)
        # Beyond the memory for quick validators the slower one decides.
        schema, weight = {"enum": [*range(5_000)]}, 5_000
        count = catalogue.MAX_QUICK_WEIGHT // weight + 1
        EventType.objects.bulk_create(
            EventType(name=f"order.large_{number}", schema=schema) for number in range(count)
        )
        catalogue.current.cache_clear()
        ask(GOOD)
        assert ask({"event_type": "order.large_0", "payload": 7}) == (202, 1)
        assert ask({"event_type": f"order.large_{count - 1}", "payload": 7}) == (202, 0)
        assert ask({"event_type": f"order.large_{count - 1}", "payload": -7}) == (400, 0)
    finally:
        both.loop.close()


# -- in the console ------------------------------------------------------------------------------
def form(**changed: str) -> dict[str, str]:
    given = {"name": "order.paid", "biz": "", "description": "Paid in full.",
             "example": '{"n": 1}', "schema": json.dumps(SCHEMA)}  # fmt: skip
    return {**given, **changed}


@pytest.mark.parametrize(
    ("changed", "field", "words"),
    [
        ({"name": "order paid"}, "name", "joined by dots"),
        ({"example": '{"n": "one"}'}, "example", "payload.n: "),
        ({"example": "{n}"}, "example", "this is not JSON"),
        ({"example": "[NaN]"}, "example", "a number that cannot be stored"),
        ({"example": '{"n": 1e999}'}, "example", "a number that cannot be stored"),
        ({"example": '"\\ud800"'}, "example", "half a character"),
        ({"example": "[" * 100_000}, "example", "nested too deeply"),
        ({"schema": '{"title": "\\ud800"}'}, "schema", "half a character"),
        ({"schema": '{"minimum": -Infinity}'}, "schema", "a number that cannot be stored"),
        ({"schema": '{"type": "text"}'}, "schema", "not a JSON Schema"),
        ({"schema": '{"$ref": "https://example.com/"}'}, "schema", "not followed"),
        ({"schema": '{"pattern": "(?=x)"}'}, "schema", "Look-ahead"),
        ({"schema": "[]"}, "schema", "Write an object"),
    ],
)
def test_the_form_says_what_is_wrong(
    admin_client: Client, changed: dict[str, str], field: str, words: str
) -> None:
    answer = admin_client.post(f"{TYPES}add/", form(**changed))
    assert answer.status_code == 200
    errors = answer.context["adminform"].form.errors
    assert list(errors) == [field]
    assert words in str(errors[field])
    assert not EventType.objects.exists()


def test_the_form_says_it_in_the_readers_language(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    languages.translate_all(monkeypatch)
    given = form(schema='{"$ref": "#/none"}')
    answer = admin_client.post(f"{TYPES}add/", given, headers=languages.CHINESE)
    (words,) = answer.context["adminform"].form.errors["schema"]
    assert words == "译 #/none leads nowhere in this schema."


def test_made_changed_found_and_deleted(admin_client: Client) -> None:
    assert admin_client.post(f"{TYPES}add/", form()).status_code == 302
    row = EventType.objects.get()
    assert (row.example, row.schema, row.owner) == ({"n": 1}, SCHEMA, 0)
    again = admin_client.post(f"{TYPES}add/", form())
    assert "has this event type already" in again.content.decode()
    biz = Biz.objects.create(name="orders")
    own = admin_client.post(f"{TYPES}add/", form(biz=str(biz.pk), schema="", example=""))
    assert own.status_code == 302
    listed = admin_client.get(f"{TYPES}?q=full").context["cl"].result_list
    assert [(found.owner, found.with_schema) for found in listed] == [(0, True), (biz.pk, False)]
    changed = form(description="Otherwise.")
    assert admin_client.post(f"{TYPES}{row.pk}/change/", changed).status_code == 302
    entry = AuditLog.objects.latest("id")
    assert (entry.action, entry.target) == ("event_type_changed", "order.paid")
    assert entry.detail["changes"] == {"description": ["Paid in full.", "Otherwise."]}
    assert admin_client.post(f"{TYPES}{row.pk}/delete/", {"post": "yes"}).status_code == 302
    entry = AuditLog.objects.latest("id")
    assert (entry.action, entry.target) == ("event_type_deleted", "order.paid")


def test_one_with_personal_fields_stays_for_erasures(admin_client: Client) -> None:
    row = EventType.objects.create(name="order.paid", personal_fields=["/name"])
    page = admin_client.get(f"{TYPES}{row.pk}/change/").context["adminform"].form
    assert not {"name", "biz"} & page.fields.keys()
    assert admin_client.post(f"{TYPES}{row.pk}/delete/", {"post": "yes"}).status_code == 403
    manager = Manager("manage:event-types")
    assert manager.send("DELETE", "event-types/order.paid").status_code == 409
    EventType.objects.update(personal_fields=[])
    assert manager.send("DELETE", "event-types/order.paid").status_code == 204


def test_one_is_given_to_a_system(admin_client: Client) -> None:
    biz, row = Biz.objects.create(name="stock"), EventType.objects.create(name="order.paid")
    changed = form(biz=str(biz.pk))
    assert admin_client.post(f"{TYPES}{row.pk}/change/", changed).status_code == 302
    row.refresh_from_db()
    assert (row.biz, row.owner) == (biz, biz.pk)


def test_a_key_without_a_system_has_management_scopes_only(admin_client: Client) -> None:
    biz = Biz.objects.create(name="orders")
    add = "/admin/msgplatform/apikey/add/"
    for owner, scope in ((biz.pk, "manage:keys"), ("", "events:write")):
        answer = admin_client.post(add, {"biz": owner, "name": "k", "scopes": [scope]})
        assert answer.status_code == 200
        assert f"cannot have the scope {scope}" in answer.content.decode()
    answer = admin_client.post(add, {"biz": "", "name": "deploy", "scopes": ["manage:keys"]})
    assert answer.status_code == 302
    shown = admin_client.get(answer["Location"])
    assert "Management key" in shown.content.decode()
    caller = keys.verify(shown.context["secret"])
    assert caller is not None
    assert caller.scopes == {"manage:keys"}


# -- test sends ----------------------------------------------------------------------------------
def test_any_event_type_and_payload(admin_client: Client, orders: Caller, settings: Any) -> None:
    settings.OUTBOUND_ALLOW = ["127.0.0.0/8"]
    row = subscription(orders.biz, "till")
    EventType.objects.create(name="own.type", biz=orders.biz, example=["<b>", 2])
    EventType.objects.create(name="foreign.type", biz=Biz.objects.create(name="stock"))
    address = f"/admin/notify/bizreceive/{row.pk}/test/"
    shown = admin_client.get(f"{address}?event_type=own.type")
    assert shown.context["form"]["payload"].value() == '[\n  "<b>",\n  2\n]'
    page = shown.content.decode()
    assert "foreign.type" not in page
    assert "webhook.test" in page
    form = page.partition('<form method="post" class="stacked wide"')[2].partition("</form>")[0]
    assert '<option value="own.type" selected>' in form
    assert '<option value="order.paid">' in form, "chosen in the form that sends it"
    assert 'type="hidden" name="event_type"' not in form
    with Sink(answering()) as sink:
        Receive.objects.update(url=sink.url(), headers={"X-Api-Key": "s3cret"})
        sent = {"event_type": "order.paid", "payload": '{"n":  "one"}'}
        page = admin_client.post(address, sent).content.decode()
        (seen,) = sink.requests
        for wrong in ({**sent, "payload": "{"}, {**sent, "event_type": "not.there"}):
            answer = admin_client.post(address, wrong)
            assert answer.context["form"].errors
        assert len(sink.requests) == 1
    body = json.loads(seen.body)
    assert (body["type"], body["data"]) == ("order.paid", {"n": "one"})
    assert b'"data":{"n":  "one"}' in seen.body, "as it was written"
    assert "The payload does not match the JSON Schema: payload.n" in page
    assert f"webhook-id: {seen.headers['webhook-id']}" in page
    assert seen.headers["webhook-signature"] in page.replace("&#x3D;", "=").replace("&#x2B;", "+")
    assert "X-Api-Key: •••" in page
    assert "s3cret" not in page
    assert AuditLog.objects.latest("id").detail == {"event_type": "order.paid"}


def test_who_may_only_look_cannot_change_the_catalogue(orders: Caller) -> None:
    user = User.objects.create_user("looker", password="x", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename="view_eventtype"))
    client = Client()
    client.force_login(user)
    row = EventType.objects.get()
    page = client.get(f"{TYPES}{row.pk}/change/").content.decode()
    assert "_save" not in page
    assert client.post(f"{TYPES}add/", form()).status_code == 403
    assert client.post(f"{TYPES}{row.pk}/delete/", {"post": "yes"}).status_code == 403
