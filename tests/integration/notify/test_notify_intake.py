"""Intake: durable before it answers, one message per key, exact bytes."""

import threading
from typing import Any

import pytest
from django.db import connection, transaction

from msgplatform.core.data import ids
from msgplatform.core.errors import InvalidInput
from msgplatform.core.intake.verdicts import Verdict
from msgplatform.models import Biz
from notify.intake import intake
from notify.models import BizMsg, IdempotencyKey

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def biz() -> Biz:
    return Biz.objects.create(name="orders")


def event(
    biz: Biz, key: str | None = None, payload: bytes = b'{"n":1}', **more: Any
) -> intake.Event:
    return intake.Event(biz.pk, more.pop("event_type", "order.paid"), payload, key, **more)


def test_the_exact_bytes_are_kept(biz: Biz) -> None:
    payloads = [b'{ "a" : 1.00 }', '{"名":"小米 📱"}'.encode(), b"null", b'"\\u0000"', b"1e5"]
    verdicts = intake.publish_many([event(biz, payload=payload) for payload in payloads])
    assert [v.outcome for v in verdicts] == ["created"] * len(payloads)
    stored = {m.pk: bytes(m.payload) for m in BizMsg.objects.all()}
    assert [stored[v.id] for v in verdicts] == payloads


def test_a_repeat_gets_the_first_ones_id(biz: Biz) -> None:
    (first,) = intake.publish_many([event(biz, "k1")])
    (again,) = intake.publish_many([event(biz, "k1")])
    assert (again.outcome, again.id) == ("duplicate", first.id)
    assert BizMsg.objects.count() == 1


def test_a_repeat_within_one_batch(biz: Biz) -> None:
    verdicts = intake.publish_many([event(biz, "k1"), event(biz, "k2"), event(biz, "k1")])
    assert [v.outcome for v in verdicts] == ["created", "created", "duplicate"]
    assert verdicts[2].id == verdicts[0].id
    assert BizMsg.objects.count() == 2


@pytest.mark.parametrize(
    "changed", [{"payload": b'{"n":2}'}, {"event_type": "order.sent"}, {"channel": "eu"}]
)
def test_another_payload_under_the_same_key_is_a_conflict(biz: Biz, changed: dict) -> None:
    intake.publish_many([event(biz, "k1")])
    (verdict,) = intake.publish_many([event(biz, "k1", **changed)])
    assert (verdict.outcome, verdict.code, verdict.field) == (
        "rejected", "conflict", "idempotency_key",
    )  # fmt: skip
    assert BizMsg.objects.count() == 1


def test_keys_are_compared_byte_by_byte(biz: Biz) -> None:
    verdicts = intake.publish_many([event(biz, "key"), event(biz, "KEY"), event(biz, "key.")])
    assert [v.outcome for v in verdicts] == ["created"] * 3


def test_the_same_key_of_two_systems_is_two_messages(biz: Biz) -> None:
    other = Biz.objects.create(name="stock")
    verdicts = intake.publish_many([event(biz, "k"), event(other, "k")])
    assert [v.outcome for v in verdicts] == ["created", "created"]


def test_message_and_key_share_id_and_bucket(biz: Biz) -> None:
    (verdict,) = intake.publish_many([event(biz, "k1")])
    key = IdempotencyKey.objects.get()
    assert key.pk == verdict.id
    assert key.bucket == ids.bucket_of(verdict.id) == ids.bucket(biz.pk, "k1")


@pytest.mark.parametrize(
    ("field", "changed"),
    [
        ("event_type", {"event_type": ""}),
        ("event_type", {"event_type": "a b"}),
        ("event_type", {"event_type": "a..b"}),
        ("event_type", {"event_type": 'x","data":1'}),
        ("event_type", {"event_type": "x" * 129}),
        ("channel", {"channel": "x" * 65}),
        ("channel", {"channel": "a b"}),
        ("idempotency_key", {"key": ""}),
        ("idempotency_key", {"key": "a b"}),
        ("idempotency_key", {"key": "名"}),
        ("idempotency_key", {"key": "x" * 129}),
        ("payload", {"payload": b""}),
        ("payload", {"payload": b"{"}),
        ("payload", {"payload": b"\xff"}),
        ("payload", {"payload": b'"' + b"x" * 256 * 1024 + b'"'}),
        ("payload", {"payload": b"[" * 100_000}),
    ],
)
def test_every_refusal_names_its_field(biz: Biz, field: str, changed: dict) -> None:
    wrong = event(biz, **changed)
    good = event(biz)
    with pytest.raises(InvalidInput) as caught:
        intake.publish(wrong)
    assert caught.value.field == field
    rejected, created = intake.publish_many([wrong, good])
    assert (rejected.outcome, rejected.field) == ("rejected", field)
    assert rejected.reason
    assert created.outcome == "created", "one bad event does not refuse its neighbours"


def test_publishing_inside_a_transaction_is_refused(biz: Biz) -> None:
    """The answer would be given before the caller's commit."""
    with transaction.atomic(), pytest.raises(RuntimeError):
        intake.publish_many([event(biz)])


def test_many_threads_with_common_keys_make_one_message_a_key(biz: Biz) -> None:
    threads, keys = 8, [f"key-{n}" for n in range(60)]
    answers: list[dict[str, int]] = [{} for _ in range(threads)]
    errors: list[Exception] = []

    def run(mine: dict[str, int], order: list[str]) -> None:
        try:
            for start in range(0, len(order), 20):
                part = order[start : start + 20]
                verdicts = intake.publish_many([event(biz, key) for key in part])
                mine.update({k: v.id for k, v in zip(part, verdicts, strict=True)})
        except Exception as error:
            errors.append(error)
        finally:
            connection.close()

    workers = [
        threading.Thread(target=run, args=(mine, keys[n * 7 :] + keys[: n * 7]))
        for n, mine in enumerate(answers)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not errors
    assert all(mine == answers[0] for mine in answers)
    assert BizMsg.objects.count() == len(keys)


def test_single_requests_share_commits(biz: Biz) -> None:
    """Sixteen callers at once; every one gets its own id."""
    verdicts: list[Verdict] = []
    workers = [
        threading.Thread(target=lambda: verdicts.append(intake.publish(event(biz))))
        for _ in range(16)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len({v.id for v in verdicts}) == 16 == BizMsg.objects.count()
