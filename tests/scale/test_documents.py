"""docs/scale.md and docs/cells.md in the order in which one grows: every command, as written.

Files go to private roots, where the programs themselves judge them; what asks or changes a running
server does so on a cluster of databases, and on two groups of Redis.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from msgplatform.core.servers.private_server import find_program, free_port
from tests.cluster import MIGRATE, Cluster
from tests.scale.documents import ROOT, Machine, blocks
from tests.scale.galera import Galera, remove
from tests.scale.sentinel import Group

BLOCKS = blocks()
UNITS = Path("/lib/systemd/system")
DATABASE = "grown"
_CERTIFICATE = (
    "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=messages.example.com "
    "-keyout privkey.pem -out fullchain.pem"
)

_FIRST_USER = ".venv/bin/python manage.py createsuperuser --noinput --email ops@example.com"
_WATCHED = """
import json
from msgplatform.operation import doctor
print(json.dumps(any(one.what == "a program watches the platform" for one in doctor.examine())))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    # Short, because a socket's path may have only 107 bytes.
    path = Path(tempfile.mkdtemp(prefix="mp-doc-"))
    path.chmod(0o711)
    yield path
    remove(path)


@pytest.fixture
def machines(folder: Path) -> list[Machine]:
    return [Machine(folder / f"machine{number}") for number in (1, 2, 3)]


def judged(*command: str | Path, **environment: str) -> str:
    """What a program prints that is asked to check its configuration."""
    program = find_program(str(command[0]))
    assert program, f"{command[0]} is not installed: scripts/packages.sh"
    done = subprocess.run(
        [program, *command[1:]], capture_output=True, text=True, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return done.stdout + done.stderr


def started(calls: list[str]) -> set[str]:
    """The units that systemctl was told to start; all have a file in Debian's packages."""
    words = [line.split()[1:] for line in calls if line.startswith("systemctl")]
    units = {word for line in words for word in line[1:] if not word.startswith("-")}
    for unit in units - {"redis-sentinel"}:  # of a package with nothing but this unit
        name, at, _instance = unit.partition("@")
        assert (UNITS / f"{name}{at}.service").exists(), unit
    return units


def test_every_block_is_run() -> None:
    """Whoever adds one below another heading adds its test."""
    assert {heading: len(some) for heading, some in BLOCKS.items()} == {
        "Set up": 2, "Two HAProxy": 3, "Set up Redis": 3, "Failover of the SMS Redis": 1,
        "Set it up": 2,
    }  # fmt: skip


def test_galera_is_set_up(machines: list[Machine]) -> None:
    node, haproxy = BLOCKS["Set up"]
    machine = machines[0]
    machine.run(node)
    assert started(machine.calls()) == {"mariadb"}
    settings = machine.file("/etc/mysql/mariadb.conf.d/60-galera.cnf")
    said = judged("mariadbd", f"--defaults-file={settings}", "--help", "--verbose")
    assert re.search(r"^wsrep-cluster-address +gcomm://10.0.0.11,10.0.0.12,10.0.0.13$", said, re.M)
    machine.run(haproxy)
    assert started(machine.calls()) == {"haproxy"}
    assert machine.file("/etc/haproxy/galera-check.cnf").stat().st_mode & 0o777 == 0o400
    judged(
        "haproxy", "-c", "-f", machine.file("/etc/haproxy/haproxy.cfg"),
        FOLDER=str(machine.file("/etc/haproxy")),
    )  # fmt: skip


def test_two_haproxy_are_set_up(machines: list[Machine]) -> None:
    """tests/scale/test_floating_address.py runs them."""
    both, second, start = BLOCKS["Two HAProxy"]
    haproxy = BLOCKS["Set up"][1]
    for machine, name in zip(machines, ("haproxy1", "haproxy2"), strict=False):
        for block in (haproxy, both, *([second] if name == "haproxy2" else []), start):
            machine.run(block)
        assert started(machine.calls()) == {"haproxy", "keepalived"}
        environment = dict(
            line.split("=", 1) for line in machine.file("/etc/default/haproxy").read_text().split()
        )
        assert environment.get("LOCAL_PEER", "haproxy1") == name
        judged(
            "haproxy", "-c", "-f", machine.file("/etc/haproxy/haproxy.cfg"),
            FOLDER=str(machine.file("/etc/haproxy")), **environment,
        )  # fmt: skip
        judged("keepalived", "-t", "-f", machine.file("/etc/keepalived/keepalived.conf"))
        (line,) = machine.file("/etc/sysctl.d/60-haproxy.conf").read_text().splitlines()
        assert Path("/proc/sys", line.partition(" ")[0].replace(".", "/")).exists()


def test_redis_is_set_up(machines: list[Machine]) -> None:
    """The files are those that tests/scale/sentinel.py starts, and Debian's units find them."""
    files, replicas, start = BLOCKS["Set up Redis"]
    for machine in machines:
        machine.run(files)
        assert machine.calls()[0] == "apt-get install redis-server redis-sentinel"
    for machine in machines[1:]:
        machine.run(replicas)
    unit = (UNITS / "redis-server@.service").read_text()
    (pattern,) = re.findall(r"^ExecStart=\S+ (\S+)", unit, re.M)
    for name, port in (("work", 6379), ("sms", 6380)):
        deployed = (ROOT / "deploy" / "redis" / f"{name}.conf").read_text()
        assert f"\ndir /var/lib/redis/{name}\n" in deployed
        texts = [machine.file(pattern.replace("%i", name)).read_text() for machine in machines]
        replica = f"{deployed}replicaof 10.0.0.21 {port}\n"
        assert texts == [deployed, replica, replica]
        assert all(machine.file(f"/var/lib/redis/{name}").is_dir() for machine in machines)
        assert f"sentinel monitor {name} 10.0.0.21 {port} 2\n" in (
            machines[0].file("/etc/redis/sentinel.conf").read_text()
        )
    machines[0].run(start)
    assert started(machines[0].calls()) == {
        "redis-server@work", "redis-server@sms", "redis-sentinel",
    }  # fmt: skip


def test_a_proxy_is_set_up_for_cells(machines: list[Machine]) -> None:
    _set_cell, proxy = BLOCKS["Set it up"]
    machine = machines[0]
    shutil.copy(ROOT / "deploy" / "nginx" / "msgplatform.conf", machine.file("/etc/nginx/conf.d"))
    machine.run(proxy)
    assert machine.calls() == ["nginx -t", "systemctl reload nginx"]
    certificates = machine.file("/etc/ssl/msgplatform")
    certificates.mkdir(parents=True)
    subprocess.run(_CERTIFICATE.split(), cwd=certificates, check=True, capture_output=True)
    for file in machine.file("/etc/nginx/conf.d").iterdir():
        text = re.sub(r"    listen \[::\]:[^\n]*\n", "", machine.own(file.read_text()))
        for port in ("listen 80;", "listen 443 "):
            text = text.replace(port, f"listen 127.0.0.1:{free_port()}{port[-1]}")
        file.write_text(text)
    main = machine.file("/etc/nginx/nginx.conf")
    main.write_text(
        f"pid {machine.root}/pid; error_log {machine.root}/errors; events {{}}\n"
        "http { include conf.d/*.conf; }\n"
    )
    judged("nginx", "-t", "-p", machine.root, "-c", main)


def test_the_commands_of_a_grown_platform(folder: Path, machines: list[Machine]) -> None:
    """A cluster of databases and both groups of Redis, asked and changed as the document says."""
    (look,), (set_cell, _proxy) = BLOCKS["Failover of the SMS Redis"], BLOCKS["Set it up"]
    with ExitStack() as stack:
        galera = stack.enter_context(Galera(folder))
        groups = {name: stack.enter_context(Group(folder, name)) for name in ("work", "sms")}
        galera.writer().execute(f"CREATE DATABASE {DATABASE}")
        platform = Cluster(folder, galera.url(DATABASE), ())
        environment = platform.environment | {
            "REDIS_URL": groups["work"].url, "SMS_REDIS_URL": groups["sms"].url,
            "SMS_REPLICAS": "1",
        }  # fmt: skip
        platform.environment.update(environment)
        stack.callback(platform.console.close)
        platform.console.run(MIGRATE)
        user = {"DJANGO_SUPERUSER_USERNAME": "ops", "DJANGO_SUPERUSER_PASSWORD": "violet umbrella"}
        machines[0].run(_FIRST_USER, environment | user)
        platform.start("run_maker")
        stack.callback(lambda: platform.died("run_maker") or platform.kill("run_maker"))
        platform.wait_until(lambda: platform.script(_WATCHED), "a program to watch the platform")
        sentinel = groups["sms"].sentinels[0].port
        said = machines[0].run(look.replace("26379", str(sentinel)), environment)
        facts = dict(zip(*[iter(said.splitlines())] * 2, strict=False))
        assert (facts["flags"], facts["num-slaves"], facts["num-other-sentinels"]) == (
            "master", "2", "2",
        )  # fmt: skip
        assert "role:master" in said
        assert "connected_slaves:2" in said
        assert re.search(r"^ok .*: 3 of 3 servers", said, re.M), said
        platform.stop("run_maker")
        assert "0/16" in machines[0].run(set_cell, environment)
