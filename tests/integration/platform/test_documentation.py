"""The platform serves the documentation of its own release, and nothing beside it."""

from pathlib import Path

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("work_redis", "sms_redis")]


@pytest.fixture
def site(tmp_path: Path, settings: Settings) -> Path:
    folder = tmp_path / "site"
    (folder / "search").mkdir(parents=True)
    (folder / "index.html").write_text("<h1>Documentation</h1>")
    (folder / "search" / "search_index.json").write_text("{}")
    (tmp_path / "secret").write_text("nobody reads this")
    settings.SITE_DIR = folder
    return folder


def test_its_files(site: Path, client: Client) -> None:
    answer = client.get("/docs/")
    assert b"".join(answer) == b"<h1>Documentation</h1>"
    assert "'unsafe-inline'" in answer["Content-Security-Policy"]
    answer = client.get("/docs/search/search_index.json")
    assert (answer.status_code, answer["Content-Type"]) == (200, "application/json")
    unchanged = client.get(
        "/docs/", headers={"If-Modified-Since": client.get("/docs/")["Last-Modified"]}
    )
    assert unchanged.status_code == 304


@pytest.mark.parametrize(
    "name", ["nothing.html", "search", "../secret", "%2e%2e%2fsecret", "//etc/passwd"]
)
def test_no_other_file(site: Path, client: Client, name: str) -> None:
    assert client.get(f"/docs/{name}").status_code in {400, 404}


def test_a_clone_says_how_it_is_built(client: Client, tmp_path: Path, settings: Settings) -> None:
    settings.SITE_DIR = tmp_path
    answer = client.get("/docs/")
    assert answer.status_code == 404
    assert "scripts/site.sh" in answer.content.decode()


def test_the_console_leads_to_it(site: Path, admin_client: Client) -> None:
    assert 'href="/docs/"' in admin_client.get("/console/").content.decode()
