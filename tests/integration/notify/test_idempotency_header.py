"""The key under which a business system handed an event over reaches its receivers: a name that
survives when the event is handed over again after a restore, under a new id."""

import time

import pytest
from django.conf import LazySettings
from django.core.exceptions import ValidationError
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from msgplatform.models import Biz
from notify.intake import intake
from notify.maker.enqueue import INLINE_BYTES
from notify.maker.maker import Maker
from notify.models import BizMsg, IdempotencyKey, Receive, ReceiveMsg
from notify.sender.sender import Sender
from notify.subscriptions import limits
from tests.support.http_sinks import Seen, Sink, answering
from tests.support.notify_rows import subscription

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
NAME = "webhook-idempotency-key"


@pytest.fixture
def biz(settings: LazySettings) -> Biz:
    settings.OUTBOUND_ALLOW = ["127.0.0.0/8"]
    return Biz.objects.create(name="orders")


def publish(biz: Biz, *keys: str | None, payload: bytes = b"1") -> list[int]:
    events = [intake.Event(biz.pk, "order.paid", payload, key) for key in keys]
    return [verdict.id for verdict in intake.publish_many(events)]


def queue_all() -> list[str]:
    """The statements of the maker."""
    with CaptureQueriesContext(
        connection,
    ) as captured:
        maker = Maker()
        while maker.turn():
            pass
    return [query["sql"] for query in captured]


def send(sink: Sink, count: int) -> list[Seen]:
    sender = Sender()
    sender.start()
    try:
        deadline = time.monotonic() + 180
        while len(sink.requests) < count:
            assert time.monotonic() < deadline
            sender.turn()
    finally:
        sender.drain(time.monotonic() + 1)
        sender.stop()
    return sink.requests


def test_it_is_sent_with_every_attempt_where_there_is_one(biz: Biz) -> None:
    with Sink(answering()) as sink:
        Receive.objects.create(name="warehouse", url=sink.url())
        subscription(biz)
        ids = publish(biz, "order-7", None)
        ids += publish(biz, "large", payload=b'"%s"' % (b"x" * INLINE_BYTES))
        queue_all()
        ReceiveMsg.objects.update(status=ReceiveMsg.Status.PENDING, next_at=Now())
        queue_all()  # now as a later attempt, which reads the messages anew
        requests = send(sink, 6)
    seen = {(int(each.headers["webhook-id"]), each.headers.get(NAME)) for each in requests}
    assert seen == set(zip(ids, ("order-7", None, "large"), strict=True))


def test_after_a_restore_the_new_id_has_the_same_key(biz: Biz) -> None:
    """The database went back: message and key are gone, and the system hands it over again."""
    with Sink(answering()) as sink:
        Receive.objects.create(name="warehouse", url=sink.url())
        subscription(biz)
        for _ in range(2):
            publish(biz, "order-7")
            queue_all()
            for model in (BizMsg, IdempotencyKey, ReceiveMsg):
                model.objects.all().delete()
        first, second = send(sink, 2)
    assert first.headers["webhook-id"] != second.headers["webhook-id"]
    assert first.headers[NAME] == second.headers[NAME] == "order-7"


def test_it_costs_no_statement_for_each_message(biz: Biz) -> None:
    subscription(biz)
    counts = []
    for count in (2, 100):
        publish(biz, *(f"{count}-{number}" for number in range(count)))
        counts.append(len([text for text in queue_all() if "FROM idempotency" in text]))
    assert counts[0] == counts[1]


def test_no_further_header_may_have_its_name() -> None:
    with pytest.raises(ValidationError):
        limits.headers_beside("webhook", {"Webhook-Idempotency-Key": "x"})
