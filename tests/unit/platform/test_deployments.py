"""What starts the platform without `up` starts every program."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings

from msgplatform.core import flows
from msgplatform.core.flows.programs import BULK

DEPLOY = Path(__file__).parents[3] / "deploy"
# A failed unit's line begins with a bullet, also in a pipe.
SYSTEMCTL = """#!/bin/sh
case "$*" in
*--plain*list-units*) echo "msgplatform@bulk.service loaded failed" ;;
*list-units*) echo "● msgplatform@bulk.service loaded failed" ;;
*) echo "$*" ;;
esac
"""
PROGRAMS = {daemon.command for flow in flows.all() for daemon in flow.daemons}
PROGRAMS |= {BULK.command}


def by_units() -> set[str]:
    """The units that the template's first line starts."""
    first = (DEPLOY / "systemd" / "msgplatform@.service").read_text().splitlines()[0]
    return {f"run_{word.partition('@')[2]}" for word in first.split() if "@" in word}


def services(file: str = "compose.yaml") -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load((DEPLOY / file).read_text())["services"]
    return found


def by_compose() -> set[str]:
    commands = [" ".join(map(str, each.get("command", []))) for each in services().values()]
    return {command.split("manage.py ")[1] for command in commands if "manage.py run_" in command}


def by_kubernetes() -> set[str]:
    """The programs that are Deployments; `scripts/check.sh` renders and judges the files."""
    text = (DEPLOY / "kubernetes" / "base" / "programs.yaml").read_text()
    pods = [each["spec"]["template"]["spec"] for each in yaml.safe_load_all(text)]
    return {pod["containers"][0]["args"][-1] for pod in pods}


def echo_python(folder: Path, command: list[str], **variables: str) -> list[str]:
    """The arguments of each Python that the command of a container starts."""
    python = folder / "python"
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_the_image_is_the_same_with_an_engine_and_without() -> None:
    """scripts/image.sh reads packages, user and variables from the Dockerfile, line by line, and
    both run the same steps."""
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    script = (DEPLOY.parent / "scripts" / "image.sh").read_text()
    words = set(re.findall(r"instruction '([^']+)'", script))
    assert {"ARG PACKAGES=", "ARG BUILD_PACKAGES=", "ENV ", "USER "} == words
    lines = [line for line in dockerfile.splitlines() if line.startswith(tuple(words))]
    assert len(lines) == len(words)
    assert not [line for line in lines if line.endswith("\\")], "a line goes on, unread"
    for step in (
        "useradd --uid 10001 --create-home --home-dir /data msgplatform",
        "chmod u=rwx,go=rx . && chmod -R u=rwX,go=rX -- *",
        "compileall -q --invalidation-mode unchecked-hash */",
        "image/dpkg.cfg",
        "rm -rf /usr/share/perl /usr/lib/*/perl",
    ):
        assert step in dockerfile, step
        assert step in script, step
    assert "/src/install /src/requirements.txt" in dockerfile
    assert "deploy/image/install /opt/msgplatform/requirements.txt" in script


def test_bytecode_of_libraries_outlives_the_times_of_their_files(tmp_path: Path) -> None:
    """Else each program compiles them at each start: dpkg-deb sets the times anew."""
    library = tmp_path / "lib" / "python3" / "site-packages" / "library.py"
    library.parent.mkdir(parents=True)
    library.touch()
    (tmp_path / "requirements.txt").touch()
    script = (
        (DEPLOY / "image" / "install").read_text().replace("/opt/msgplatform/.venv", str(tmp_path))
    )
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(["sh", "-c", script, "install", tmp_path / "requirements.txt"],
                   env={"PATH": path}, check=True)  # fmt: skip
    (bytecode,) = library.parent.glob("__pycache__/*.pyc")
    assert bytecode.read_bytes()[4:8] == b"\1\0\0\0", "the flags: by hash, and unchecked"


def test_the_command_of_the_package_reads_settings_as_systemd_does(tmp_path: Path) -> None:
    file = tmp_path / "msgplatform.env"
    file.write_text("# A=no\n \nA='a b'\nB=\"it's\" \nC=x='y'\nD=x=y\t\nLAST=read")
    script = (DEPLOY / "debian" / "msgplatform").read_text().partition("export STATE_DIR")[0]
    program = script.replace("/etc/msgplatform.env", str(file)) + "env"
    done = subprocess.run(
        ["/bin/sh", "-c", program], env={"PATH": os.environ["PATH"]}, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    expected = {"A=a b", "B=it's", "C=x='y'", "D=x=y", "LAST=read"}
    assert expected <= set(done.stdout.splitlines())


def test_kubernetes_asks_a_host_that_is_allowed() -> None:
    """A pod's own address would get 400, and the pod would never be ready."""
    web, *_ = yaml.safe_load_all((DEPLOY / "kubernetes" / "base" / "web.yaml").read_text())
    (container,) = web["spec"]["template"]["spec"]["containers"]
    probes = {name: each["httpGet"] for name, each in container.items() if name.endswith("Probe")}
    hosts = {header["value"] for probe in probes.values() for header in probe["httpHeaders"]}
    # A pod waits for the database once. All pods at once would leave the network with it later.
    assert {name: probe["path"] for name, probe in probes.items()} == {
        "startupProbe": "/readyz", "readinessProbe": "/healthz", "livenessProbe": "/healthz",
    }  # fmt: skip
    assert hosts == {"localhost"} <= set(settings.ALLOWED_HOSTS)


def test_no_pod_of_kubernetes_writes_the_static_files_of_another_one() -> None:
    """`collectstatic` deletes files that are there before it writes them."""
    web, *_ = yaml.safe_load_all((DEPLOY / "kubernetes" / "base" / "web.yaml").read_text())
    pod = web["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    places = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    static = "/data" / settings.STATIC_ROOT.relative_to(settings.STATE_DIR)
    assert {"name": places[str(static.parent)], "emptyDir": {}} in pod["volumes"]


@pytest.mark.parametrize(("variables", "host"), [({}, "0.0.0.0"), ({"WEB_HOST": "::"}, "::")])
def test_the_web_server_of_kubernetes_listens_at_addresses_of_either_family(
    tmp_path: Path, variables: dict[str, str], host: str
) -> None:
    web, *_ = yaml.safe_load_all((DEPLOY / "kubernetes" / "base" / "web.yaml").read_text())
    (container,) = web["spec"]["template"]["spec"]["containers"]
    last = echo_python(tmp_path, container["args"], **variables)[-1]
    assert last == f"-m msgplatform.doors.web --host {host} --port 8000 --workers 2"
    for overlay in ("cluster", "small"):
        text = (DEPLOY / "kubernetes" / overlay / "kustomization.yaml").read_text()
        assert "WEB_HOST=:: and SMS_RECEIVER_HOST=::" in text


def test_kubernetes_commands_are_for_the_namespace_of_the_objects() -> None:
    """Without `-n` a command is for the namespace of the context, mostly `default`."""
    folder = DEPLOY / "kubernetes"
    overlays = [yaml.safe_load((folder / name / "kustomization.yaml").read_text())
                for name in ("small", "cluster")]  # fmt: skip
    assert {overlay["namespace"] for overlay in overlays} == {"msgplatform"}
    files = [*folder.rglob("*.yaml"), *(DEPLOY.parent / "docs").glob("*.md")]
    commands = [re.findall(r"kubectl (-n msgplatform|\w+ [-\w]+)", file.read_text())
                for file in files]  # fmt: skip
    assert set(chain(*commands)) <= {"-n msgplatform", "apply -k", "create namespace"}


def test_a_restore_on_kubernetes_stops_programs_and_leaves_servers() -> None:
    """By the label that the page's `scale` asks for; and one of them, in which its commands run,
    has the claim."""
    folder = DEPLOY / "kubernetes"
    files = [folder / "base" / "programs.yaml", folder / "base" / "web.yaml",
             folder / "small" / "servers.yaml"]  # fmt: skip
    objects = [list(yaml.safe_load_all(file.read_text())) for file in files]
    labels = [[each["metadata"].get("labels", {}) for each in group if each["kind"] == "Deployment"]
              for group in objects]  # fmt: skip
    assert [len(group) for group in labels] == [len(PROGRAMS), 1, 1]
    assert [{"program" in each for each in group} for group in labels] == [{True}, {True}, {False}]
    page = (DEPLOY.parent / "docs" / "backup.md").read_text()
    assert "scale deployment -l program --replicas=0" in page
    base = (folder / "base" / "kustomization.yaml").read_text()
    assert re.search(r"name: web\|bulk}\n.*claimName: state", base, re.S)


@pytest.mark.parametrize(
    ("page", "begin", "end"),
    [
        ("backup.md", "**Stop every program**", "2. **Make"),
        ("run.md", "### A process of its own", "## Retention"),
        ("alerts.md", "## Where the logs are", "## Prometheus"),
    ],
)
def test_each_way_of_starting_has_its_line(page: str, begin: str, end: str) -> None:
    text = (DEPLOY.parent / "docs" / page).read_text()
    section = text[text.index(begin) :].partition(end)[0].lower()
    ways = (" up`", "unit|systemd", "compose", "kubernetes")
    assert [way for way in ways if not re.search(way, section)] == []


@pytest.mark.parametrize("started", [by_units, by_compose, by_kubernetes])
def test_every_program_is_started(started: Callable[[], set[str]]) -> None:
    assert started() == PROGRAMS


def test_programs_end_before_the_servers_they_write_to() -> None:
    """compose stops a service before those that it depends on."""
    for name, service in services().items():
        command = " ".join(map(str, service.get("command", [])))
        if "run_" in command or "msgplatform.doors.web" in command:
            assert {"redis-work", "redis-sms", "migrate"} <= service["depends_on"].keys(), name
    assert "marker" in services()["sender"]["depends_on"]


def test_a_backup_and_a_restore_run_no_migration() -> None:
    """Compose starts what a service depends on: a restore needs an empty database."""
    lines = (DEPLOY.parent / "docs" / "backup.md").read_text().splitlines()
    commands = [line for line in lines if line.startswith("$compose run ")]
    assert len(commands) == 2
    # On a disk of its own: the volumes are on that of the servers.
    words = "$compose run --rm --no-deps -v /mnt/backups:/backup "
    assert [line for line in commands if not line.startswith(words)] == []


def test_the_database_of_compose_reads_no_file_of_the_clone() -> None:
    """A clone's umask, or SELinux, would keep the container's user from it."""
    volumes = [volume for service in services().values() for volume in service.get("volumes", [])]
    assert [volume for volume in volumes if volume.startswith((".", "/"))] == []
    configs = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["configs"]
    statements = (DEPLOY / "kubernetes" / "small" / "privileges.sql").read_text().splitlines()
    assert configs["privileges"]["content"] in statements


def test_the_web_server_collects_the_files_of_its_release() -> None:
    """The volume was filled by the release that made it."""
    command = services()["web"]["command"][-1]
    assert command.index("collectstatic") < command.index("exec python -m msgplatform.doors.web")


def test_the_agent_gets_nothing_of_the_platform() -> None:
    """Its file asks for no variable: whoever runs it has no SECRET_KEY to put in."""
    (agent,) = services("compose.agent.yaml").values()
    assert "${" not in (DEPLOY / "compose.agent.yaml").read_text()
    assert agent["env_file"] == [".env"]
    assert agent["command"][-1] == "run_agent"


def test_the_receiver_is_published_at_the_port_where_it_listens() -> None:
    (port,) = services()["sms-receiver"]["ports"]
    _address, outer, inner = re.split(r":(?=\$)", port)
    assert outer == inner == "${SMS_RECEIVER_PORT:-8801}"


@pytest.mark.parametrize("file", ["compose.yaml", "compose.agent.yaml"])
def test_no_container_keeps_its_log_for_ever(file: str) -> None:
    assert [name for name, each in services(file).items() if "logging" not in each] == []


def migrate_of_compose() -> list[str]:
    return [word.replace("$$", "$") for word in services()["migrate"]["command"]]


def migrate_of_kubernetes() -> list[str]:
    job = yaml.safe_load((DEPLOY / "kubernetes" / "base" / "migrate.yaml").read_text())
    assert job["spec"]["ttlSecondsAfterFinished"] == 3600, "why it failed could not be read"
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return list(container["args"])


@pytest.mark.parametrize("cold", ["", "mysql://cold"])
@pytest.mark.parametrize(
    ("command", "stage"),
    # Pods of the release before work meanwhile, and the way back stays open.
    [(migrate_of_compose, ""), (migrate_of_kubernetes, " --before")],
)
def test_the_tables_of_both_databases_are_made(
    tmp_path: Path, command: Callable[[], list[str]], stage: str, cold: str
) -> None:
    asked = [f"manage.py migrate{stage}", f"manage.py migrate{stage} --database cold"]
    lines = echo_python(tmp_path, command(), COLD_DATABASE_URL=cold)
    assert lines == asked[: 2 if cold else 1]


def test_the_folder_of_the_units_becomes_that_of_the_next_release(tmp_path: Path) -> None:
    """Without `-T`, `ln` makes the link inside of a folder that has its name."""
    docs = DEPLOY.parent / "docs"
    texts = (docs / "install.md").read_text(), (docs / "updating.md").read_text()
    links = [re.findall(r"ln -s.* /opt/msgplatform-.* /opt/msgplatform\b", text) for text in texts]
    ((first,), (second,)) = ([line.replace("/opt", str(tmp_path)) for line in lines]
                             for lines in links)  # fmt: skip
    for version in ("1.0.0", "1.1.0"):
        (tmp_path / f"msgplatform-{version}").mkdir()
    subprocess.run(f"{first} && {second}", shell=True, check=True)
    assert (tmp_path / "msgplatform").resolve() == tmp_path / "msgplatform-1.1.0"
    (tmp_path / "msgplatform").unlink()
    (tmp_path / "msgplatform").mkdir()
    done = subprocess.run(second, shell=True, capture_output=True, text=True, check=False)
    assert (done.returncode, "cannot overwrite directory" in done.stderr) == (1, True)


def test_removing_the_package_stops_units_that_failed(tmp_path: Path) -> None:
    stub = tmp_path / "systemctl"
    stub.write_text(SYSTEMCTL)
    stub.chmod(0o755)
    script = (DEPLOY / "debian" / "prerm").read_text().replace("/run/systemd/system", str(tmp_path))
    done = subprocess.run(
        ["sh", "-c", script, "prerm", "remove"], capture_output=True, text=True, check=True,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert done.stdout == "disable --now msgplatform@bulk.service\n"


@pytest.mark.parametrize(("step", "is_enabled"), [("remove", False), ("upgrade", True)])
def test_removing_the_package_disables_units_that_do_not_run(
    tmp_path: Path, step: str, is_enabled: bool
) -> None:
    link = tmp_path / "msgplatform.target.wants" / "msgplatform@bulk.service"
    link.parent.mkdir()
    link.symlink_to("/lib/systemd/system/msgplatform@.service")
    script = (DEPLOY / "debian" / "postrm").read_text().replace("/run/systemd/system", "/absent")
    script = script.replace("/etc/systemd/system", str(tmp_path))
    subprocess.run(["sh", "-c", script, "postrm", step], check=True)
    assert link.is_symlink() == is_enabled
