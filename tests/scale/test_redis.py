"""A Redis that survives its server: Sentinel and HAProxy, under load, for the work and for SMS."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import pytest

from bench.harness.mariadb import MariaDb
from tests.scale import books, sms_books
from tests.scale.conftest import Figures
from tests.scale.redis_platform import RedisPlatform
from tests.scale.sentinel import Group
from tests.scale.strikes import CALM_SECONDS, IS_SHARE, MAX_GAP

# A server that hangs is noticed when checks of HAProxy and commands of programs time out.
MAX_FROZEN_GAP = MAX_GAP + 2
STRIKE_SECONDS = 12.0
FROZEN_SECONDS = 20.0
# Replication that is lost with a machine: less than `min-replicas-max-lag`, after which it refuses.
LOST_SECONDS = 1.2
COST_TURNS, WARM_MESSAGES, COST_MESSAGES = 3, 2000, 4000
MIN_SHARE = 0.8


def kill(group: Group) -> None:
    master = group.master()
    master.kill()
    group.await_master_beside(master)
    time.sleep(CALM_SECONDS)


def freeze(group: Group) -> None:
    master = group.master()
    master.freeze()
    time.sleep(FROZEN_SECONDS)
    master.thaw()


def restart(group: Group) -> None:
    """It is back before anybody, or as soon as, Sentinel has noticed."""
    master = group.master()
    master.kill()
    master.start()
    time.sleep(STRIKE_SECONDS)


def die(group: Group) -> None:
    """A machine dies: what it sent its replicas in the last moments has not left it."""
    master = group.master()
    master.relay.hold()
    time.sleep(LOST_SECONDS)
    master.kill()
    master.relay.drop()
    group.await_master_beside(master)
    time.sleep(CALM_SECONDS)


@pytest.fixture(scope="module")
def running(mariadb: MariaDb) -> Iterator[RedisPlatform]:
    # Short, because a socket's path may have only 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="mp-redis-"))
    url = mariadb.create(folder.name.replace("-", "_"))
    with ExitStack() as stack:
        groups = {name: stack.enter_context(Group(folder, name)) for name in ("work", "sms")}
        platform = stack.enter_context(RedisPlatform(folder, url, groups))
        yield platform
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def platform(running: RedisPlatform) -> Iterator[RedisPlatform]:
    """The platform on groups that are whole; no program has ended when the test is over."""
    for group in running.groups.values():
        group.make_whole()
    yield running
    assert [name for name in running.processes if running.died(name)] == []


def strike(
    platform: RedisPlatform, names: tuple[str, ...], blow: Callable[[Group], None]
) -> tuple[books.Account, sms_books.SmsAccount]:
    """Strike the masters of these groups, one after another, under the load of both flows. An order
    whose receipt had not reached the new master is taken twice, so Notify may deliver it twice."""
    with (
        books.books(platform) as (book, sinks),
        sms_books.sms_books(platform) as (sms_book, ear),
    ):
        time.sleep(CALM_SECONDS)
        for name in names:
            group = platform.groups[name]
            blow(group)
            group.make_whole()
        time.sleep(CALM_SECONDS)
        sms_book.stop()
        account = books.close(platform, book, sinks)
        return account, sms_books.close(platform, sms_book, ear)


def check(
    accounts: tuple[books.Account, sms_books.SmsAccount], figures: Figures, max_gap: float
) -> None:
    notify, sms = accounts
    figures.add(
        f"{notify}\n{sms}", acknowledged=notify.accepted + sms.accepted,
        lost=notify.lost + sms.lost, duplicates=notify.duplicates + sms.twice,
    )  # fmt: skip
    figures.add_gap("intake of SMS", sms.gap_of_intake)
    figures.add_gap("delivery", notify.gap_of_delivery)
    assert (notify.lost, notify.doubled_keys, notify.foreign) == (0, 0, 0)
    assert (sms.lost, sms.twice, sms.doubled_keys, sms.unheard) == (0, 0, 0, 0)
    if IS_SHARE:
        return
    assert notify.rate >= books.RATE * MIN_SHARE, os.getloadavg()
    assert sms.rate >= books.RATE / 2 * MIN_SHARE, os.getloadavg()
    assert notify.gap_of_delivery <= max_gap, os.getloadavg()


@pytest.mark.parametrize("blow", [kill, freeze, restart, die])
def test_each_master(
    platform: RedisPlatform, figures: Figures, run: int, blow: Callable[[Group], None]
) -> None:
    if platform.environment["SMS_REPLICAS"] != "1":
        platform.set_replicas(1)
    max_gap = MAX_FROZEN_GAP if blow is freeze else MAX_GAP
    check(strike(platform, ("work", "sms"), blow), figures, max_gap)


def test_without_replicas_a_dead_machine_loses_messages(
    platform: RedisPlatform, figures: Figures, run: int
) -> None:
    """The strike that `die` survives with SMS_REPLICAS=1 is a real one."""
    if platform.environment["SMS_REPLICAS"] != "0":
        platform.set_replicas(0)
    notify, sms = strike(platform, ("sms",), die)
    figures.add(str(sms))
    assert notify.lost == 0
    assert sms.lost + sms.twice > 0


def test_the_cost_of_waiting(platform: RedisPlatform, figures: Figures) -> None:
    """SMS_REPLICAS 0 and 1 in turns, so that both have the machine's good and bad moments."""
    rates: dict[int, list[float]] = {0: [], 1: []}
    for count in (0, 1) * COST_TURNS:
        platform.set_replicas(count)
        sms_books.seconds_of(platform, WARM_MESSAGES)  # all programs have started, links are bound
        rates[count].append(COST_MESSAGES / sms_books.seconds_of(platform, COST_MESSAGES))
    share = median(rates[1]) / median(rates[0])
    load = " ".join(f"{one:.1f}" for one in os.getloadavg())
    texts = {count: " ".join(f"{rate:.0f}" for rate in some) for count, some in rates.items()}
    figures.add(f"{texts[0]}/s without, {texts[1]}/s with: {share:.0%}; load {load}")
    assert share >= MIN_SHARE, load
