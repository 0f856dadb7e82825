"""Payloads encrypted at rest: in the tables, the archive and Redis; not for those who may read."""

import json
import signal
import time
from collections.abc import Callable
from io import StringIO
from itertools import count
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.utils import translation

from msgplatform import person_limits
from msgplatform.core.connections import work_redis as redis_of_work
from msgplatform.core.daemons.snapshot import Snapshot
from msgplatform.core.data import sql
from msgplatform.core.errors import InvalidInput, Unavailable
from msgplatform.core.secrets import encryption, reencrypt
from msgplatform.core.secrets.encryption import State
from msgplatform.models import Alert, Biz
from notify.archive import stores
from notify.archive.restore import restore
from notify.directory import Subscription, from_row
from notify.flow import FLOW
from notify.intake import intake
from notify.listening.leases import lease_next
from notify.maker.maker import Maker
from notify.messages.index import MESSAGES, with_text
from notify.models import BizMsg, BizReceive, ColdBizMsg, Receive, ReceiveMsg
from tests.integration.notify.api_caller import MESSAGES as API, Caller
from tests.support import archive_support
from tests.support.archive_support import archive, message
from tests.support.children import child
from tests.support.http_sinks import Sink, answering
from tests.support.management import Manager
from tests.support.notify_rows import publish, subscription
from tests.support.notify_turns import run_until

pytestmark = [
    pytest.mark.both_databases,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("work_redis"),
]
place = archive_support.place
OLD, NEW = (encryption.new_key() for _ in range(2))
PAYLOAD = '{"card":"4111 1111","名":"中文","n":1.10}'.encode()
NEEDLES = ("4111 1111", "中文", "\\u4e2d")
DELIVERED = ReceiveMsg.Status.DELIVERED


@pytest.fixture(autouse=True)
def _settings(settings: Any) -> Any:
    settings.OUTBOUND_ALLOW = ["127.0.0.0/8"]
    settings.ENCRYPTION_KEYS = (OLD,)
    Snapshot.expire_all()
    yield
    Snapshot.expire_all()


@pytest.fixture
def biz() -> Biz:
    return Biz.objects.create(name="orders", encrypts_payloads=True)


def in_tables() -> str:
    with connection.cursor() as cursor:
        texts = []
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)}")
            texts += [_text(value) for row in cursor.fetchall() for value in row]
    return "\n".join(texts)


def in_redis() -> str:
    client: Any = redis_of_work()
    values: list[Any] = []
    for key in client.scan_iter():
        kind = client.type(key)
        values += client.hgetall(key).values() if kind == b"hash" else []
        values += client.lrange(key, 0, -1) if kind == b"list" else []
    return "\n".join(map(_text, values))


def _text(value: Any) -> str:
    return (
        bytes(value).decode("utf-8", "replace")
        if isinstance(value, bytes | memoryview)
        else str(value)
    )


def holds(text: str) -> bool:
    return any(needle in text for needle in NEEDLES)


def stored(pk: int, model: Any = BizMsg) -> bytes:
    return bytes(model.objects.get(pk=pk).payload)


def test_it_is_nowhere_in_clear_but_at_the_consumer_and_for_those_who_may_read(
    biz: Biz, admin_client: Client
) -> None:
    with Sink(answering()) as sink:
        row = subscription(biz)
        Receive.objects.update(url=sink.url())
        (pk,) = publish(biz, payload=PAYLOAD)
        Maker().turn()
        assert encryption.is_sealed(stored(pk))
        waiting = in_redis()
        assert "enc1:" in waiting, "the order has it, sealed"
        run_until(lambda: ReceiveMsg.objects.filter(status=DELIVERED).exists())
    (seen,) = sink.requests
    assert PAYLOAD in seen.body, "byte for byte"
    assert json.loads(seen.body)["data"]["名"] == "中文"
    assert not holds(waiting + in_redis() + in_tables())
    with translation.override("en"):
        assert "4111 1111" in admin_client.get(f"/console/notify/{pk}").content.decode()
    kept = FLOW.messages.file(str(pk))
    assert kept is not None
    assert kept.content == PAYLOAD
    assert row.pk


def test_the_api_shows_it_to_its_owner() -> None:
    caller = Caller("orders")
    Biz.objects.update(encrypts_payloads=True)
    answer = caller.post(API, {"event_type": "order.paid", "payload": json.loads(PAYLOAD)})
    pk = answer.json()["id"]
    assert encryption.is_sealed(stored(int(pk)))
    shown = caller.get(f"{API}/{pk}?expand=payload").json()
    assert shown["payload"] == json.loads(PAYLOAD)


def listened(biz: Biz) -> Subscription:
    """The subscription of a listener, with one delivery that is due."""
    row = subscription(biz, "laptop")
    Receive.objects.update(delivery="listen")
    publish(biz, payload=PAYLOAD)
    maker = Maker()
    while maker.turn():
        pass
    row.refresh_from_db()
    return from_row(row)


def test_a_listener_gets_it_in_clear(biz: Biz) -> None:
    lease = lease_next(listened(biz))
    assert lease is not None
    assert PAYLOAD in lease.request.body


def test_a_listener_s_delivery_waits_for_a_missing_key(biz: Biz, settings: Any) -> None:
    laptop = listened(biz)
    settings.ENCRYPTION_KEYS = (NEW,)
    with pytest.raises(Unavailable, match="encrypted: no key"):
        lease_next(laptop)
    delivery = ReceiveMsg.objects.get()
    assert (delivery.status, delivery.claimed_by) == (ReceiveMsg.Status.PENDING, "")
    settings.ENCRYPTION_KEYS = (NEW, OLD)
    lease = lease_next(laptop)
    assert lease is not None
    assert PAYLOAD in lease.request.body


def test_a_repeated_request_is_a_duplicate_and_other_systems_stay_clear(biz: Biz) -> None:
    event = intake.Event(biz.pk, "order.paid", PAYLOAD, "key-1")
    first, second = intake.publish_many([event])[0], intake.publish_many([event])[0]
    assert (second.outcome, second.id) == ("duplicate", first.id)
    other = Biz.objects.create(name="stock")
    (pk,) = publish(other, payload=PAYLOAD)
    assert stored(pk) == PAYLOAD


def test_it_stays_sealed_in_the_archive_and_comes_back(biz: Biz, place: str) -> None:
    row = subscription(biz)
    pk = message(row, ReceiveMsg.Status.EXHAUSTED, days=40, payload=encryption.seal(PAYLOAD))
    archive()
    assert encryption.is_sealed(stored(pk, ColdBizMsg))
    kept = FLOW.messages.file(str(pk))
    assert kept is not None
    assert kept.content == PAYLOAD
    restore([pk], lambda: 0)
    assert encryption.unseal(stored(pk)) == PAYLOAD


def test_the_key_is_rotated_in_both_stores(
    biz: Biz, place: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reencrypt, "_SPAN", 2)  # also where no row of a span is sealed
    row = subscription(biz)
    for _ in range(5):
        message(row, DELIVERED, days=20, payload=PAYLOAD)
    archived = [
        message(row, DELIVERED, days=10, payload=encryption.seal(PAYLOAD)) for _ in range(3)
    ]
    archive()
    hot = publish(biz, 3, payload=PAYLOAD)
    for _ in range(5):
        message(row, DELIVERED, days=1, payload=PAYLOAD)
    clear = message(row, DELIVERED, days=1, payload=PAYLOAD)
    settings.ENCRYPTION_KEYS = (NEW, OLD)
    call_command("rotate_encryption_key", verbosity=0)
    settings.ENCRYPTION_KEYS = (NEW,)
    for pk, model in [(pk, BizMsg) for pk in hot] + [(pk, ColdBizMsg) for pk in archived]:
        assert encryption.unseal(stored(pk, model)) == PAYLOAD
    assert stored(clear) == PAYLOAD
    for column in reencrypt.sealed_columns():
        for states in reencrypt.renew_sealed(column):
            assert set(states) == {State.CURRENT}
    settings.ENCRYPTION_KEYS = (OLD,)
    with pytest.raises(CommandError, match="Keep all keys"):
        call_command("rotate_encryption_key", verbosity=0)


def test_a_rotation_that_was_killed_goes_on(biz: Biz, settings: Any) -> None:
    row, sealed = subscription(biz), encryption.seal(PAYLOAD)
    for _ in range(reencrypt.SEALED_PAGE + 1):
        message(row, DELIVERED, payload=sealed)
    settings.ENCRYPTION_KEYS = (NEW, OLD)
    rotate = (
        'from django.core.management import call_command; call_command("rotate_encryption_key")'
    )
    variables = {"ENCRYPTION_KEY": f"{NEW},{OLD}", "MSGPLATFORM_FAILPOINT": "reencrypt.sealed_page"}
    with child(rotate, **variables) as killed:
        assert killed.ended() == -signal.SIGKILL
    assert BizMsg.objects.filter(payload=sealed).count() == 1
    call_command("rotate_encryption_key", verbosity=0)
    settings.ENCRYPTION_KEYS = (NEW,)
    payloads = {encryption.unseal(bytes(each.payload)) for each in BizMsg.objects.all()}
    assert payloads == {PAYLOAD}


class Meanwhile(StringIO):
    """The command's output, in which something happens after each page of the archive."""

    def __init__(self, change: Callable[[], Any]) -> None:
        super().__init__()
        self._change = change

    def write(self, text: str) -> int:
        if "ColdBizMsg" in text:
            self._change()
        return super().write(text)


@pytest.mark.parametrize("reading", [1, 2])
def test_a_payload_that_moves_to_the_archive_meanwhile_is_rotated(
    biz: Biz, place: str, settings: Any, reading: int
) -> None:
    row, sealed = subscription(biz), encryption.seal(PAYLOAD)
    message(row, DELIVERED, days=10, payload=sealed)
    archive()
    # Older: it comes to lie before the place at which the command is.
    message(row, DELIVERED, days=40, payload=sealed)
    readings = count(1)
    settings.ENCRYPTION_KEYS = (NEW, OLD)
    output = Meanwhile(lambda: archive() if next(readings) == reading else None)
    call_command("rotate_encryption_key", stdout=output)
    assert ColdBizMsg.objects.count() == 2
    settings.ENCRYPTION_KEYS = (NEW,)
    payloads = [bytes(each) for each in ColdBizMsg.objects.values_list("payload", flat=True)]
    assert [encryption.unseal(each) for each in payloads] == [PAYLOAD] * 2
    assert "values under an old key: 0" in output.getvalue()


def test_a_program_that_still_writes_with_the_old_key_is_named(biz: Biz, settings: Any) -> None:
    row, sealed = subscription(biz), encryption.seal(PAYLOAD)
    message(row, DELIVERED, days=10, payload=sealed)
    archive()
    settings.ENCRYPTION_KEYS = (NEW, OLD)
    output = Meanwhile(lambda: ColdBizMsg.objects.update(payload=sealed))
    with pytest.raises(CommandError, match="written with an old key"):
        call_command("rotate_encryption_key", stdout=output)


def test_a_missing_key_is_said_and_the_message_waits_for_it(
    biz: Biz, settings: Any, admin_client: Client
) -> None:
    with Sink(answering()) as sink:
        subscription(biz, schedule=[])
        Receive.objects.update(url=sink.url())
        (pk,) = publish(biz, payload=PAYLOAD)
        consumer = Receive.objects.get()  # its secret is under the old key, too
        secret = consumer.secret
        settings.ENCRYPTION_KEYS = (NEW,)
        consumer.secret, consumer.headers = secret, {}
        consumer.save()
        run_until(lambda: ReceiveMsg.objects.filter(error="encrypted").exists())
        assert sink.requests == []
        delivery = ReceiveMsg.objects.get()
        assert (delivery.status, delivery.send_times) == (ReceiveMsg.Status.PENDING, 0)
        row = BizReceive.objects.get()
        assert (row.failing_since, row.status) == (None, BizReceive.Status.NORMAL)
        assert "ENCRYPTION_KEY" in Alert.objects.get(key="notify.encrypted").text
        with pytest.raises(Unavailable, match="Add the key"):
            FLOW.messages.page(str(pk), "")
        assert admin_client.get(f"/console/notify/{pk}").status_code == 503
        settings.ENCRYPTION_KEYS = (NEW, OLD)
        ReceiveMsg.objects.update(next_at=sql.now())  # a minute is over
        run_until(lambda: ReceiveMsg.objects.filter(status=DELIVERED).exists())
    assert PAYLOAD in sink.requests[0].body


def test_a_search_says_that_it_cannot_look_into_them(biz: Biz, settings: Any) -> None:
    with pytest.raises(InvalidInput, match="encrypted, and cannot be searched"):
        MESSAGES.check({"text": "card", "biz": biz.pk})
    with translation.override("en"):
        assert MESSAGES.search_warning(None) == "Encrypted payloads are not searched: orders."
    Biz.objects.create(name="cellar", encrypts_payloads=True)
    anna = User.objects.create_superuser("anna")
    person_limits.limit_person(anna, ["cellar"], "boss")
    client = Client()
    client.force_login(anna)
    (notice,) = client.get("/console/search", {"q": "card"}).context["notices"]
    assert ("cellar" in notice, "orders" in notice) == (True, False)
    (sealed,) = publish(biz, payload=PAYLOAD)
    other = Biz.objects.create(name="stock")
    (clear,) = publish(other, payload=b'{"x":"gAAAA"}')
    assert with_text(stores.hot(), {"text": "gAAAA"}, [sealed, clear]) == {clear}


def test_the_setting_is_seen_within_seconds_and_in_the_api(biz: Biz) -> None:
    manager = Manager()
    shown = manager.send("PUT", "systems/orders", {"encrypts_payloads": True}).json()
    assert shown["encrypts_payloads"] is True
    assert manager.send("PUT", "systems/orders", {}).json()["encrypts_payloads"] is False
    (pk,) = publish(biz, payload=PAYLOAD)
    assert stored(pk) == PAYLOAD
    Biz.objects.update(encrypts_payloads=True)
    deadline = time.monotonic() + 120
    while not encryption.is_sealed(stored(publish(biz, payload=PAYLOAD)[0])):
        assert time.monotonic() < deadline, "the change was not seen"
        time.sleep(0.1)
