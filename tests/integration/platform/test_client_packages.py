"""The platform serves the clients of its own release, and nothing else of that folder."""

from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django.fixtures import Settings

import msgplatform
from msgplatform.models import Biz

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.usefixtures("work_redis", "sms_redis"),
]
WHEEL = f"msgplatform_client-{msgplatform.__version__}-py3-none-any.whl"


@pytest.fixture
def folder(tmp_path: Path, settings: Settings) -> Path:
    settings.CLIENTS_DIR = tmp_path
    return tmp_path


def test_one_that_is_there(folder: Path, client: Client) -> None:
    (folder / WHEEL).write_bytes(b"wheel")
    page = client.get("/clients/").content.decode()
    assert f"[cli] @ http://testserver/clients/{WHEEL}" in page.replace("&#x27;", "'")
    assert "TypeScript" not in page
    answer = client.get(f"/clients/{WHEEL}")
    assert b"".join(answer.streaming_content) == b"wheel"  # type: ignore[attr-defined]
    assert WHEEL in answer["Content-Disposition"]


@pytest.mark.parametrize("name", ["other.whl", "..", "%2e%2e%2fpyproject.toml", WHEEL])
def test_no_other_file(folder: Path, client: Client, name: str) -> None:
    (folder / "other.whl").write_bytes(b"x")
    assert client.get(f"/clients/{name}").status_code == 404


def test_none_is_built(folder: Path, client: Client) -> None:
    assert "make clients" in client.get("/clients/").content.decode()


def test_a_new_key_comes_with_its_first_command(admin_client: Client, settings: Settings) -> None:
    biz = Biz.objects.create(name="shop")
    form = {"biz": biz.pk, "name": "till", "scopes": ["events:write"], "_save": "1"}
    page = admin_client.post("/admin/msgplatform/apikey/add/", form, follow=True).content.decode()
    key = page.partition('<code id="secret">')[2].partition("<")[0]
    assert key.startswith("mp_")
    assert f"MSGP_URL={settings.PUBLIC_URL} MSGP_KEY={key} msgp whoami" in page
    assert 'href="/clients/"' in page
    assert User.objects.count() == 1
