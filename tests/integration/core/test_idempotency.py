"""Idempotency keys on a table that a flow names: each item is stored once."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection

from msgplatform.core.data import ids
from msgplatform.core.intake import idempotency
from msgplatform.core.intake.idempotency import Item
from notify.models import IdempotencyKey

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]


class Stored:
    """Notes the items that it is to insert."""

    def __init__(self) -> None:
        self.items: list[Item[str]] = []

    def __call__(self, items: Sequence[Item[str]], now: Any) -> None:
        self.items += items


@pytest.fixture
def stored() -> Stored:
    return Stored()


def item(body: str, key: str | None) -> Item[str]:
    return idempotency.item(body, 1, key, body.encode())


def test_only_new_items_are_inserted(stored: Stored) -> None:
    (old,) = idempotency.store([item("a", "k1")], IdempotencyKey, stored)
    verdicts = idempotency.store(
        [item("a", "k1"), item("other", "k1"), item("b", "k2"), item("b", "k2"), item("c", None)],
        IdempotencyKey,
        stored,
    )
    assert [(v.outcome, v.code) for v in verdicts] == [
        ("duplicate", ""), ("rejected", "conflict"), ("created", ""), ("duplicate", ""),
        ("created", ""),
    ]  # fmt: skip
    assert verdicts[0].id == old.id
    assert verdicts[3].id == verdicts[2].id
    assert [(each.body, each.id) for each in stored.items] == [
        ("a", old.id), ("b", verdicts[2].id), ("c", verdicts[4].id),
    ]  # fmt: skip


def test_keys_that_differ_in_case_are_two(stored: Stored) -> None:
    verdicts = idempotency.store([item("a", "k"), item("b", "K")], IdempotencyKey, stored)
    assert [verdict.outcome for verdict in verdicts] == ["created", "created"]
    # The migration that asked for it may have run in another process.
    collation = IdempotencyKey._meta.get_field("key").db_parameters(connection).get("collation")
    assert collation == ("utf8mb4_bin" if connection.vendor == "mysql" else None)


def test_a_key_is_free_again_when_its_item_could_not_be_stored(stored: Stored) -> None:
    def fail(items: Sequence[Item[str]], now: Any) -> None:
        raise ValueError("too long")

    with pytest.raises(ValueError, match="too long"):
        idempotency.store([item("a", "k")], IdempotencyKey, fail)
    assert not IdempotencyKey.objects.exists()
    assert idempotency.store([item("b", "k")], IdempotencyKey, stored)[0].outcome == "created"


def test_many_at_once_with_the_same_keys_store_each_once(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ids, "_WAIT_SECONDS", 60.0)  # one thread reserves ids for all

    def send(_: int) -> list[str]:
        try:
            items = [item("x", f"k{n}") for n in range(50)]
            return [v.outcome for v in idempotency.store(items, IdempotencyKey, stored)]
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        outcomes = [outcome for sent in pool.map(send, range(8)) for outcome in sent]
    assert (outcomes.count("created"), outcomes.count("duplicate")) == (50, 350)
    assert IdempotencyKey.objects.count() == 50
