import configparser
import fcntl
import shlex
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from msgplatform.operation.supervision.config import Places, Program, Unwritable, render

PLACES = Places(Path("/s"), Path("/s/run/supervisor.sock"))


def parsed(*programs: Program, places: Places = PLACES) -> configparser.RawConfigParser:
    # As supervisord reads it.
    config = configparser.RawConfigParser(inline_comment_prefixes=(";", "#"), strict=False)
    config.read_string(render(programs, places))
    return config


def test_a_program_is_never_given_up() -> None:
    section = parsed(Program("web", ["run"], 100))["program:web"]
    assert section["autorestart"] == "true"
    assert section["startsecs"] == "0"
    assert int(section["startretries"]) >= 10**9


def test_a_command_is_read_back_as_it_was_given() -> None:
    argv = ["/a b/python", "it's", "", 'say "so"', "--url=unix:///x?y&z", "#1;2"]
    command = parsed(Program("p", argv, 1))["program:p"]["command"]
    split = shlex.split(command)
    assert split[split.index("--") + 1 :] == argv


@pytest.mark.parametrize("path", ["/a%b", "/a #b", "/a ;b", "/a\nb"])
def test_a_path_that_it_cannot_express_is_refused_with_a_sentence(path: str) -> None:
    with pytest.raises(Unwritable, match="Move the project or STATE_DIR"):
        render([Program("p", [path], 1)], PLACES)
    with pytest.raises(Unwritable, match="Move the project or STATE_DIR"):
        render([], Places(Path(path), Path("/s")))


def test_programs_of_a_priority_stop_together_and_priorities_one_after_another() -> None:
    config = parsed(Program("a", ["x"], 500), Program("b", ["x"], 10), Program("c", ["x"], 500))
    groups = {name: dict(config[name]) for name in config.sections() if name.startswith("group:")}
    assert groups == {
        "group:level-10": {"programs": "b", "priority": "10"},
        "group:level-500": {"programs": "a,c", "priority": "500"},
    }


def test_every_process_of_a_program_has_a_log_of_its_own() -> None:
    section = parsed(Program("run_sender", ["x"], 1, processes=3))["program:run_sender"]
    assert section["numprocs"] == "3"
    assert section["process_name"] == "%(program_name)s-%(process_num)d"
    assert section["stdout_logfile"] == "/s/logs/run_sender-%(process_num)d.log"


def test_only_this_user_may_command_it() -> None:
    config = parsed()
    assert config["unix_http_server"]["chmod"] == "0600"
    assert config["supervisord"]["umask"] == "077"
    assert "inet_http_server" not in config


def test_a_second_update_of_a_machine_is_refused(tmp_path: Path, settings: Settings) -> None:
    settings.STATE_DIR, run = tmp_path, tmp_path / "run"
    run.mkdir()
    with (run / "update.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write("17")
        file.flush()
        with pytest.raises(CommandError, match=r"process 17\)"):
            call_command("update")
