"""`up` and the supervisor under it, with real processes and signals."""

import math
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
import redis
import requests

from bench.harness import migrated
from msgplatform.core.servers.logged_errors import read_errors
from msgplatform.core.servers.private_server import free_port, private_directory
from msgplatform.operation.supervision.address import hold, public_url, resolve
from msgplatform.operation.supervision.config import Program
from msgplatform.operation.supervision.run import Lock, Refused, Supervisor, is_running
from tests.cluster import MIGRATE, Console
from tests.waiting import pause

pytestmark = pytest.mark.both_databases("msgplatform/operation/supervision/preparation.py")

ROOT = Path(__file__).resolve().parents[2]
# Of the whole platform with nothing to do, the embedded Redis and SQLite.
LIMIT_BYTES = 1150 << 20
FULL = bool(os.environ.get("MSGPLATFORM_FULL_LOAD"))
DAEMONS = {
    *("bulk", "maker", "sender", "marker", "archiver"),
    *("sms_sender", "sms_receiver", "report_forwarder", "data_pump"),
    *("sync_poller", "sync_handler", "feed_dispatcher", "feed_cleaner"),
}
# Writes its name at its end, as a daemon that drains.
ENDS_IN_ORDER = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
open(sys.argv[1] + ".up", "w").close()
signal.sigwait([signal.SIGTERM])
os.write(os.open(sys.argv[2], os.O_APPEND | os.O_CREAT | os.O_WRONLY), sys.argv[3].encode())
"""
EXITS_AT_ONCE = """
import os, sys
os.write(os.open(sys.argv[1], os.O_APPEND | os.O_CREAT | os.O_WRONLY), b"x")
"""
LOGS_MUCH = """
import time
while True:
    print("x" * 999, flush=True)
    time.sleep(0.001)
"""


@pytest.fixture
def folder():
    path = Path(tempfile.mkdtemp(prefix="mp-up-"))  # short: a socket's path is bounded
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def tables(folder):
    """Of a database in this folder: a first start makes them in the tests of the README."""
    url = f"sqlite:///{folder / 'msgplatform.db'}"
    with console(folder, DATABASE_URL=url) as process:
        migrated.fill(url, lambda: process.run(MIGRATE), "everything")


def until(condition, seconds=600, first_pause=0.02):
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() < begun + seconds, f"not within {seconds} s"
        pause(begun, first_pause)


def python(folder, script, *args):
    (file := folder / f"{abs(hash(script))}.py").write_text(script)
    return [sys.executable, "-I", "-S", str(file), *map(str, args)]


@contextmanager
def supervised(folder, *programs):
    supervisor = Supervisor(folder, folder / "run" / "s.sock", programs)
    try:
        yield supervisor.start()
    finally:
        supervisor.kill()


def pids(supervisor):
    """Process name → pid, of running processes and supervisord; none after its end."""
    if supervisor.wait(0) is not None:
        return {}
    running = {info["name"]: info["pid"] for info in supervisor.processes() if info["pid"]}
    return {"supervisord": supervisor.pid, **running}


def test_what_comes_and_goes_leaves_the_others_alone(folder):
    ends = folder / "ends"

    def program(name, **more):
        argv = python(folder, ENDS_IN_ORDER, folder / name, ends, name)
        return Program(name, argv, 500, **more)

    def up(*names):
        until(lambda: all((folder / f"{name}.up").exists() for name in names))

    own = [program(name, comes_and_goes=True) for name in ("a", "b")]
    with supervised(folder, program("general")) as supervisor:
        up("general")
        supervisor.follow(own)
        up("a", "b")
        before = pids(supervisor)
        assert before.keys() == {"supervisord", "general", "a", "b"}
        supervisor.follow(own[1:])
        assert ends.read_text() == "a"
        assert pids(supervisor) == {name: pid for name, pid in before.items() if name != "a"}
        supervisor.follow(own[1:])
        supervisor.follow([])
        assert ends.read_text() == "ab"
        assert pids(supervisor)["general"] == before["general"]


def test_a_program_that_exits_at_once_twenty_times_is_still_restarted(folder):
    starts = folder / "starts"
    quick = Program("quick", python(folder, EXITS_AT_ONCE, starts), 500, longest_pause=0.01)
    missing = Program("missing", ["/no/such/program"], 500, longest_pause=0.01)
    with supervised(folder, quick, missing) as supervisor:
        until(lambda: starts.exists() and starts.stat().st_size > 20)
        log = (folder / "logs" / "supervisord.log").read_text()
        until(lambda: len(re.findall("spawned: 'missing'", supervisor.places.log.read_text())) > 5)
    assert "FATAL" not in log
    assert "gave up" not in log
    assert "cannot be run" in (folder / "logs" / "missing.log").read_text()


def test_a_log_that_cannot_be_written_loses_lines_and_nothing_else(folder):
    log = private_directory(folder / "logs") / "logs.log"
    with log.open("wb") as file:
        file.truncate(10 << 20)
    # Its rotation fails: a folder cannot be replaced by a file.
    log.with_name("logs.log.2").touch()
    log.with_name("logs.log.3").mkdir()

    def until_more(size):
        before = size()
        until(lambda: size() > before + (1 << 18), 60)  # more than a pipe takes

    with supervised(folder, Program("logs", python(folder, LOGS_MUCH), 500)) as supervisor:
        until_more(lambda: log.stat().st_size)
        process = psutil.Process(pids(supervisor)["logs"])
        limits = resource.prlimit(supervisor.pid, resource.RLIMIT_FSIZE)
        # As with a full disk: no write of supervisord into a file succeeds.
        resource.prlimit(supervisor.pid, resource.RLIMIT_FSIZE, (0, limits[1]))
        until_more(lambda: process.io_counters().write_chars)
        resource.prlimit(supervisor.pid, resource.RLIMIT_FSIZE, limits)
        until_more(lambda: log.stat().st_size)
        assert pids(supervisor) == {"supervisord": supervisor.pid, "logs": process.pid}


def test_priorities_stop_one_after_another_and_the_last_started_first(folder):
    order = folder / "order"
    names = {"first": 10, "second": 500, "third": 900}
    programs = [
        Program(name, python(folder, ENDS_IN_ORDER, folder / name, order, f"{name} "), priority)
        for name, priority in names.items()
    ]
    with supervised(folder, *programs) as supervisor:
        until(lambda: all((folder / f"{name}.up").exists() for name in names))
        assert pids(supervisor).keys() == {"supervisord", *names}
        supervisor.stop()
        assert supervisor.wait(0) == 0
        assert pids(supervisor) == {}
    assert order.read_text() == "third second first "


def test_several_processes_of_a_program_have_names_and_logs_of_their_own(folder):
    wait = ["sh", "-c", "echo here; exec sleep 600"]
    with supervised(folder, Program("many", wait, 1, processes=2)) as supervisor:
        logs = [folder / "logs" / f"many-{number}.log" for number in (0, 1)]
        until(lambda: all(log.exists() and "here" in log.read_text() for log in logs))
        assert pids(supervisor).keys() == {"supervisord", "many-0", "many-1"}


def test_a_second_request_to_stop_kills_what_does_not_end(folder):
    stubborn = ["sh", "-c", f"trap '' TERM; touch {folder}/up; while :; do sleep 1; done"]
    with supervised(folder, Program("stubborn", stubborn, 1, stop_seconds=600)) as supervisor:
        until(lambda: (folder / "up").exists())
        processes = [psutil.Process(pid) for pid in pids(supervisor).values()]
        supervisor.request_stop()
        assert supervisor.wait(1.5) is None
        supervisor.request_stop()
        assert supervisor.wait(120) == -signal.SIGKILL
        assert psutil.wait_procs(processes, timeout=120)[1] == []


def test_a_second_update_does_not_end_the_up_that_starts():
    """An update sends `up` SIGUSR1 at its end. The signal ends a process without a handler."""
    code = "import os, signal; os.kill(os.getpid(), signal.SIGUSR1); print('goes on')"
    program = (
        "import sys; from msgplatform.operation.supervision.run import Inheritance\n"
        f"Inheritance(1, 2, 3).hand_over([sys.executable, '-c', {code!r}], '.')"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "goes on\n", (done.returncode, done.stderr)


def test_a_request_to_stop_before_the_start_is_not_forgotten(folder):
    # A signal that reaches a child between supervisord's fork and exec is lost: it asks again,
    # with SIGKILL, after stop_seconds.
    program = Program("p", ["sleep", "60"], 1, stop_seconds=2)
    supervisor = Supervisor(folder, folder / "run" / "s.sock", [program])
    supervisor.request_stop()
    try:
        assert supervisor.start().wait(120) == 0
    finally:
        supervisor.kill()


def test_a_state_directory_is_held_by_one(folder):
    private_directory(folder / "run")
    assert not is_running(folder)
    lock = Lock(folder / "run")
    lock.take()
    assert is_running(folder)
    with pytest.raises(Refused, match=f"process {os.getpid()}"):
        Lock(folder / "run").take()
    lock.release()
    assert not is_running(folder)
    assert not is_running(folder / "nowhere")


def test_a_port_in_use_is_said_in_a_sentence():
    port = free_port()
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(Refused, match=f"Port {port} of 127.0.0.1 is in use"),
    ):
        hold("127.0.0.1", port)
    hold("127.0.0.1", port).close()
    with pytest.raises(Refused, match="cannot be used"):
        hold("192.0.2.1", port)  # an address of the documentation, not ours


def test_an_address_is_held_by_one_platform_before_anything_listens():
    """Two that start at the same time would both find it free."""
    port = free_port()
    code = (
        "import time, django; django.setup(); "
        "from msgplatform.operation.supervision.address import hold; "
        f"held = hold('127.0.0.1', {port}); print('held', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout
        assert other.stdout.readline() == "held\n"
        with pytest.raises(Refused, match=f"Port {port} of 127.0.0.1 is in use"):
            hold("127.0.0.1", port)
        other.kill()
    hold("127.0.0.1", port).close()


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("127.0.0.2", "http://127.0.0.2:8000"),
        ("::1", "http://[::1]:8000"),
    ],
)
def test_this_machine_alone_is_served_over_http(settings, name, url):
    settings.PUBLIC_URL_SET = False
    assert public_url(resolve(name, 8000), 8000) == url
    # Which of the two comes first is the machine's choice.
    local = public_url(resolve("localhost", 8000), 8000)
    assert local in {"http://127.0.0.1:8000", "http://[::1]:8000"}


def test_other_machines_need_an_address_that_somebody_has_set(settings):
    for host in ("0.0.0.0", "::", "192.0.2.1"):
        settings.PUBLIC_URL_SET = False
        with pytest.raises(Refused, match=r"set PUBLIC_URL"):
            public_url(host, 8000)
        settings.PUBLIC_URL_SET = True
        assert public_url(host, 8000) == settings.PUBLIC_URL
    for name in ("no.such.host.invalid", "two..dots"):
        with pytest.raises(Refused, match=rf"{re.escape(name)} is not an address"):
            resolve(name, 8000)


def without_servers():
    foreign = {"DATABASE_URL", "REDIS_URL", "SMS_REDIS_URL"}
    return {name: value for name, value in os.environ.items() if name not in foreign}


def up(folder, port, *arguments, said=subprocess.PIPE, **variables):
    """`manage.py up` as a person starts it: no server is configured."""
    own = {
        "STATE_DIR": str(folder),
        "PUBLIC_URL": f"http://127.0.0.1:{port}",
        "SMS_RECEIVER_PORT": str(free_port()),  # not that of another test
    }
    return subprocess.Popen(
        [sys.executable, "manage.py", "up", "--port", str(port), *arguments],
        cwd=ROOT,
        env={**without_servers(), **own, **variables},
        stdout=said,
        stderr=subprocess.STDOUT,
        text=True,
    )


def answers(port, path="/readyz"):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


def until_it_answers(platform, port, path="/readyz"):
    def is_there():
        assert platform.poll() is None, platform.communicate()[0]
        return answers(port, path)

    until(is_there)


def content(path):
    """Of a file, b"" for anything else and for a file that is gone."""
    with suppress(FileNotFoundError):
        return path.read_bytes() if path.is_file() else b""
    return b""


def refusal(folder, port=0, **variables):
    process = up(folder, port or free_port(), **variables)
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 1
    return said


def commands(processes):
    """Their command lines, '' for one that ended in between."""
    lines = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # a zombie too
            lines.append(" ".join(process.cmdline()))
    return "\n".join(lines)


SUBSCRIPTION = """
from msgplatform.models import Biz
from notify.models import BizReceive, Receive
biz = Biz.objects.create(name="orders")
receive = Receive.objects.create(name="warehouse", url="https://warehouse.example/")
BizReceive.objects.create(biz=biz, receive=receive, own_process=True)
"""
SHARED = "from notify.models import BizReceive; BizReceive.objects.update(own_process=False)"


@contextmanager
def console(folder, **variables):
    """A process of the platform in this folder, which runs pieces of code."""
    own = {"STATE_DIR": str(folder), "DATABASE_URL": "", "REDIS_URL": "", "SMS_REDIS_URL": ""}
    process = Console({**os.environ, **own, **variables}, folder / "console.log")
    yield process
    process.close()


def children_of(platform):
    return psutil.Process(platform.pid).children(recursive=True)


@pytest.mark.usefixtures("tables")
def test_the_platform_runs_once_dies_with_up_and_stops_in_order(folder):
    port = free_port()
    platform = up(folder, port)
    try:
        until_it_answers(platform, port, "/healthz")
        _assert_callers_did_not_wait_for_programs(platform)
        until_it_answers(platform, port)
        until(lambda: _daemons(folder) >= DAEMONS)
        _assert_idle_is_small(platform)
        children = children_of(platform)
        running = commands(children)
        # The server and its worker, which it forked.
        assert running.count("msgplatform.doors.web") == 2
        with redis.Redis(unix_socket_path=str(folder / "run" / "sms.sock")) as sms:
            assert sms.config_get("appendfsync") == {"appendfsync": "always"}

        assert f"by process {platform.pid}." in refusal(folder)
        assert f"Port {port} of 127.0.0.1 is in use" in refusal(folder / "other", port)
        until_it_answers(platform, port)

        platform.kill()
        assert psutil.wait_procs(children, timeout=120)[1] == []
        assert not is_running(folder)

        # What was killed left a socket, a lock file and logs: they are in nobody's way.
        platform.communicate()
        # Fewer flows are enough for the rest.
        platform = up(folder, port, FLOWS="notify,gateway" if FULL else "crmsync")
        until_it_answers(platform, port)
        children = children_of(platform)
        platform.terminate()
        platform.communicate(timeout=600)
        assert platform.returncode == 0
        assert psutil.wait_procs(children, timeout=120)[1] == []
    finally:
        platform.kill()
        platform.communicate()
    log = (folder / "logs" / "supervisord.log").read_text()
    stopped = re.findall(r"stopped: (web|redis-\w+) \(exit status 0\)", log)
    assert stopped[0] == "web"
    assert set(stopped[1:]) == {"redis-work", *(["redis-sms"] if FULL else [])}


def _assert_callers_did_not_wait_for_programs(platform):
    """Programs start when the web server answers."""
    times: dict[str, float] = {}  # of the first process of each
    for child in children_of(platform):
        for name in ("msgplatform.doors.web", "run_maker"):
            if name in commands([child]):
                times[name] = min(child.create_time(), times.get(name, math.inf))
    # Without this order both start within a moment, and a web server takes longer to answer.
    assert "run_maker" not in times or times["run_maker"] > times["msgplatform.doors.web"] + 0.5
    until(lambda: "run_maker" in commands(children_of(platform)))


def _daemons(folder):
    """Those that have begun their work."""
    with redis.Redis(unix_socket_path=str(folder / "run" / "work.sock")) as work:
        return {name.decode().split(":")[0] for name in work.hkeys("heartbeats")}


def _assert_idle_is_small(platform):
    family = [psutil.Process(platform.pid), *children_of(platform)]
    # The web server and its worker have the same command line.
    sizes = [(child.memory_full_info().pss, commands([child])[-60:]) for child in family]
    print([f"{size >> 20} MiB {line}" for size, line in sizes])
    pss = sum(size for size, _ in sizes)
    print(f"sum of PSS: {pss >> 20} MiB")
    assert pss < LIMIT_BYTES


def _assert_programs_follow_the_settings(console, platform):
    """As many processes as asked for, and one for a subscription that wants its own."""

    def running(part):
        return commands(children_of(platform)).count(part)

    until(lambda: running("msgplatform run_archiver") == 2)
    console.run(SUBSCRIPTION)
    until(lambda: running("run_sender --subscription=1") == 1)
    console.run(SHARED)
    until(lambda: running("run_sender --subscription=1") == 0)
    assert running("msgplatform run_sender") == 1


@pytest.mark.full
@pytest.mark.usefixtures("tables")
def test_the_link_that_it_prints_leads_to_the_console_and_only_once(folder, tmp_path):
    port = free_port()
    printed = tmp_path / "terminal"

    def start():
        with printed.open("w") as terminal:
            return up(
                folder, port, "--host", "localhost", said=terminal, PUBLIC_URL="",
                ACCESS_LOG="yes", FLOWS="notify",
            )  # fmt: skip

    def stop():
        platform.terminate()
        assert platform.wait(timeout=600) == 0
        assert printed.read_text().endswith("The platform has stopped.\n")

    def link():
        until(lambda: "/console/password/" in printed.read_text())
        return re.search(r"^  (http\S+)$", printed.read_text(), re.MULTILINE)[1]

    platform = start()
    try:
        address = re.search(r"^http://\S+?/", link())[0]
        assert address in {f"http://127.0.0.1:{port}/", f"http://[::1]:{port}/"}
        if FULL:  # the link of each start: tests/integration/platform/test_first_user.py
            stop()
            platform = start()
        until_it_answers(platform, port)
        printed_link = link()  # as long as nobody has chosen a password

        browser = requests.Session()
        browser.trust_env = False
        page = browser.get(printed_link, timeout=600)
        assert 'name="new_password1"' in page.text
        token = printed_link.partition("token=")[2]
        assert token not in page.url
        own = "violet umbrella 7"
        form = {"new_password1": own, "new_password2": own}
        form["csrfmiddlewaretoken"] = browser.cookies["csrftoken"]
        inside = browser.post(page.url, form, timeout=600)
        assert (inside.status_code, inside.url) == (200, f"{address}console/")
        emergency = subprocess.run(
            [sys.executable, "manage.py", "login_link", "admin"], cwd=ROOT, check=True,
            env={**without_servers(), "STATE_DIR": str(folder), "PUBLIC_URL": ""},
            capture_output=True, text=True, timeout=600,
        ).stdout  # fmt: skip
        assert emergency.startswith(f"{address}console/sign-in/link?token=")
        assert "signs you in as admin" in requests.get(emergency.strip(), timeout=600).text
        again = requests.get(printed_link, timeout=600)
        assert "This link no longer works" in again.text
        for file in folder.rglob("*"):
            assert token.encode() not in content(file), file

        stop()
        if FULL:
            platform = start()
            # It is asked for the users after this line, and ends in order only when that is done.
            until(lambda: "The platform is on" in printed.read_text())
            stop()
            assert "password" not in printed.read_text()
    finally:
        platform.kill()
        platform.wait()


def test_it_does_not_serve_other_machines_under_an_address_that_nobody_set(folder):
    platform = up(folder, free_port(), "--host", "0.0.0.0", PUBLIC_URL="")
    said, _ = platform.communicate(timeout=600)
    assert platform.returncode == 1
    assert "set PUBLIC_URL" in said
    assert not (folder / "run").exists()


def test_a_wrong_setting_stops_it_and_is_named(folder):
    said = refusal(folder, API_RATE_READ="often")
    assert "API_RATE_READ" in said
    assert "HINT" in said
    assert not (folder / "run").exists()


def test_a_database_server_is_migrated_only_when_asked(folder, mariadb):
    said = refusal(folder, DATABASE_URL=mariadb.create("up_refused"))
    assert "manage.py migrate --database default" in said
    assert mariadb.execute("SHOW TABLES FROM up_refused WHERE Tables_in_up_refused = 'biz'") == ()
    assert not is_running(folder)


FAULT = """
import os, sys
if len(sys.argv) > 1 and sys.argv[1] == "run_maker":
    sys.stderr.write("Traceback (most recent call last):\\nRuntimeError: boom\\n")
    sys.stderr.flush()
    os._exit(1)
"""
OVERVIEW = """
from msgplatform.doors.console import condition
from msgplatform.models import Alert
print(dict(condition.look().exits))
print([a.text for a in Alert.objects.filter(key="platform.silent:maker", open_key__isnull=False)])
"""
DOCTOR = """
from msgplatform.operation import doctor
print([f.what for f in doctor.examine() if "ends again" in f.what])
"""


HUNG = """
from django.utils import translation
from msgplatform.doors.console import condition
from msgplatform.operation import doctor
from msgplatform.models import Alert
print(dict(condition.look().exits))
print([f.what for f in doctor.examine() if "hung" in f.what])
print([a.subject for a in Alert.objects.filter(key="platform.silent:marker")])
"""


@pytest.mark.usefixtures("tables")
def test_programs_that_end_at_once_and_that_hang_are_told(folder, tmp_path):
    """One ends with last words: they are in the terminal, on the overview, in doctor and in an
    alert, until it runs. The process of another is there and gives no sign of life: up ends it
    after a minute, and says so in the same places and in its log. Others go on."""
    port, terminal = free_port(), tmp_path / "terminal"
    fault = tmp_path / "fault"
    fault.mkdir()
    (fault / "sitecustomize.py").write_text(FAULT)

    with terminal.open("w") as said:
        platform = up(
            folder, port, "--processes", "run_archiver=2", said=said, PYTHONPATH=str(fault),
            FLOWS="notify",
        )  # fmt: skip

    def process_of(program):
        return next(child for child in children_of(platform) if program in commands([child]))

    try:
        until(lambda: "run_maker: It ended 3 times" in terminal.read_text())
        assert "its last words: RuntimeError: boom" in terminal.read_text()
        with console(folder, FLOWS="notify") as process:

            def read_overview():
                return process.run(OVERVIEW).splitlines()[-2:]

            def ask_doctor():
                return process.run(DOCTOR).splitlines()[-1]

            # The doctor asks everything: it is asked when the others say so.
            until(
                lambda: all("RuntimeError: boom" in line for line in read_overview()),
                first_pause=0.5,
            )
            until(lambda: "RuntimeError: boom" in ask_doctor(), first_pause=2)
            (fault / "sitecustomize.py").unlink()
            until(lambda: read_overview() == ["{}", "[]"], first_pause=0.5)
            until(lambda: ask_doctor() == "[]", first_pause=2)

            until(lambda: _daemons(folder) >= {"marker", "maker"})
            until_it_answers(platform, port)
            until(lambda: "web" in _daemons(folder))
            _assert_programs_follow_the_settings(process, platform)
            hung, others = process_of("run_marker"), process_of("run_maker")
            worker = process_of("msgplatform.doors.web").children()[0]
            for program in (hung, worker):
                program.send_signal(signal.SIGSTOP)
            until(lambda: "run_marker: It hung" in terminal.read_text(), first_pause=0.5)
            until(lambda: "web: It hung" in terminal.read_text(), first_pause=0.5)
            until(lambda: not hung.is_running() and not worker.is_running())
            until_it_answers(platform, port)
            until(lambda: "marker" in _daemons(folder), first_pause=0.5)
            assert others.is_running()
            until(lambda: process.run(HUNG).count("hung") >= 3, first_pause=2)
        log = (folder / "logs" / "run_marker.log").read_text()
        assert [error.event for error in read_errors(log)] == ["hung"]
        assert "run_maker: It hung" not in terminal.read_text()
    finally:
        platform.terminate()
        platform.communicate(timeout=600)
    assert platform.returncode == 0
    assert terminal.read_text().endswith("The platform has stopped.\n")
