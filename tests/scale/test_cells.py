"""Cells: no id twice, a lost database stops its own cell only, a system moves under load."""

import http.client
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.harness import migrated
from bench.harness.mariadb import MariaDb
from demo.sink_process import SinkProcess
from tests.cluster import MIGRATE, ROOT, Console
from tests.scale.cells import CELLS, CellCluster, Load, sinks, two_cells
from tests.scale.conftest import Figures
from tests.scale.strikes import IS_SHARE
from tests.support.cells_proxy import HOST, CellsProxy

# Messages a second of each system; two cores carry two platforms and the clients.
RATE = 8.0 if IS_SHARE else 25.0
AWAY_SECONDS = 8.0
QUIET_SECONDS = 4.0 if IS_SHARE else 12.0
IDS = 10_000_000
_MAKE_IDS = """
import random, sys
from array import array
import django
django.setup()
from msgplatform.core.data import ids
count, path = int(sys.argv[1]), sys.argv[2]
with open(path, "wb") as file:
    while count:
        size = min(count, random.choice((1, 2, 10, 1000)))
        count -= size
        array("q", ids.reserve(size).ids(random.choices(range(256), k=size))).tofile(file)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    # Short, because a socket's path may have only 107 bytes.
    path = Path(tempfile.mkdtemp(prefix="mp-cells-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def load_average() -> str:
    return f"load average {os.getloadavg()[0]:.1f}"


def percentile(ascending: list[float], share: float) -> float:
    return ascending[min(len(ascending) - 1, int(len(ascending) * share))]


def test_ids_of_16_cells(folder: Path, figures: Figures) -> None:
    """Sixteen programs with a database each, at the same time; the sort of GNU counts."""
    count = IDS // CELLS
    programs = []
    for number in range(CELLS):
        environment = {
            **os.environ, "CELL": f"{number}/{CELLS}",
            "DATABASE_URL": f"sqlite:///{folder / f'{number}.db'}",
        }  # fmt: skip
        console = Console(environment, folder / "log")
        migrated.fill(environment["DATABASE_URL"], lambda c=console: c.run(MIGRATE), "a cell")
        console.run("from django.core.management import call_command\ncall_command('set_cell')")
        console.close()
        command = [sys.executable, "-c", _MAKE_IDS, str(count), str(folder / f"{number}.ids")]
        programs.append((command, environment))
    running = [subprocess.Popen(*each[:1], cwd=ROOT, env=each[1]) for each in programs]
    assert [each.wait(600) for each in running] == [0] * CELLS
    files = [folder / f"{number}.ids" for number in range(CELLS)]
    for number, file in enumerate(files):
        assert file.stat().st_size == 8 * count
        # Every id names its cell.
        assert {byte & (CELLS - 1) for byte in file.read_bytes()[::8]} == {number}
    dump = f"cat {folder}/*.ids | od -An -v -t d8 -w8 | LC_ALL=C sort -S 512M -T {folder}"
    twice = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{dump} | tee >(wc -l >{folder}/n) | uniq -d | wc -l"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    total = int((folder / "n").read_text())
    assert (total, int(twice.stdout)) == (count * CELLS, 0)
    figures.add(f"{total} ids of {CELLS} cells, 0 twice, {load_average()}")


def _stop(database: MariaDb, strike: str) -> None:
    if strike == "killed":
        database.kill()
    else:
        assert database.pid
        os.kill(database.pid, signal.SIGSTOP)


def _start(database: MariaDb, strike: str) -> None:
    if strike == "killed":
        database.start()
    else:
        assert database.pid
        os.kill(database.pid, signal.SIGCONT)


@pytest.mark.parametrize("strike", ["killed", "frozen"])
def test_a_database_away(strike: str, run: int, folder: Path, figures: Figures) -> None:
    with sinks(folder, "zero", "one") as consumers, two_cells(folder) as (cells, proxy):
        keys = {
            "of-zero": cells[0].new_system("of-zero", {"zero": consumers["zero"].url}),
            "of-one": cells[1].new_system("of-one", {"one": consumers["one"].url}),
        }
        with Load(proxy.port, keys, RATE) as load:
            time.sleep(QUIET_SECONDS)
            struck_at = load.now()
            _stop(cells[0].database, strike)
            time.sleep(AWAY_SECONDS)
            _start(cells[0].database, strike)
            ended_at = load.now()
            time.sleep(QUIET_SECONDS / 2)
        _assert_all_arrived(cells, load, consumers, {"of-zero": "zero", "of-one": "one"})
        other = load.books["of-one"]
        quiet = other.waits_between(2.0, struck_at)  # the first requests open connections
        struck = other.waits_between(struck_at, ended_at)
        own = load.books["of-zero"].waits_between(struck_at - 1, ended_at)
        figures.add(
            f"run {run}: the other cell p95 {percentile(quiet, 0.95):.3f} s, max {quiet[-1]:.3f} s;"
            f" meanwhile p95 {percentile(struck, 0.95):.3f} s, max {struck[-1]:.3f} s;"
            f" the struck cell max {own[-1]:.1f} s; {len(load.books['of-zero'].ids)} and"
            f" {len(other.ids)} accepted, 0 lost, {load_average()}",
            acknowledged=len(load.books["of-zero"].ids) + len(other.ids),
        )
        figures.add_gap("the other cell", struck[-1])
        assert own[-1] > AWAY_SECONDS / 2, "the strike did not strike"
        assert struck[0] < AWAY_SECONDS / 2, "the other cell stood still too"
        if IS_SHARE:
            return
        assert set(other.statuses) <= {200, 202}
        assert len(struck) > RATE * AWAY_SECONDS / 2
        # Two cores: the clients of the struck cell, which repeat, take some of its time.
        assert struck[-1] < max(quiet[-1], 0.5) + 0.5


def test_a_system_moves(run: int, folder: Path, figures: Figures) -> None:
    file, exceptions = folder / "orders.jsonl", dict[str, str]()
    with sinks(folder, "zero", "one") as consumers, two_cells(folder) as (cells, proxy):
        keys = {
            "orders": cells[0].new_system("orders", {"zero": consumers["zero"].url}),
            "stock": cells[1].new_system("stock", {"one": consumers["one"].url}),
        }

        def send_to(where: str) -> None:
            lines = _manage(cells[1], "import_system", str(file), "--proxy-lines", where)
            exceptions.update(line.rstrip(";").split() for line in lines.splitlines())  # type: ignore[arg-type]
            proxy.set_exceptions(exceptions)
            proxy.reload()

        with Load(proxy.port, keys, RATE) as load:
            time.sleep(QUIET_SECONDS)
            file.write_text(_manage(cells[0], "export_system", "orders"))
            begin = load.now()
            send_to("nowhere")
            file.write_text(_manage(cells[0], "export_system", "orders"))
            _manage(cells[1], "import_system", str(file))
            send_to("here")
            seconds = load.now() - begin
            cells[0].wait_until(lambda: cells[0].waits() == 0, "the old cell to drain")
            _manage(cells[1], "import_system", str(file), "--resume")
            time.sleep(QUIET_SECONDS)
        _assert_all_arrived(cells, load, consumers, {"orders": "zero", "stock": "one"})
        book = load.books["orders"]
        ids = {number: cell.message_ids() & book.ids for number, cell in cells.items()}
        p95 = percentile(load.books["stock"].waits_between(2, 1e9), 0.95)
        twice = sum(len(found) > 1 for found in book.ids_by_key.values())
        figures.add(
            f"run {run}: {len(book.ids)} accepted, {len(ids[0])} in the old cell and {len(ids[1])}"
            f" in the new, 0 lost, {twice} keys twice, answers {dict(book.statuses)},"
            f" {seconds:.1f} s of 503, the other system p95 {p95:.3f} s, {load_average()}"
        )
        assert min(len(ids[0]), len(ids[1])) > 50
        assert ids[0].isdisjoint(ids[1])
        # Each key became one message, in one cell: those of other keys are in no database either.
        assert twice == 0
        assert len(cells[0].message_ids()) + len(cells[1].message_ids()) == len(
            book.ids_by_key
        ) + len(load.books["stock"].ids_by_key)
        assert set(book.statuses) <= {200, 202, 503}
        assert set(load.books["stock"].statuses) <= {200, 202}


def _assert_all_arrived(
    cells: dict[int, CellCluster],
    load: Load,
    consumers: dict[str, SinkProcess],
    consumer_of: dict[str, str],
) -> None:
    """By the clients' books and the consumers' own files."""
    for system, consumer in consumer_of.items():
        expected, sink = load.books[system].ids, consumers[consumer]
        assert expected
        cells[0].wait_until(lambda e=expected, s=sink: e <= s.ids(), f"all of {system}")  # type: ignore[misc]


def _manage(cell: CellCluster, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, "manage.py", *command], cwd=ROOT, env=cell.environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nginx_for_a_message(folder: Path, figures: Figures) -> None:
    """The processor time of nginx for a request, with the map and 1,000 exceptions, and without."""
    requests, took = 6000, dict[bool, list[float]]()
    with SinkProcess(folder / "sink.seen") as sink:
        proxies = {}
        for has_map in (True, False):
            (folder / f"nginx{has_map}").mkdir()
            proxy = CellsProxy(folder / f"nginx{has_map}", {0: sink.port}, has_map)
            if has_map:
                proxy.set_exceptions({f"mp_{n:012}": "00" for n in range(1000)})
            proxy.start()
            proxies[has_map] = proxy
        for _turn in range(3):
            for has_map, proxy in proxies.items():
                before = _cpu(proxy)
                _post_many(proxy, requests)
                took.setdefault(has_map, []).append((_cpu(proxy) - before) / requests * 1e6)
        for proxy in proxies.values():
            proxy.stop()
    medians = {has_map: sorted(values)[1] for has_map, values in took.items()}
    figures.add(
        f"nginx {medians[True]:.1f} µs a message with the map and 1,000 exceptions,"
        f" {medians[False]:.1f} µs without ({took}), {load_average()}"
    )
    assert medians[True] < 2 * medians[False] + 20


def _cpu(proxy: CellsProxy) -> float:
    """Seconds of the processor that the workers have used, by the scheduler's exact account."""
    return sum(
        int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9 for pid in proxy.workers()
    )


def _post_many(proxy: CellsProxy, count: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=30)
    key = f"Bearer mp_00abcdefghijkl_{'s' * 43}"
    headers = {"Host": HOST, "Authorization": key, "Content-Type": "application/json"}
    body = b'{"event_type": "a.b", "payload": {"n": 1}}'
    for _ in range(count):
        connection.request("POST", "/api/v1/messages", body, headers)
        response = connection.getresponse()
        response.read()
        assert response.status == 200
        if response.will_close:
            connection.close()
    connection.close()
