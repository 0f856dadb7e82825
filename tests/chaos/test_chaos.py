"""Everything at once: two of each program are killed, and frozen beyond their lease; both Redis
servers are killed, emptied (the one that may be) and full; the database is killed and hangs.

`make chaos` blows five rounds of 150 seconds; every run of the tests a short one. The accounts are
those of the clients, the consumers and the simulated gateways.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from notify.demo.publisher import Accepted, publish_all
from notify.demo.sink_process import SinkProcess
from tests.chaos.platform import ChaosPlatform
from tests.chaos.storm import Storm
from tests.flows.sms_account import Account
from tests.flows.sms_business import Business, business
from tests.flows.sms_traffic import OPERATORS
from tests.flows.test_sms_crash import come_to
from tests.flows.traffic import SINKS, SYSTEMS, assert_marked, cast, duplicates, missing

ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "1"))
SECONDS = float(os.environ.get("CHAOS_SECONDS", "30"))
SEED = int(os.environ.get("CHAOS_SEED", str(int(time.time()))))
# Seconds, of a consumer that is always well: `make chaos` asks for it on a machine of its own.
LONGEST_GAP = float(os.environ.get("CHAOS_LONGEST_GAP", "60"))
_MESSAGES_A_SECOND = 40
_SMS = 500  # at least
_SHARE = 20


@pytest.fixture
def platform() -> Iterator[ChaosPlatform]:
    # Short, because a socket's path may have only 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="mp-chaos-"))
    with ChaosPlatform(folder) as running:
        yield running
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("number", range(ROUNDS))
def test_nothing_is_lost_and_no_ending_goes_back(platform: ChaosPlatform, number: int) -> None:
    print(f"CHAOS_SEED={SEED + number}", flush=True)
    with (
        business(platform, _SMS, _SHARE) as systems,
        cast(platform, SINKS, SYSTEMS) as (tokens, sinks),
    ):
        for gateway in OPERATORS:
            platform.start(gateway)
        storm = Storm(platform, sinks, SEED + number)
        accepted, over = _traffic_during(platform, tokens, systems, storm)
        longest = _check_notify(platform, accepted, sinks, storm, over)
        _check_sms(platform, systems)
        assert longest < LONGEST_GAP


def _traffic_during(
    platform: ChaosPlatform, tokens: dict[str, str], systems: Business, storm: Storm
) -> tuple[list[Accepted], float]:
    """What Notify accepted, and when the last of it was published."""
    over = threading.Event()
    accepted: list[Accepted] = []

    def goes_on() -> bool:
        time.sleep(1 / _MESSAGES_A_SECOND)
        return not over.is_set()

    def publish() -> None:
        accepted.extend(publish_all(platform.base_url, tokens, 0, more=goes_on))

    def send() -> None:
        while not over.wait(0.2):
            systems.more()

    traffic = [threading.Thread(target=publish), threading.Thread(target=send)]
    for thread in traffic:
        thread.start()
    try:
        storm.blow(SECONDS)
        # The gateway that said nothing tells what became of its messages.
        platform.manners["bay"] = []
        platform.restart("bay")
    finally:
        over.set()
        for thread in traffic:
            thread.join()
    return accepted, time.time()


def _check_notify(
    platform: ChaosPlatform,
    accepted: list[Accepted],
    sinks: dict[str, SinkProcess],
    storm: Storm,
    over: float,
) -> float:
    """The longest time without a delivery to a consumer that is always well, in seconds."""
    assert len({message.id for message in accepted}) == len(accepted)
    platform.wait_until(lambda: not missing(accepted, sinks), "every delivery to arrive", 300)
    assert_marked(platform)
    times = [at for at in sinks["one"].times() if at <= over]
    longest = max(after - before for before, after in pairwise(times))
    print(
        f"{len(accepted)} messages; {dict(storm.strikes)}; longest gap {longest:.1f} s; "
        f"duplicates {duplicates(sinks)} of at most {storm.may_repeat}"
    )
    assert duplicates(sinks) <= storm.may_repeat
    return longest


def _check_sms(platform: ChaosPlatform, systems: Business) -> None:
    systems.finish()
    account = Account(platform, systems, [])
    come_to(platform, account.unheard, "endings that nobody heard", 300)
    come_to(platform, account.unanswered, "gateways that wait for answers", 300)
    come_to(platform, account.left_in_redis, "keys that stay in Redis", 300)
    count = account.check_what_was_accepted()
    account.check_what_was_heard()
    parts, reports = account.check_gateways(), account.check_archive()
    endings = Counter(x for ear in systems.ears.values() for s in ear.reports.values() for x in s)
    print(f"{count} short messages in {parts} parts, {reports} Reports; endings {dict(endings)}")
