"""SMS under fire, from the business system's call to its endpoint and the archive.

Every program is killed with work in its hands and at each of its named places, the simulated
gateways and redis-server too; links are cut all the time. What counts is what the senders saw
accepted, what the gateways wrote down, what the endpoints wrote down, and the archive.
"""

import os
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.harness.mariadb import MariaDb
from bench.harness.mysql import SERVERS
from gateway.lifecycle import keys
from tests.cluster import DAEMONS, WEB
from tests.flows.sms_account import Account, come_to
from tests.flows.sms_business import business
from tests.flows.sms_cluster import ROLES, SmsCluster
from tests.flows.sms_fire import Fire
from tests.flows.sms_traffic import OPERATORS
from tests.servers import DATABASE

FULL = bool(os.environ.get("MSGPLATFORM_FULL_LOAD"))
MESSAGES = 10_000 if FULL else 1_500  # at least: the traffic lasts until the last kill
KILLS_A_ROLE = 5 if FULL else 2
# Each of its users is killed while Redis is away; the first is in the reduced load too.
WITH_REDIS = ("receiver", WEB, "sender-a", "forwarder", "pump")[: 5 if FULL else 2]
# Each round is one death for every role that has a place left.
FAILPOINTS = (
    {
        "sender-a": "sms_sender_before_submit",
        "receiver": "sms_receiver_after_report",
        "forwarder": "forwarder_after_publish",
        "pump": "pump_after_commit_before_forget",
    },
    {
        "sender-a": "sms_sender_after_submit:2",
        "receiver": "sms_receiver_after_mo",
        "forwarder": "forwarder_after_mo_publish",
        "pump": "pump_after_mo_commit_before_forget",
    },
    {"sender-a": "sms_sender_before_respond"},
)
SHARE = MESSAGES // 250  # of one system, at a time


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[SmsCluster]:
    """On the database of TEST_DATABASE; a short folder, for a socket's path has only 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="mp-sms-"))
    url = f"sqlite:///{folder / 'platform.db'}"
    if DATABASE in SERVERS:
        server: MariaDb = request.getfixturevalue("mariadb")
        url = server.create(folder.name.replace("-", "_"))
    manners = {name: operator.manners for name, operator in OPERATORS.items()}
    made = SmsCluster(folder, url, manners, programs=(WEB, *DAEMONS))
    made.expected_errors = set()
    with made as running:
        yield running
    shutil.rmtree(folder, ignore_errors=True)


def test_nothing_is_lost_and_nothing_sent_twice(cluster: SmsCluster) -> None:
    began = time.monotonic()
    with business(cluster, MESSAGES, SHARE) as systems:
        for name in (*OPERATORS, *ROLES):
            cluster.start(name)
        fire = Fire(cluster, systems, least_in_redis=MESSAGES // 20)
        burn(fire)
        systems.finish()
        account = Account(cluster, systems, fire.mos)
        print(f"{dict(fire.kills)} in {time.monotonic() - began:.0f} s")
        come_to(cluster, account.unheard, "endings that nobody heard", 600)
        come_to(cluster, account.unanswered, "gateways that wait for answers", 600)
        come_to(cluster, account.left_in_redis, "keys that stay in Redis", 600)
        accepted = account.check_what_was_accepted()
        assert accepted >= MESSAGES
        account.check_what_was_heard()
        parts, reports = account.check_gateways(), account.check_archive()
        # No process of Notify was killed: what is published twice under one key is heard once.
        assert not any(ear.repeated for ear in systems.ears.values())
        told = Counter(x for ear in systems.ears.values() for s in ear.reports.values() for x in s)
        print(
            f"{accepted} messages in {parts} parts, {len(fire.mos)} MOs, {reports} Reports; "
            f"endings {dict(told)}; {systems.unknown()} requests repeated; "
            f"{time.monotonic() - began:.0f} s"
        )


def burn(fire: Fire) -> None:
    """First the named places, with the gateway that tells late; then kills in any order."""
    for places in FAILPOINTS:
        fire.die_at(places)
    fire.feed_until(lambda: has_forgotten_some(fire), "endings that nobody knows", 1.0)
    fire.cluster.pause("pump")  # late Reports are for the one that dies
    fire.cluster.manners["bay"] = []
    fire.cluster.restart("bay")
    fire.die_at({"pump": "pump_unmatched_before_publish"})
    roles = [WEB, *ROLES, "city"] * KILLS_A_ROLE
    random.Random(20261121).shuffle(roles)
    times = len(roles) // len(WITH_REDIS)
    for number, role in enumerate(roles):
        if number % times == 0 and number // times < len(WITH_REDIS):
            nth = number // times
            fire.kill_redis(WITH_REDIS[nth], is_stuck=nth % 2 == 0)
        fire.kill(role)
    assert fire.kills.keys() == {*roles, "redis"}
    assert min(fire.kills.values()) >= KILLS_A_ROLE


def has_forgotten_some(fire: Fire) -> bool:
    """Messages that ended as unknown were heard of, archived, and are gone from Redis."""
    fire.business.listen()
    reports = [item for ear in fire.business.ears.values() for item in ear.reports.items()]
    unknown = [id for id, states in reports if "unknown" in states]
    return any(not fire.cluster.sms.exists(keys.mt(int(id))) for id in unknown)
