"""Two HAProxy, one address: it moves when a machine, its HAProxy or its keepalived is lost, and
nobody works on two databases, or through two machines, at a time."""

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.scale.books import longest_gap
from tests.scale.conftest import Figures
from tests.scale.floating import HOSTS, HUB, Pair, Witness
from tests.scale.galera import remove
from tests.scale.lan import Lan

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes network namespaces")
_SECONDS = 120.0
CALM_SECONDS = 3.0


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="mp-vip-"))
    yield path
    remove(path)


@pytest.fixture
def lan() -> Iterator[Lan]:
    with Lan(HOSTS, HUB) as made:
        yield made


@pytest.fixture
def pair(folder: Path, lan: Lan) -> Iterator[Pair]:
    with Pair(folder, lan) as both:
        yield both


@pytest.fixture
def witness(folder: Path, lan: Lan, pair: Pair) -> Iterator[Witness]:
    running = Witness(folder, lan)
    wait_until(lambda: running.last("kept")[0], pair)
    time.sleep(CALM_SECONDS)
    yield running
    running.stop()


def wait_until(condition: Callable[[], object], pair: Pair) -> None:
    deadline = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < deadline, pair.logs()
        time.sleep(0.05)


def other(host: str) -> str:
    return next(one for one in HOSTS if one != host)


def through(witness: Witness, host: str, since: float) -> list[float]:
    """When work came through this machine."""
    return [at for at, _, _, by in witness.since(since, "work") if by == HOSTS[host]]


def lose_machine(pair: Pair, lan: Lan, host: str) -> None:
    lan.cut(host)
    pair.kill(host)


def lose_haproxy(pair: Pair, lan: Lan, host: str) -> None:
    pair.strike_haproxy(host, signal.SIGKILL)


def freeze_haproxy(pair: Pair, lan: Lan, host: str) -> None:
    pair.strike_haproxy(host, signal.SIGSTOP)


def lose_keepalived(pair: Pair, lan: Lan, host: str) -> None:
    """Nobody takes the address from the machine: both have it, and only one is reached."""
    pair.kill_keepalived(host)


@pytest.mark.parametrize("lose", [lose_machine, lose_haproxy, freeze_haproxy, lose_keepalived])
def test_the_address_moves(
    lan: Lan,
    pair: Pair,
    witness: Witness,
    figures: Figures,
    run: int,
    lose: Callable[[Pair, Lan, str], None],
) -> None:
    (holder,) = pair.holders()
    nodes = {node for _, _, node, _ in witness.since(0, "work")}
    struck_at = time.time()
    lose(pair, lan, holder)
    wait_until(lambda: through(witness, other(holder), struck_at), pair)
    wait_until(lambda: witness.last("kept")[0] > witness.last("ended")[0] > struck_at, pair)
    time.sleep(CALM_SECONDS)
    before, after = (through(witness, host, struck_at) for host in (holder, other(holder)))
    times = [at for at, *_ in witness.since(struck_at, "work")]
    gap = longest_gap(times, struck_at, times[-1])
    figures.add(
        f"the address moved, longest gap {gap:.1f} s; the earlier one was used for "
        f"{max(before, default=struck_at) - struck_at:.1f} s more; load {os.getloadavg()[0]:.1f}"
    )
    # One after the other, and the same database through both: they share the table of the writer.
    assert max(before, default=0.0) < min(after)
    assert {node for _, _, node, _ in witness.since(0, "work")} == nodes
    assert len(nodes) == 1


def test_a_reload_refuses_nobody(pair: Pair, witness: Witness, figures: Figures, run: int) -> None:
    (holder,) = pair.holders()
    nodes = {node for _, _, node, _ in witness.since(0, "work")}
    struck_at = time.time()
    pair.reload(holder)
    # The session of before ends with the old process, and is opened anew.
    wait_until(lambda: witness.last("kept")[0] > witness.last("ended")[0] > struck_at, pair)
    time.sleep(CALM_SECONDS)
    refused = witness.since(struck_at, "refused")
    times = [at for at, *_ in witness.since(struck_at, "work")]
    gap = longest_gap(times, struck_at, times[-1])
    figures.add(f"reload: {len(refused)} connections refused, longest gap {gap:.2f} s")
    assert refused == []
    assert pair.holders() == [holder]
    assert {node for _, _, node, _ in witness.since(0, "work")} == nodes
