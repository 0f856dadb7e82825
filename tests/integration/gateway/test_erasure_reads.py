"""What an erasure reads of the SMS Redis, which answers nobody else meanwhile."""

from typing import Any

import msgspec
import pytest

from gateway import person_data
from gateway.lifecycle import archived_store, keys, store
from gateway.lifecycle.archived_store import Batch
from msgplatform.company.person_data import people
from msgplatform.core.data import ids
from msgplatform.core.person.stores import Row
from tests.support import sms_rows
from tests.support.person_world import ANN, BOB
from tests.support.sms_rows import Caller

shop = sms_rows.shop
pytestmark = pytest.mark.django_db(transaction=True)


def erase(name: str) -> list[str]:
    """One pass over this store; returns the keys of the rows that it met."""
    person = people.person_of({"phones": [ANN.phone]})
    (of_name,) = [each for each in person_data.stores() if each.name == name]
    cursor, keys_met = "", list[str]()
    while True:
        part = of_name.find(person, cursor)
        of_name.erase(person, part.rows)
        keys_met += [row.key for row in part.rows]
        if not (cursor := part.cursor):
            return keys_met


def bytes_sent(redis: Any) -> int:
    return int(redis.info("stats")["total_net_output_bytes"])


def test_lists_and_sets_of_ids_are_not_read(shop: Caller, sms_redis: Any) -> None:
    message = sms_rows.send(shop.biz, to=ANN.phone)
    gateway, many = 7, [str(ids.new(0)) for _ in range(5_000)]
    for key in (keys.LIST_REPORT, keys.LIST_FINISH, keys.LIST_MO, keys.LIST_MO_FINISH,
                keys.pending(gateway), keys.pending(gateway, 9)):  # fmt: skip
        sms_redis.rpush(key, *many)
    for key in (keys.SUBMITED, keys.RESPONSE_SUCC, keys.RESPONSE_FAIL):
        sms_redis.sadd(key, *many)
    for key in (keys.REPORT_DUE, keys.REPORTING, keys.FINISHING, keys.MO_REPORTING,
                keys.MO_FINISHING, keys.scheduled(gateway), keys.claimed(gateway),
                keys.submit_due(gateway)):  # fmt: skip
        sms_redis.zadd(key, dict.fromkeys(many, 1.0))
    sms_redis.rpush(keys.LIST_UNMATCHED, f'{{"user": "86{ANN.phone}"}}')
    sms_redis.zadd(keys.MO_PARTS, {keys.mo_part(f"86{ANN.phone}", "10655", 1, 2): 1.0})
    before = bytes_sent(sms_redis)
    met = set(erase("sms.open"))
    assert bytes_sent(sms_redis) - before < 100_000
    assert {keys.mt(int(message)), keys.LIST_UNMATCHED, keys.MO_PARTS} <= met


def test_no_list_is_searched_for_texts_that_end(shop: Caller, sms_redis: Any) -> None:
    """LREM reads a list to its end, once for each text."""
    messages = [sms_rows.send(shop.biz, to=ANN.phone) for _ in range(3)]
    person = people.person_of({"phones": [ANN.phone]})
    (of_open,) = [each for each in person_data.stores() if each.name == "sms.open"]
    sms_redis.config_resetstat()
    assert of_open.end(person, [Row(keys.mt(int(each)), {}, True) for each in messages]) == 3
    assert "cmdstat_lrem" not in sms_redis.info("commandstats")
    assert [each.final for each in store.read(messages)] == ["expired"] * 3


def test_copies_are_read_once(shop: Caller, sms_redis: Any) -> None:
    """However many of them are the person's, and wherever they stand."""
    names = [sms_rows.send(shop.biz, to=to) for to in (ANN.phone, BOB.phone)]
    hers, his = store.read(names)
    for number in range(200):
        message = hers if number % 20 == 0 else his
        mt = msgspec.structs.replace(message.mt, id=str(ids.new(0)))  # no member is there twice
        archived_store.keep(Batch([msgspec.structs.replace(message, mt=mt)]))
    size = sum(len(member) for member in archived_store.members(50))
    before = bytes_sent(sms_redis)
    assert len(erase("sms.copies")) == 10
    assert bytes_sent(sms_redis) - before < 2 * size
    batches = list(archived_store.batches())
    numbers = [message.mt.user_number for batch in batches for message in batch.messages]
    assert (len(numbers), numbers.count(f"86{BOB.phone}")) == (200, 190)


def test_an_erasure_leaves_the_only_copy_its_expiry(shop: Caller, sms_redis: Any) -> None:
    names = [sms_rows.send(shop.biz, to=to) for to in (ANN.phone, BOB.phone)]
    archived_store.keep(Batch(store.read(names)))
    assert len(erase("sms.copies")) == 1
    assert sms_redis.ttl(keys.ARCHIVED) > 0
