"""Style sheets and scripts: hashed names and gzip once they are collected, plain ones before."""

import gzip
import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from msgplatform import __version__
from msgplatform.doors.web import static_files
from msgplatform.operation.supervision import releases

pytestmark = pytest.mark.django_db


def style_sheet(page: str) -> str:
    """The address of our own one."""
    (found,) = set(re.findall(r"/static/console/console[.\w]*\.css", page))
    return found


def content(answer: Any) -> bytes:
    return b"".join(answer.streaming_content)


@pytest.fixture
def folder(settings: Settings, tmp_path: Path) -> Path:
    settings.STATIC_ROOT = tmp_path / "static"
    return tmp_path / "static"


def test_nothing_has_to_be_collected(folder: Path) -> None:
    client = Client()
    link = style_sheet(client.get("/admin/login/").content.decode())
    assert link == "/static/console/console.css"
    assert client.get(link).status_code == 200


def test_what_is_collected_has_a_hash_and_is_compressed(folder: Path, settings: Settings) -> None:
    static_files.collect()
    settings.STATIC_ROOT = folder  # the storage reads what is there when it is made
    client = Client()
    page = client.get("/admin/login/").content.decode()
    link = style_sheet(page)
    assert re.fullmatch(r"/static/console/console\.[0-9a-f]{12}\.css", link)
    assert re.search(r"/static/console/favicon\.[0-9a-f]{12}\.svg", page)
    answer = client.get(link, headers={"Accept-Encoding": "gzip"})
    assert answer["Content-Encoding"] == "gzip"
    assert "immutable" in answer["Cache-Control"]
    plain = client.get("/static/console/console.css")
    assert "immutable" not in plain["Cache-Control"]
    assert gzip.decompress(content(answer)) == content(plain)
    answer = client.get("/favicon.ico", follow=True)
    assert (answer.status_code, answer["Content-Type"]) == (200, "image/svg+xml")


def test_they_are_collected_again_only_when_they_changed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    static_files.collect()
    (sheet,) = folder.glob("console/console.????????????.css")
    sheet.unlink()
    static_files.collect()
    assert not sheet.exists()
    monkeypatch.setattr(static_files, "fingerprint", lambda: "after an update")
    static_files.collect()
    assert sheet.exists()


def test_each_release_has_its_own_until_it_is_gone(settings: Settings, tmp_path: Path) -> None:
    """The last start was of 0.0.2, which an update can go back to."""
    assert Path(settings.STATE_DIR) / "static" / __version__ == settings.STATIC_ROOT
    settings.STATE_DIR = tmp_path
    for name in ("0.0.1", "0.0.2", __version__):
        (tmp_path / "static" / name).mkdir(parents=True)
        (tmp_path / "static" / name / "staticfiles.json").touch()
    address = releases.Address(("127.0.0.1", 8000), "localhost")
    old_release = releases.Release("0.0.2", "python", "/old", {})
    file = tmp_path / "release.json"
    releases.write(file, releases.Record(old_release, None, address))
    releases.note_start(file, address)
    names = {folder.name for folder in (tmp_path / "static").iterdir()}
    assert names == {"0.0.2", __version__}
    record = releases.Record(releases.own(), old_release, address, is_back=True)
    releases.write(file, record)
    releases.note_start(file, address)
    assert releases.read(file) == record
