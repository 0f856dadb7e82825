"""Work orders on a real Redis: nothing is lost or left over, whoever is killed."""

import os
import signal
import subprocess
import sys
import time
import zlib
from contextlib import suppress
from typing import Any

import msgspec
import pytest
import redis
import time_machine
from rq.job import Job

from msgplatform.core.queues import jobs, owners, recovery
from msgplatform.core.queues.names import RqQueues
from notify.orders import MARKER_QUEUE as MARKER

QUEUE = "notify-7-9"


def left_over(client: redis.Redis) -> set[bytes | str]:
    """Keys that should not be there when nothing is in hand."""
    return set(client.keys("*")) - {b"rq:queues"}


def test_an_order_goes_the_whole_way_and_leaves_nothing(work_redis: redis.Redis) -> None:
    jobs.put(QUEUE, [{"n": 1}, {"n": 2}], ttl=60)
    assert jobs.depths([QUEUE, "notify-1-1"]) == {QUEUE: 2, "notify-1-1": 0}
    first, second = jobs.claim(QUEUE, 30), jobs.claim(QUEUE, 30)
    assert first
    assert second
    assert [first.data, second.data] == [{"n": 1}, {"n": 2}]
    assert jobs.claim(QUEUE, 30) is None
    assert jobs.depths([QUEUE])[QUEUE] == 2, "an order in hand still takes room"
    jobs.remove_orders([first, second])
    assert left_over(work_redis) == set()


def test_text_survives_the_way(work_redis: redis.Redis) -> None:
    body = '{"名":"小米 📱\\u0000 \\"quoted\\""}'
    jobs.put(QUEUE, [{"body": body}], ttl=60)
    claimed = jobs.claim(QUEUE, 30)
    assert claimed
    assert claimed.data == {"body": body}


def test_a_queue_belongs_to_one_sender_at_a_time(work_redis: redis.Redis) -> None:
    jobs.put(QUEUE, [{}], ttl=60)
    assert owners.own([QUEUE, "notify-1-1"], "a", 600) == [QUEUE], "only queues with work"
    assert owners.own([QUEUE], "b", 600) == []
    assert owners.own([QUEUE], "a", 600) == [QUEUE]
    assert owners.renew([QUEUE], "b", 60_000) == ([QUEUE], []), "another process owns it"
    assert work_redis.pttl(f"queues:owner:{QUEUE}") <= 600_000, "only the owner renews"
    owners.disown([QUEUE], "b")
    assert owners.own([QUEUE], "b", 600) == []
    owners.disown([QUEUE], "a")
    assert owners.own([QUEUE], "b", 600) == [QUEUE]
    work_redis.delete(f"queues:owner:{QUEUE}")
    assert owners.renew([QUEUE], "b", 600) == ([], [QUEUE]), "nobody owned it meanwhile"
    assert owners.renew([QUEUE], "b", 600) == ([], [])
    assert owners.own([QUEUE], "a", 600) == [], "who has work in hand owns it again"


def test_strays_go_back_in_front_and_are_told_apart(work_redis: redis.Redis) -> None:
    jobs.put(QUEUE, [{"n": n} for n in range(4)], ttl=60)
    own, *others = [order for _ in range(3) if (order := jobs.claim(QUEUE, 30))]
    stray_ids = [(QUEUE, order.id) for order in others]
    assert owners.strays([QUEUE, "notify-1-1"], "a", [own.id]) == stray_ids
    owners.own([QUEUE], "b", 600)
    assert owners.strays([QUEUE], "a", []) == [], "the queue is another's, and so are its orders"
    assert owners.take_back(stray_ids, "a") == []
    assert owners.strays([QUEUE], "b", [own.id]) == stray_ids
    assert owners.filter_claimed([own, *others]) == [own, *others]
    assert owners.take_back([*stray_ids, (QUEUE, "gone")], "b") == stray_ids
    assert owners.filter_claimed([own, *others]) == [own]
    assert owners.take_back(stray_ids, "b") == [], "they are back already"
    again, _ = jobs.claim_all([QUEUE], 30, Any)
    assert [(each.data, each.is_returned) for each in again] == [({"n": 1}, True)]
    assert owners.filter_claimed([own, *others]) == [own], "also when another has claimed it since"
    jobs.remove_orders([own, *others, *again])  # whose process was alive after all
    last, _ = jobs.claim_all([QUEUE], 30, Any)
    assert [(each.data, each.is_returned) for each in last] == [({"n": 3}, False)]
    jobs.remove_orders(last)
    owners.disown([QUEUE], "b")
    assert left_over(work_redis) == set()


def test_a_stray_whose_time_is_over_is_dropped(work_redis: redis.Redis) -> None:
    jobs.put(QUEUE, [{}], ttl=60)
    claimed = jobs.claim(QUEUE, 30)
    assert claimed
    work_redis.delete(f"rq:job:{claimed.id}")
    assert owners.take_back(owners.strays([QUEUE], "a", []), "a") == []
    assert left_over(work_redis) == set()


KILLED = """
import os, signal, django
django.setup()
from msgplatform.core.queues import jobs
assert jobs.claim({queue!r}, {seconds})
os.kill(os.getpid(), signal.SIGKILL)
"""


def claim_and_die(queue: str, seconds: float) -> None:
    script = KILLED.format(queue=queue, seconds=seconds)
    ended = subprocess.run([sys.executable, "-c", script], env=os.environ, timeout=300, check=False)
    assert ended.returncode == -signal.SIGKILL


@pytest.mark.parametrize("put_back", [True, False])
def test_a_killed_claim_is_recovered(work_redis: redis.Redis, put_back: bool) -> None:
    jobs.put(MARKER, [[1]], ttl=None)
    claim_and_die(MARKER, seconds=-1)
    assert recovery.recover(lambda name: put_back) == 1
    again = jobs.claim(MARKER, 30)
    if put_back:
        assert again
        assert again.data == [1]
        jobs.remove_orders([again])
    else:
        assert again is None
    assert left_over(work_redis) == set()


def test_an_order_that_was_put_back_and_claimed_since_is_left_alone(
    work_redis: redis.Redis,
) -> None:
    """Two processes have read the same claim that is over."""
    jobs.put(MARKER, [[1]], ttl=None)
    assert jobs.claim(MARKER, -1)
    questions: list[str] = []
    claims: list[object] = []

    def is_only_copy(name: str) -> bool:
        questions.append(name)
        if len(questions) == 2:  # asked for the entry, whose claim was read before
            assert recovery.recover(lambda name: True) == 1
            claims.append(jobs.claim(MARKER, 30))
        return True

    recovery.recover(is_only_copy)
    assert claims[0]
    assert jobs.claim(MARKER, 30) is None


def test_a_live_claim_is_left_alone(work_redis: redis.Redis) -> None:
    jobs.put(QUEUE, [{}], ttl=60)
    claimed = jobs.claim(QUEUE, 30)
    assert claimed
    assert recovery.recover(lambda name: True) == 0
    assert jobs.depths([QUEUE])[QUEUE] == 1


def test_an_order_that_was_put_twice_is_in_one_hand(work_redis: redis.Redis) -> None:
    """As when Redis answers `put` too late, and the client sends it again."""
    jobs.put(QUEUE, [{"n": 1}], ttl=60)
    (entry,) = work_redis.lrange(f"rq:queue:{QUEUE}", 0, -1)
    work_redis.rpush(f"rq:queue:{QUEUE}", entry)
    first = jobs.claim(QUEUE, 30)
    assert first
    assert jobs.claim(QUEUE, 30) is None
    assert jobs.depths([QUEUE])[QUEUE] == 1
    jobs.remove_orders([first])
    assert left_over(work_redis) == set()


def test_an_entry_without_a_claim_gets_a_grace(work_redis: redis.Redis) -> None:
    """A process killed between moving the order and writing its claim."""
    jobs.put(QUEUE, [{"n": 1}], ttl=60)
    work_redis.lmove(f"rq:queue:{QUEUE}", f"rq:queue:{QUEUE}:intermediate")
    looked = recovery.recover(lambda name: True, grace=-1)
    assert looked == 0, "the first look only starts the clock"
    assert recovery.recover(lambda name: True, grace=60) == 1
    claimed = jobs.claim(QUEUE, 30)
    assert claimed
    assert claimed.data == {"n": 1}


def test_an_expired_order_is_passed_over(work_redis: redis.Redis) -> None:
    jobs.put(QUEUE, [{"n": 1}, {"n": 2}], ttl=60)
    first_id = work_redis.lindex(f"rq:queue:{QUEUE}", 0)
    work_redis.delete(b"rq:job:" + first_id)
    claimed = jobs.claim(QUEUE, 30)
    assert claimed
    assert claimed.data == {"n": 2}


def test_the_age_of_the_oldest_order(work_redis: redis.Redis) -> None:
    assert jobs.oldest_seconds(QUEUE) == 0
    jobs.put(QUEUE, [{}], ttl=60)
    assert 0 <= jobs.oldest_seconds(QUEUE) < 60


def test_the_age_of_an_order_is_by_the_clock_of_redis() -> None:
    """The host that puts it is an hour behind, or ahead: nobody sees that."""
    for seconds in (-3600, 3600):
        with time_machine.travel(time.time() + seconds):
            jobs.put(QUEUE, ["x"], None)
        assert 0 <= jobs.oldest_seconds(QUEUE) < 600
        (claimed,) = jobs.claim_all([QUEUE], 30, str)[0]
        assert 0 <= claimed.waited < 600
        jobs.remove_orders([claimed])


def test_flushed_redis_is_an_empty_one(work_redis: redis.Redis) -> None:
    jobs.put(QUEUE, [{}], ttl=60)
    claimed = jobs.claim(QUEUE, 30)
    work_redis.flushall()
    assert claimed
    jobs.remove_orders([claimed])
    assert owners.own([QUEUE], "a", 600) == [], "scripts are loaded again after a flush"
    assert jobs.claim(QUEUE, 30) is None


def test_django_rq_sees_every_queue(work_redis: redis.Redis) -> None:
    jobs.put(QUEUE, [{}], ttl=60)
    mapping = RqQueues()
    assert list(mapping) == [MARKER, QUEUE]
    assert "notify-1-2" in mapping
    assert "no:such" not in mapping
    with pytest.raises(KeyError):
        mapping["no:such"]


def test_an_rq_worker_fails_an_order_instead_of_swallowing_it() -> None:
    with pytest.raises(RuntimeError, match="own daemons"):
        jobs.not_for_workers({})


def test_orders_of_many_queues_go_in_one_round_trip(work_redis: redis.Redis) -> None:
    names = [f"notify-1-{n}" for n in range(5)]
    jobs.put_all([(name, {"n": n}) for n in range(2) for name in names], ttl=60)
    assert jobs.depths(names) == dict.fromkeys(names, 2)
    for name in names:
        claimed = [jobs.claim(name, 30), jobs.claim(name, 30)]
        assert [order.data for order in claimed if order] == [{"n": 0}, {"n": 1}]
        jobs.remove_orders([order for order in claimed if order])
    jobs.put_all([], ttl=60)
    assert left_over(work_redis) == set()


def test_rq_reads_what_is_stored_as_it_is(work_redis: redis.Redis) -> None:
    """Its pages show orders; and what an earlier version has compressed is read as well."""
    jobs.put(QUEUE, [{"text": "plain"}], ttl=60)
    job_id = work_redis.lindex(f"rq:queue:{QUEUE}", 0).decode()
    stored: Any = work_redis.hget(f"rq:job:{job_id}", "data")
    assert b'{"text":"plain"}' in stored
    job = Job.fetch(job_id, connection=work_redis, serializer=jobs.Serializer)
    assert list(job.args) == [{"text": "plain"}]
    work_redis.hset(f"rq:job:{job_id}", "data", zlib.compress(stored))
    claimed = jobs.claim(QUEUE, 30)
    assert claimed
    assert claimed.data == {"text": "plain"}


# -- many at once --------------------------------------------------------------------------------
NAMES = [f"notify-1-{n}" for n in range(4)]


class Order(msgspec.Struct):
    n: int
    text: str = ""


def test_the_first_order_of_each_queue_in_one_step(work_redis: redis.Redis) -> None:
    for name in (NAMES[0], NAMES[2]):
        jobs.put(name, [Order(1), Order(2)], ttl=60)
    claimed, asked = jobs.claim_all(NAMES, 30, Order)
    assert asked == len(NAMES)
    assert [(order.queue, order.data) for order in claimed] == [
        (NAMES[0], Order(1)),
        (NAMES[2], Order(1)),
    ]
    assert all(0 <= order.waited < 60 for order in claimed)
    assert recovery.recover(lambda name: False) == 0, "they are claimed from the same step on"
    again, _ = jobs.claim_all(NAMES, 30, Order)
    assert [order.data for order in again] == [Order(2), Order(2)]
    jobs.remove_orders([*claimed, *again])
    assert jobs.claim_all(NAMES, 30, Order) == ([], len(NAMES))
    assert jobs.claim_all([], 30, Order) == ([], 0)
    assert left_over(work_redis) == set()


def test_claims_end_after_their_time(work_redis: redis.Redis) -> None:
    for name in NAMES:
        jobs.put(name, [Order(1)], ttl=60)
    jobs.claim_all(NAMES[:2], -1, Order)
    jobs.claim_all(NAMES[2:], 30, Order)
    assert recovery.recover(lambda name: True) == 2
    claimed, _ = jobs.claim_all(NAMES, 30, Order)
    assert [order.queue for order in claimed] == NAMES[:2]


def test_a_reply_has_a_bound(work_redis: redis.Redis) -> None:
    text = "x" * (jobs.CLAIM_BYTES // 2)
    for name in NAMES:
        jobs.put(name, [Order(1, text)], ttl=60)
    claimed, asked = jobs.claim_all(NAMES, 30, Order)
    assert (len(claimed), asked) == (2, 2)
    rest, asked = jobs.claim_all(NAMES[asked:], 30, Order)
    assert [order.queue for order in rest] == NAMES[2:]


def test_expired_and_unreadable_orders_stop_no_other(work_redis: redis.Redis) -> None:
    jobs.put(NAMES[0], [Order(1), Order(2)], ttl=60)
    work_redis.delete(b"rq:job:" + work_redis.lindex(f"rq:queue:{NAMES[0]}", 0))
    jobs.put(NAMES[1], [{"no": "order"}], ttl=60)
    jobs.put(NAMES[2], [Order(3)], ttl=60)
    job_id = work_redis.lindex(f"rq:queue:{NAMES[2]}", 0).decode()
    work_redis.hset(f"rq:job:{job_id}", "data", b"neither JSON nor compressed")
    jobs.put(NAMES[3], [Order(4)], ttl=60)
    claimed, _ = jobs.claim_all(NAMES, 30, Order)
    assert [order.data for order in claimed] == [Order(2), Order(4)]
    jobs.remove_orders(claimed)
    assert left_over(work_redis) == set(), "what nobody can read is not kept"


def set_keys(client: redis.Redis, count: int) -> None:
    for number in range(count):
        client.set(f"filled:{number}", "")


def fill(client: redis.Redis) -> None:
    """Fill it to its limit, as results do that nobody marks. Later there may be room for some keys
    again: the server frees the buffers of idle connections."""
    client.config_set("maxmemory", client.info("memory")["used_memory"] + 4_000_000)
    for size in (2_000, 200, 1):
        with suppress(redis.exceptions.RedisError):
            while True:
                jobs.put(MARKER, [[{"body": "x" * size}] * 20], ttl=None)
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        set_keys(client, 100_000)


def test_a_full_redis_is_drained(work_redis: redis.Redis) -> None:
    jobs.put(QUEUE, [{"n": 1}, {"n": 2}], ttl=600)
    lost = jobs.claim(MARKER, 0.01) or jobs.put(MARKER, [[]], ttl=None) or jobs.claim(MARKER, 0.01)
    assert lost
    try:
        fill(work_redis)
        waiting = jobs.depths([MARKER])[MARKER]
        assert waiting > 20
        time.sleep(0.05)
        assert recovery.recover(is_only_copy=lambda name: name == MARKER) == 1
        assert owners.own([QUEUE], "a", 600) == [QUEUE]
        assert owners.renew([QUEUE], "a", 600) == ([], [])
        claimed = jobs.claim_all([QUEUE], 30, Any)[0]
        assert len(claimed) == 1
        assert owners.take_back(owners.strays([QUEUE], "a", []), "a")
        claimed = jobs.claim_all([QUEUE], 30, Any)[0]
        assert [order.is_returned for order in claimed] == [True]
        drained = 0
        while job := jobs.claim(MARKER, 30):
            jobs.remove_orders([job])
            drained += 1
        assert drained == waiting
        work_redis.set("one", "more")
    finally:
        work_redis.config_set("maxmemory", 0)


def test_recovery_asks_for_queues_with_entries_only(work_redis: redis.Redis) -> None:
    """Thousands of queues that once had an order cost a few scripts, and their names are
    forgotten."""
    names = [f"notify-1-{number}" for number in range(2_000)]
    jobs.put_all([(name, {}) for name in names], ttl=60)
    jobs.remove_orders(jobs.claim_all(names, 30, Any)[0])
    jobs.put_all([("notify-1-7", {}), ("notify-1-8", {})], ttl=60)
    assert jobs.claim("notify-1-8", 30)
    before = work_redis.info("stats")["total_commands_processed"]
    calls = work_redis.info("commandstats")["cmdstat_evalsha"]["calls"]
    assert recovery.recover(is_only_copy=lambda name: False) == 0
    assert work_redis.info("commandstats")["cmdstat_evalsha"]["calls"] - calls <= 6
    assert work_redis.info("stats")["total_commands_processed"] - before < 2_000 * 2 + 100
    assert work_redis.smembers("rq:queues") == {b"rq:queue:notify-1-7", b"rq:queue:notify-1-8"}
    jobs.put("notify-1-9", [{}], ttl=60)
    assert b"rq:queue:notify-1-9" in work_redis.smembers("rq:queues")
