"""System checks: each fault has an id, names the variable, and says how to repair it."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from django.conf import settings
from django.core.checks import CheckMessage, run_checks
from django.db import connections
from django.test import override_settings

from msgplatform import checks, env
from msgplatform.core.data import engines
from msgplatform.operation import doctor
from tests.servers import Servers

FULL = bool(os.environ.get("MSGPLATFORM_FULL_LOAD"))
GOOD = {
    "SECRET_KEY": "M8nq1sA0Zc7yTgVbUwXe2rJp4kLd9fHh5iOa3uCt6vRmQxYzE-s",
    "ENCRYPTION_KEY": "YSBrZXkgZm9yIHRlc3RzIG9ubHksIDMyIGJ5dGVzIG4=",
    "PUBLIC_URL": "https://x",
    "REDIS_URL": "redis://work.example/0",
    "SMS_REDIS_URL": "redis://sms.example/0",
    "DATABASE_URL": "mysql://user:pw@db.example/msgplatform",
}


def python(tmp_path: Path, *args: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A Python process with these variables and nothing of this process's environment but PATH."""
    environ = {"PATH": os.environ["PATH"], "STATE_DIR": str(tmp_path), **variables}
    return subprocess.run(
        [sys.executable, *args],
        cwd=env.BASE_DIR,
        env={name: value for name, value in environ.items() if value},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def found(**settings: Any) -> dict[str, CheckMessage]:
    """Our own checks by id, with these settings."""
    with override_settings(**settings):
        messages = run_checks(tags=[env.CHECKS_TAG], include_deployment_checks=True)
    return {str(message.id): message for message in messages}


class TestDeploy:
    def test_a_good_installation_is_clean(self, tmp_path: Path, servers: Servers) -> None:
        good = {**GOOD, "SMS_REDIS_URL": servers.sms.url}
        result = python(tmp_path, "manage.py", "check", "--deploy", **good)
        assert (result.returncode, result.stderr) == (0, "")

    @pytest.mark.parametrize(
        "wrong",
        [
            {
                "SECRET_KEY": ("", "E001"),
                "ENCRYPTION_KEY": (GOOD["ENCRYPTION_KEY"] + ",hunter2", "E009"),
                "REDIS_URL": ("", "E101"),
                "COLD_DATABASE_URL": (GOOD["DATABASE_URL"], "E004"),
                "API_RATE_WRITE": ("many", "E003"),
                "TIME_ZONE": ("Mars", "E002"),
            },
            pytest.param(
                {"ENCRYPTION_KEY": ("", "E008"), "SMS_REDIS_URL": ("", "E101")},
                marks=pytest.mark.full,
            ),
            pytest.param({"SMS_REDIS_URL": (GOOD["REDIS_URL"], "E005")}, marks=pytest.mark.full),
        ],
    )
    def test_faults(self, tmp_path: Path, wrong: dict[str, tuple[str, str]]) -> None:
        """All of them are told at once, each with its hint."""
        values = {name: value for name, (value, _) in wrong.items()}
        result = python(tmp_path, "manage.py", "check", "--deploy", **{**GOOD, **values})
        assert result.returncode == 1
        for name, (_, id) in wrong.items():
            (told,) = re.findall(rf"^.*\(msgplatform\.{id}\).*$", result.stderr, re.MULTILINE)
            assert name in told
        assert result.stderr.count("HINT: ") >= len(wrong)
        assert "hunter2" not in result.stderr

    def test_a_daemon_imports_no_addresses(self, tmp_path: Path) -> None:
        result = python(
            tmp_path,
            "-c",
            "import sys, django; django.setup()\n"
            "from django.core.management import call_command; call_command('check')\n"
            "assert 'msgplatform.urls' not in sys.modules\n"
            "assert 'django.contrib.admin.sites' not in sys.modules",
            DJANGO_SETTINGS_MODULE="msgplatform.settings",
            MSGPLATFORM_PROFILE="daemon",
            **GOOD,
        )
        assert result.returncode == 0, result.stderr


class TestWsgi:
    """It does not start on a wrong configuration, and says everything at once."""

    def test_starts(self, tmp_path: Path) -> None:
        program = "from msgplatform.doors.web.wsgi import application; assert callable(application)"
        result = python(tmp_path, "-c", program, **GOOD)
        assert result.returncode == 0, result.stderr

    def test_refuses(self, tmp_path: Path) -> None:
        wrong = {
            "SECRET_KEY": "", "ENCRYPTION_KEY": "", "TIME_ZONE": "Mars", "API_RATE_READ": "x",
            "DEBUG": "perhaps",
        }  # fmt: skip
        result = python(tmp_path, "-c", "import msgplatform.doors.web.wsgi", **{**GOOD, **wrong})
        assert result.returncode == 1
        assert "Traceback" not in result.stderr
        for variable in wrong:
            assert variable in result.stderr
        assert "secrets.token_urlsafe" in result.stderr
        assert "base64.urlsafe_b64encode(os.urandom(32))" in result.stderr
        assert "Set TIME_ZONE to" in result.stderr

    def test_refuses_what_a_flow_refuses(self, tmp_path: Path) -> None:
        """With the sentences of the daemons; the database is not asked, and is away here."""
        wrong = {
            "CRM_RATE_PER_IP": "60 per minute", "FEED_SHARE_BY_HOUR": "19-23",
            "NOTIFY_LEASE_SECONDS": "20", "NOTIFY_ARCHIVE_DAYS": "3", "SMS_ARCHIVE_DAYS": "33",
        }  # fmt: skip
        environment = {**GOOD, "NOTIFY_KEEP_FAILED_DAYS": "1", **wrong}
        result = python(tmp_path, "-c", "import msgplatform.doors.web.wsgi", **environment)
        daemon = python(tmp_path, "manage.py", "run_maker", **environment)
        assert (result.returncode, daemon.returncode) == (1, 1)
        assert "Traceback" not in result.stderr
        for variable in wrong:
            (told,) = re.findall(rf"^  ({variable}\b.*)\n    → (.+)$", result.stderr, re.MULTILINE)
            assert all(sentence in daemon.stderr for sentence in told)

    @pytest.mark.parametrize(
        ("url", "host"),
        [("https://[2001:db8::5]", "[2001:db8::5]"), ("https://[::5]:8443", "[::5]"),
         ("https://x:8443/", "x"), ("https://x", "x"), ("https://消息.test", "xn--ybu940a.test")],
    )  # fmt: skip
    def test_answers_to_the_host_of_its_address(self, tmp_path: Path, url: str, host: str) -> None:
        program = "from msgplatform.settings import ALLOWED_HOSTS; print(ALLOWED_HOSTS[0])"
        result = python(tmp_path, "-c", program, **{**GOOD, "PUBLIC_URL": url})
        assert (result.stdout.strip(), result.stderr) == (host, "")

    def test_a_proxy_without_a_port_is_one_server_for_all_libraries(self, tmp_path: Path) -> None:
        program = "from msgplatform.settings import OUTBOUND_PROXY; print(OUTBOUND_PROXY)"
        environment = {**GOOD, "OUTBOUND_PROXY": "http://u:p@proxy.test/"}
        result = python(tmp_path, "-c", program, **environment)
        assert (result.stdout.strip(), result.stderr) == ("http://u:p@proxy.test:1080", "")


class TestSettings:
    def test_nothing_is_wrong_here(self) -> None:
        assert found() == {}

    def test_secret_key(self) -> None:
        message = found(SECRET_KEY_MISSING=True)["msgplatform.E001"]
        assert "token_urlsafe" in str(message.hint)

    @pytest.mark.parametrize(
        "command", ["run_sender", *(["migrate", "run_sms_sender"] if FULL else [])]
    )
    def test_nothing_starts_without_an_encryption_key(self, tmp_path: Path, command: str) -> None:
        result = python(tmp_path, "manage.py", command, SECRET_KEY=GOOD["SECRET_KEY"])
        assert result.returncode == 1
        assert "msgplatform.E008" in result.stderr
        assert "Traceback" not in result.stderr

    def test_a_default_file_holds_the_encryption_key(self, tmp_path: Path) -> None:
        """Made once, for nobody else's eyes, by the command; `up` does it too."""
        variables = {**GOOD, "ENCRYPTION_KEY": ""}
        for _ in range(2 if FULL else 1):
            assert python(tmp_path, "manage.py", "make_keys", **variables).returncode == 0
        (made,) = tmp_path.iterdir()
        assert (made.name, made.stat().st_mode & 0o777) == ("encryption_key", 0o600)
        result = python(tmp_path, "manage.py", "check", **variables)
        assert result.returncode == 0, result.stderr

    def test_help_makes_no_key(self, tmp_path: Path) -> None:
        result = python(tmp_path, "manage.py", "up", "--help")
        assert (result.returncode, list(tmp_path.iterdir())) == (0, [])

    @pytest.mark.parametrize("command", ["make_keys", "up"])
    def test_a_folder_of_others_gets_no_key(self, tmp_path: Path, command: str) -> None:
        (tmp_path / "mail").touch()
        tmp_path.chmod(0o755)
        result = python(tmp_path, "manage.py", command, **{**GOOD, "ENCRYPTION_KEY": ""})
        assert result.returncode == 1
        assert "name one in STATE_DIR" in result.stderr
        assert "Traceback" not in result.stderr
        assert [path.name for path in tmp_path.iterdir()] == ["mail"]
        assert tmp_path.stat().st_mode & 0o777 == 0o755

    def test_every_wrong_variable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        problems = [env.Problem("A", "A is wrong", "Repair A"), env.Problem("B", "B", "Repair B")]
        monkeypatch.setattr(env, "problems", problems)
        messages = [m for m in checks.settings_check(None) if m.id == "msgplatform.E002"]
        assert [(m.msg, m.hint) for m in messages] == [
            ("A is wrong", "Repair A"),
            ("B", "Repair B"),
        ]

    @pytest.mark.parametrize(
        "rate",
        [
            "600",
            "600/",
            "/min",
            "0/min",
            "-1/min",
            "1.5/s",
            "1/fortnight",
            "٣/min",
            "9" * 10 + "/s",
        ],
    )
    def test_rates(self, settings: Any, rate: str) -> None:
        rates = {"DEFAULT_THROTTLE_RATES": {"read": rate, "write": None, "failed": "off"}}
        message = found(REST_FRAMEWORK={**settings.REST_FRAMEWORK, **rates})["msgplatform.E003"]
        assert "API_RATE_READ" in message.msg

    @pytest.mark.parametrize(
        "rate", ["100/s", "600/min", "5000/hour", "20000/day", "OFF", "", None]
    )
    def test_right_rates(self, settings: Any, rate: str | None) -> None:
        rates = {"DEFAULT_THROTTLE_RATES": {"read": rate}}
        assert found(REST_FRAMEWORK={**settings.REST_FRAMEWORK, **rates}) == {}

    @pytest.mark.parametrize(
        ("work", "sms", "id"),
        [
            ("redis://a", "redis://a:6379/0", "msgplatform.E005"),
            ("redis://:pw@a/0", "rediss://a/", "msgplatform.E005"),
            ("redis://a/1", "redis://a/2?db=1", "msgplatform.E005"),
            ("unix:///r.sock", "unix:///r.sock?db=0", "msgplatform.E005"),
            ("redis://a/0", "redis://a/1", "msgplatform.W006"),
            ("unix:///r.sock?db=1", "unix:///r.sock?db=2", "msgplatform.W006"),
            ("redis://a:6379/0", "redis://a:6380/0", None),
            ("redis://a/0", "redis://b/0", None),
            ("unix:///r.sock", "unix:///s.sock", None),
            ("redis://a", "unix:///a", None),
        ],
    )
    def test_two_redis(self, work: str, sms: str, id: str | None) -> None:
        assert list(found(REDIS_URL=work, SMS_REDIS_URL=sms)) == ([id] if id else [])

    @pytest.mark.parametrize(
        ("hosts", "id"),
        [("https://x", "E018"), ("x:443", "E018"), ("x/console", "E018"), ("[::1]:80", "E018"),
         ("x,https://x", "W018"), ("y,https://x", "W018"), ("y", "W019"), ("x", ""), ("X", ""),
         ("*", ""), (".x", ""), ("x,localhost,[::1]", "")],
    )  # fmt: skip
    def test_hosts(self, hosts: str, id: str) -> None:
        public = {"PUBLIC_URL": "https://x:8443", "PUBLIC_URL_SET": True}
        told = found(ALLOWED_HOSTS=hosts.split(","), **public)
        assert list(told) == ([f"msgplatform.{id}"] if id else [])

    def test_debug_in_public(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PUBLIC_URL", "https://msg.example.com")
        public = {"DEBUG": True, "PUBLIC_URL": "https://msg.example.com", "ALLOWED_HOSTS": ["*"]}
        assert list(found(**public)) == ["msgplatform.W007"]
        assert found(**{**public, "PUBLIC_URL": "http://localhost:8000"}) == {}

    @pytest.mark.parametrize(
        ("name", "id", "needed_name"),
        [
            ("FEISHU_CLIENT_ID", "msgplatform.E015", "FEISHU_CLIENT_SECRET"),
            ("DINGTALK_CLIENT_SECRET", "msgplatform.E015", "DINGTALK_CLIENT_ID"),
            ("OIDC_CLIENT_ID", "msgplatform.W017", "OIDC_ISSUER"),
        ],
    )
    def test_a_provider_that_is_half_set_up(self, name: str, id: str, needed_name: str) -> None:
        (message,) = found(**{name: "x"}).values()
        assert (message.id, message.obj) == (id, needed_name)

    def test_archive_beside_the_main_database(self, settings: Any) -> None:
        hot = settings.DATABASES["default"]
        for cold, expected in ((hot, ["msgplatform.E004"]), ({**hot, "NAME": "other"}, [])):
            databases = {"default": hot, "cold": cold}
            with override_settings(COLD_DATABASE_URL_SET=True):
                # Not through override_settings: Django would warn about DATABASES.
                settings_of = pytest.MonkeyPatch()
                settings_of.setattr("django.conf.settings.DATABASES", databases)
                try:
                    assert list(found()) == expected
                finally:
                    settings_of.undo()

    @pytest.mark.parametrize("name", ["REDIS_EMBEDDED", "SMS_REDIS_EMBEDDED"])
    def test_embedded_redis_only_matters_in_deployment(self, name: str) -> None:
        assert list(found(**{name: True})) == ["msgplatform.E101"]
        with override_settings(**{name: True}):
            assert run_checks(tags=[env.CHECKS_TAG]) == []


class TestDatabase:
    """These talk to a server, so they run only when a database is named."""

    @pytest.mark.django_db
    def test_the_database_of_this_run_is_good(self) -> None:
        assert list(checks.database_check(None, databases=["default"])) == []

    def test_without_a_named_database_nobody_is_asked(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*args: object) -> None:
            raise AssertionError("a check connected")

        monkeypatch.setattr(type(connections["default"]), "connect", refuse)
        assert run_checks(databases=None) == []

    @pytest.mark.parametrize(
        ("version", "comment", "refusal"),
        [
            ("10.5.29-MariaDB-log", "Debian 11", "is MariaDB 10.5.29-MariaDB-log"),
            ("10.6.0-MariaDB", "", ""),
            ("11.8.2-MariaDB", "", ""),
            ("5.7.44", "MySQL Community Server (GPL)", "or a proxy that calls itself so"),
            ("5.5.30", "(ProxySQL)", "Use MySQL 8.0.13 or later"),
            ("8.0.12", "", "Use MySQL 8.0.13 or later"),
            ("8.4.0", "MySQL Community Server - GPL", ""),
            ("8.0.35-27", "Percona Server (GPL), Release 27", ""),
            ("8.0.11-TiDB-v8.5.0", "TiDB Server (Apache License 2.0)", "TiDB (8.0.11-TiDB-v8.5.0)"),
            ("5.7.25-OceanBase-v4.3", "OceanBase_CE", "is OceanBase"),
            ("8.0.30-Vitess", "", "which has no triggers"),
            ("5.7.33-mycat-2.0", "MyCat", "is MyCAT"),
        ],
    )
    def test_servers_are_refused_by_name(self, version: str, comment: str, refusal: str) -> None:
        server = MagicMock(vendor="mysql", mysql_server_data={}, alias="default")
        server.mysql_is_mariadb = "MariaDB" in version
        server.mysql_version = tuple(map(int, re.findall(r"\d+", version)[:3]))
        server.cursor().__enter__().fetchone.return_value = (version, comment)
        text = engines.of_connection(server).refusal(server)
        assert refusal in text
        assert bool(text) == bool(refusal)

    def test_an_untested_product_is_named(self) -> None:
        server = MagicMock(vendor="mysql", mysql_is_mariadb=False, alias="default")
        server.connection.get_server_info.return_value = "8.0.35-27"
        rows = [("8.0.35-27", "Percona Server (GPL), Release 27"), ("plat", "utf8mb4")]
        server.cursor().__enter__().fetchone.side_effect = rows
        (problem,) = engines.of_connection(server).problems(server)
        assert "is Percona Server (GPL), Release 27 8.0.35-27: it should work" in problem.text
        assert not problem.is_serious


class TestDoctor:
    def test_says_how_to_repair_a_missing_driver(self, tmp_path: Path) -> None:
        """Also every other command stops at this line, not in the middle of Django."""
        (tmp_path / "sitecustomize.py").write_text('import sys; sys.modules["MySQLdb"] = None\n')
        variables = {**GOOD, "PYTHONPATH": str(tmp_path)}
        result = python(tmp_path, "manage.py", "doctor", **variables)
        assert result.returncode == 1
        assert "mysqlclient is not installed" in result.stdout
        assert "python3 deploy/bootstrap.py platform mysql" in result.stdout
        assert "Traceback" not in result.stderr
        for command in ("run_bulk", "migrate") if FULL else ("run_bulk",):
            result = python(tmp_path, "manage.py", command, **variables)
            assert result.returncode == 1
            assert "mysqlclient is not installed" in result.stderr

    def test_goes_on_after_an_option_that_the_driver_refuses(self, tmp_path: Path) -> None:
        variables = {**GOOD, "DATABASE_URL": f"{GOOD['DATABASE_URL']}?read_timeout=soon"}
        result = python(tmp_path, "manage.py", "doctor", **variables)
        assert result.returncode == 1
        assert "database: TypeError" in result.stdout
        assert "GiB free" in result.stdout
        assert "Traceback" not in result.stderr

    @pytest.mark.django_db
    @pytest.mark.usefixtures("work_redis", "sms_redis")
    def test_names_every_daemon_that_is_not_running(self) -> None:
        told = {finding.what: finding for finding in doctor.examine()}
        for command in ("run_maker", "run_sms_sender", "run_data_pump", "run_bulk"):
            finding = told[f"{command} is not running"]
            assert finding.level == "warn"
            assert finding.repair.endswith(f"manage.py {command}")

    @pytest.mark.usefixtures("work_redis")
    def test_prints_commands_of_the_debian_package_when_it_is_asked_by_one(
        self, tmp_path: Path
    ) -> None:
        """The line of a Python would have neither the settings of the units nor their user."""
        file = tmp_path / "msgplatform.env"
        file.write_text(f"SECRET_KEY={GOOD['SECRET_KEY']}\nREDIS_URL={settings.REDIS_URL}\n")
        wrapper = (env.BASE_DIR / "deploy" / "debian" / "msgplatform").read_text()
        script = wrapper.partition('[ "$(id')[0] + '"$@"'
        places = {
            "/etc/msgplatform.env": file, "/var/lib/msgplatform": tmp_path,
            ".venv/bin/python": sys.executable, "/opt/msgplatform": env.BASE_DIR,
        }  # fmt: skip
        for path, place in places.items():
            script = script.replace(path, str(place))
        text = subprocess.run(
            ["/bin/sh", "-c", script, "msgplatform", "doctor"], capture_output=True,
            text=True, env={"PATH": os.environ["PATH"]}, check=False,
        ).stdout  # fmt: skip
        assert "→ msgplatform migrate --database default" in text
        assert "→ systemctl enable --now msgplatform@bulk" in text
        assert sys.executable not in text

    @pytest.mark.django_db
    @pytest.mark.usefixtures("work_redis", "sms_redis")
    def test_a_full_disk(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(doctor, "LOW_DISK_BYTES", 1 << 60)
        (finding,) = [found for found in doctor.examine() if "GiB free" in found.what]
        assert (finding.level, finding.repair) == ("bad", "free disk space")
