"""Configuration by environment: a wrong value is remembered with its repair, and never raises."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from msgplatform import env

REDIS = ("redis", "rediss", "unix")
NAME = "SOME_VARIABLE"
Read = Callable[[], Any]


@pytest.fixture(autouse=True)
def no_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env, "problems", [])
    monkeypatch.delenv(NAME, raising=False)
    monkeypatch.delenv(f"{NAME}_FILE", raising=False)


def flag() -> bool:
    return env.flag(NAME, True)


def number() -> float:
    return env.number(NAME, 15, 0.5, 60)


def integer() -> int:
    return env.integer(NAME, 120, 5, 3600)


def networks() -> list[str]:
    return env.networks(NAME)


def redis_url() -> str:
    return env.url(NAME, "redis://default/0", REDIS)


def web_url() -> str:
    return env.url(NAME, "https://localhost", ("http", "https"))


def headers() -> list[tuple[str, str]]:
    return env.headers(NAME)


def host() -> str:
    return env.host(NAME, "127.0.0.1")


def time_zone() -> str:
    return env.time_zone(NAME, "UTC")


def choice() -> str:
    return env.choice(NAME, "INFO", ("INFO", "WARNING"))


def database() -> dict[str, Any]:
    return env.database(NAME, "sqlite:////tmp/default.db")


WRONG: list[tuple[Read, Any, list[str]]] = [
    (flag, True, ["maybe", "2", "yess", "нет", "tru e"]),
    (number, 15, ["x", "0.4", "61", "-1", "nan", "inf", "1,5", "0x10", "5 s"]),
    (integer, 120, ["x", "4", "3601", "10.5", "1e3", "--5", "9" * 400]),
    (networks, [], ["10.0.0.0/33", "10.0.0.1/8", "example.com", "10.0.0.0/8;10.1.0.0/16"]),
    (redis_url, "redis://default/0", ["localhost:6379", "http://host", "redis:", "redis://", "//x",
                                      "redis://[::1", "redis", "redis://h:99999/0", "redis://h:abc/0",
                                      "redis:/0", "REDIS://h/0"]),
    (web_url, "https://localhost", ["example.com", "ftp://host", "https://", "http://[::1",
                                    "javascript:alert(1)", "https:", "https:/example.com",
                                    "http:localhost:8000", "https:///x", "http://:8000",
                                    "http://h:65536"]),
    (headers, [], ["Authorization: Bearer x", "a=b,c", "=x"]),
    (host, "127.0.0.1", ["gw.example.com:8801", "10.0.0.5:8801", "[::]:8801", "tcp://10.0.0.5"]),
    (choice, "INFO", ["WARN", "WARN1", "20", "info,warning"]),
    (time_zone, "UTC", ["Mars/Base", "../../etc/passwd", "Asia", "UTC+8", "/etc/localtime"]),
]  # fmt: skip
RIGHT: list[tuple[Read, str, Any]] = [
    (flag, "0", False),
    (flag, " OFF ", False),
    (flag, "Yes", True),
    (number, "0.5", 0.5),
    (number, "60", 60),
    (integer, "5", 5),
    (integer, " 3600 ", 3600),
    (networks, "10.0.0.0/8, 192.168.1.5,", ["10.0.0.0/8", "192.168.1.5/32"]),
    (networks, "fd00::/8", ["fd00::/8"]),
    (redis_url, "rediss://user:p%40ss@host:6380/2", "rediss://user:p%40ss@host:6380/2"),
    (redis_url, "unix:///run/redis.sock?db=1", "unix:///run/redis.sock?db=1"),
    (web_url, "http://[::1]:8000", "http://[::1]:8000"),
    (redis_url, "redis:///1", "redis:///1"),
    (web_url, "https://[2001:db8::5]", "https://[2001:db8::5]"),
    (host, "gw.example.com", "gw.example.com"),
    (host, "::", "::"),
    (
        headers,
        "Authorization=Basic%20eDp5== , x-Team = shop%2C%20web,",
        [("authorization", "Basic eDp5=="), ("x-team", "shop, web")],
    ),
    (time_zone, "Asia/Shanghai", "Asia/Shanghai"),
    (choice, "warning", "WARNING"),
]


@pytest.mark.parametrize(
    ("read", "default", "raw"),
    [(read, default, raw) for read, default, values in WRONG for raw in values],
)
def test_wrong(monkeypatch: pytest.MonkeyPatch, read: Read, default: Any, raw: str) -> None:
    monkeypatch.setenv(NAME, raw)
    assert read() == default
    (problem,) = env.problems
    assert problem.variable == NAME
    assert NAME in problem.message
    assert NAME in problem.hint


@pytest.mark.parametrize(("read", "raw", "expected"), RIGHT)
def test_right(monkeypatch: pytest.MonkeyPatch, read: Read, raw: str, expected: Any) -> None:
    monkeypatch.setenv(NAME, raw)
    assert read() == expected
    assert not env.problems


@pytest.mark.parametrize(("read", "default"), [(read, default) for read, default, _ in WRONG])
@pytest.mark.parametrize("raw", [None, "", "  "])
def test_unset(monkeypatch: pytest.MonkeyPatch, read: Read, default: Any, raw: str | None) -> None:
    if raw is not None:
        monkeypatch.setenv(NAME, raw)
    assert read() == default
    assert not env.problems


def test_text_and_words(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (env.text(NAME, "x"), env.words(NAME, ["y"])) == ("x", ["y"])
    monkeypatch.setenv(NAME, " a.example , b.example ,")
    assert env.text(NAME) == "a.example , b.example ,"
    assert env.words(NAME, []) == ["a.example", "b.example"]


class TestModules:
    @pytest.mark.parametrize(
        ("raw", "expected", "said"),
        [
            ("notify,gateway,notify", ["notify", "gateway"], ""),
            ("notify,json", ["notify"], "not installed: json"),
            ("notify,notfy.feed", ["notify"], "not installed: notfy.feed"),
            ("json.decoder,.x,a..b", [], "not installed: .x, a..b, json.decoder"),
            ("gateway", ["notify", "gateway"], "gateway, which needs notify"),
        ],
    )
    def test_what_runs(
        self, monkeypatch: pytest.MonkeyPatch, raw: str, expected: list[str], said: str
    ) -> None:
        monkeypatch.setenv(NAME, raw)
        assert env.modules(NAME, ["notify"], {"gateway": "notify"}) == expected
        assert [said in problem.message for problem in env.problems] == [True] * bool(said)


class TestDatabase:
    @pytest.mark.parametrize(
        "raw",
        ["postgres://user:pw@host/name", "mysql://user:pw@host:3306/", "mysql://", "sqlite", "x",
         "mysql://user:pw@host:port/name", "mysql://user:pw@[::1/name", "mysql:/host/name",
         "mysql://user:pw@host/name?sslmode=require", "sqlite:////srv/platform.db?mode=ro"],
    )  # fmt: skip
    def test_wrong(self, monkeypatch: pytest.MonkeyPatch, raw: str) -> None:
        monkeypatch.setenv(NAME, raw)
        assert database()["NAME"] == "/tmp/default.db"
        assert {problem.variable for problem in env.problems} == {NAME}

    def test_wrong_without_default(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As for the archive, which need not be named."""
        monkeypatch.setenv(NAME, "postgres://user:pw@host/name")
        env.database(NAME, "")
        (problem,) = env.problems
        assert problem.message == f"{NAME} is neither sqlite:/// nor mysql://"

    def test_in_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for raw in ("sqlite://:memory:", "sqlite:///:memory:"):
            monkeypatch.setenv(NAME, raw)
            assert (database()["NAME"], env.problems) == (":memory:", [])

    def test_a_password_is_not_shown(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for raw in ("postgres://user:hunter2@host/name", "mysql://user:hunter2@host:port/name"):
            monkeypatch.setenv(NAME, raw)
            database()
        assert env.problems
        assert "hunter2" not in repr(env.problems)

    @pytest.mark.parametrize("scheme", ["mysql", "mariadb"])
    def test_mysql(self, monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
        options = "ssl_mode=REQUIRED&ssl-ca=/ca.pem"
        monkeypatch.setenv(NAME, f"{scheme}://us%40er:p%2Fw@host:3307/name?{options}")
        config = database()
        assert config["ENGINE"] == "msgplatform.core.data.engines.mysql"
        assert (config["USER"], config["PASSWORD"]) == ("us@er", "p/w")
        assert (config["HOST"], config["PORT"], config["NAME"]) == ("host", 3307, "name")
        assert config["OPTIONS"]["isolation_level"] == "read committed"
        assert "time_zone='+00:00'" in config["OPTIONS"]["init_command"]
        assert config["OPTIONS"]["ssl"] == {"ca": "/ca.pem"}
        assert not env.problems

    def test_sqlite(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(NAME, "sqlite:////srv/platform.db")
        config = database()
        assert config["NAME"] == "/srv/platform.db"
        assert config["OPTIONS"]["transaction_mode"] == "IMMEDIATE"
        assert not env.problems


class TestPublicUrl:
    @pytest.mark.parametrize("raw", ["https://x.example/sub", "https://x.example/sub/a/"])
    def test_a_path_is_refused(self, monkeypatch: pytest.MonkeyPatch, raw: str) -> None:
        monkeypatch.setenv("PUBLIC_URL", raw)
        assert env.public_url() == "https://x.example"
        assert [problem.variable for problem in env.problems] == ["PUBLIC_URL"]

    @pytest.mark.parametrize(
        ("raw", "address"),
        [
            ("https://例え.テスト:8443", "https://xn--r8jz45g.xn--zckzah:8443"),
            ("https://X.example./", "https://x.example"),
            ("https://[2001:db8:0:0::1]:8443", "https://[2001:db8::1]:8443"),
            ("https://straße.example", ""),
        ],
    )
    def test_the_host_is_as_clients_send_it(
        self, monkeypatch: pytest.MonkeyPatch, raw: str, address: str
    ) -> None:
        monkeypatch.setenv("PUBLIC_URL", raw)
        assert env.public_url() == (address or "https://localhost")
        assert [problem.variable for problem in env.problems] == ["PUBLIC_URL"] * (not address)

    @pytest.mark.parametrize("raw", ["https://x.example", "https://x.example/"])
    def test_a_root_is_none(self, monkeypatch: pytest.MonkeyPatch, raw: str) -> None:
        monkeypatch.setenv("PUBLIC_URL", raw)
        assert env.public_url() == "https://x.example"
        assert not env.problems


class TestSecret:
    def test_the_variable_wins(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("from file")
        monkeypatch.setenv(f"{NAME}_FILE", str(tmp_path / "file"))
        assert env.secret(NAME) == "from file"
        monkeypatch.setenv(NAME, "from variable")
        assert env.secret(NAME) == "from variable"

    def test_space_around_it_is_dropped(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        (tmp_path / "file").write_text("  s3cret \n\n")
        monkeypatch.setenv(f"{NAME}_FILE", str(tmp_path / "file"))
        assert env.secret(NAME) == "s3cret"

    @pytest.mark.parametrize("content", [None, "", " \n", b"\xff\xfe"])
    def test_a_file_that_gives_none(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str | bytes | None
    ) -> None:
        path = tmp_path / "file"
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif content is not None:
            path.write_text(content)
        monkeypatch.setenv(f"{NAME}_FILE", str(path))
        assert env.secret(NAME) == ""
        assert [problem.variable for problem in env.problems] == [f"{NAME}_FILE"]

    def test_the_default_file_may_be_absent(self, tmp_path: Path) -> None:
        assert env.secret(NAME, default_file=tmp_path / "none") == ""
        assert not env.problems
        (tmp_path / "some").write_text("x")
        assert env.secret(NAME, default_file=tmp_path / "some") == "x"

    def test_a_default_file_in_a_folder_of_another_user(self, tmp_path: Path) -> None:
        folder = tmp_path / "state"
        folder.mkdir(mode=0)
        user = os.geteuid()
        try:
            if user == 0:  # who may enter every folder
                os.seteuid(65534)
            assert env.secret(NAME, default_file=folder / "some") == ""
        finally:
            os.seteuid(user)
            folder.chmod(0o700)
        (problem,) = env.problems
        assert "some cannot be read: Permission denied" in problem.message
        assert f"the user who owns {folder}" in problem.hint


class TestPlaces:
    def test_a_socket_fits_into_its_address(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("STATE_DIR", "/srv/mp")
        assert env.socket_path("work.sock") == Path("/srv/mp/run/work.sock")
        monkeypatch.setenv("STATE_DIR", str(tmp_path / ("long" * 40)))
        work, sms = env.socket_path("work.sock"), env.socket_path("sms.sock")
        assert len(os.fsencode(work)) <= env.MAX_SOCKET_PATH
        assert work != sms
        monkeypatch.setenv("STATE_DIR", str(tmp_path / ("longer" * 30)))
        assert env.socket_path("work.sock") != work


# Through Django: the whole way from the variable to what a person reads.
CHECKED = {
    "NOTIFY_LEASE_SECONDS": "4",
    "TIME_ZONE": "Mars/Base",
    "FLOWS": "gateway,notfy.feed",
    "LOG_LEVEL": "WARN1",
    "SMS_REDIS_URL": "redis://h:abc/0",
    "DEBUG": "maybe",
    "REDIS_URL": "redis://h:99999/0",
    "PUBLIC_URL": "https:/msg.example.com",
    "DATABASE_URL": "postgres://user:hunter2@host/name",
    "COLD_DATABASE_URL": "postgres://user:hunter2@host/name",
    "OUTBOUND_ALLOW": "10.0.0.1/8",
    "OUTBOUND_CA_FILE": "/no/such/file",
    "API_RATE_READ": "600 per minute",
    "API_NUM_PROXIES": "-1",
    "METRICS_TOKEN_FILE": "/no/such/file",
}


def manage(tmp_path: Path, *args: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """manage.py with these variables and nothing of this process's environment but PATH."""
    environ = {
        "PATH": os.environ["PATH"], "STATE_DIR": str(tmp_path), "SECRET_KEY": "x" * 50,
        "ENCRYPTION_KEY": "YSBrZXkgZm9yIHRlc3RzIG9ubHksIDMyIGJ5dGVzIG4=",
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, "manage.py", *args],
        cwd=env.BASE_DIR,
        env={**environ, **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_check_names_every_wrong_variable_at_once(tmp_path: Path) -> None:
    result = manage(tmp_path, "check", **CHECKED)
    assert result.returncode == 1
    for variable in CHECKED:
        assert variable in result.stderr, result.stderr
    assert "Traceback" not in result.stderr
    assert "hunter2" not in result.stderr


def test_check_is_content_with_a_right_environment(tmp_path: Path) -> None:
    result = manage(tmp_path, "check")
    assert (result.returncode, result.stderr) == (0, "")


def test_a_daemon_says_it_too(tmp_path: Path) -> None:
    result = manage(tmp_path, "run_maker", NOTIFY_LEASE_SECONDS="4")
    assert result.returncode != 0
    assert "NOTIFY_LEASE_SECONDS" in result.stderr
    assert "Traceback" not in result.stderr
