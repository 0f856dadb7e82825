"""A session that has ended leads back to where one was."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
PASSWORD = "a long enough one"
SENTENCE = "Your session had ended, so nothing was done."


@pytest.fixture
def client() -> Client:
    User.objects.create_superuser("anna", password=PASSWORD)
    return Client()


def test_a_page_is_shown_after_the_login(client: Client) -> None:
    address = "/console/search/notify?status=accepted"
    login = client.get(address)
    assert login.status_code == 302
    assert SENTENCE not in client.get(login["Location"]).content.decode()
    back = client.post(login["Location"], {"username": "anna", "password": PASSWORD})
    assert back["Location"] == address


def test_a_form_that_was_sent_says_what_was_not_done(client: Client) -> None:
    page = "/admin/msgplatform/biz/add/?title=x"
    login = client.post(
        "/admin/msgplatform/biz/add/", {"name": "shop"},
        headers={"referer": f"http://testserver{page}#top"},
    )  # fmt: skip
    assert login.status_code == 302
    assert SENTENCE in client.get(login["Location"]).content.decode()
    back = client.post(login["Location"], {"username": "anna", "password": PASSWORD})
    assert back["Location"] == page


@pytest.mark.parametrize(
    "referer", ["", "http://evil.example/console/", "http://testserver//evil.example/"]
)
def test_it_leads_nowhere_else(client: Client, referer: str) -> None:
    login = client.post("/console/bulk/notify", headers={"referer": referer} if referer else {})
    back = client.post(login["Location"], {"username": "anna", "password": PASSWORD})
    assert back["Location"] == "/"  # which leads to the console


@pytest.mark.parametrize(
    "header",
    [{"X-Requested-With": "XMLHttpRequest"}, {"HX-Request": "true"}, {"Sec-Fetch-Dest": "empty"}],
    ids=str,
)
def test_a_script_is_told(client: Client, header: dict[str, str]) -> None:
    for answer in (client.get("/console/", headers=header),
                   client.post("/console/bulk/notify", headers=header)):  # fmt: skip
        assert (answer.status_code, answer["X-Session"]) == (401, "ended")
        assert "Your session has ended." in answer.content.decode()
        assert "<" not in answer.content.decode()


def test_the_login_itself_and_people_without_permission_are_left_alone(client: Client) -> None:
    script = {"X-Requested-With": "XMLHttpRequest"}
    assert client.get("/admin/login/", headers=script).status_code == 200
    client.force_login(User.objects.create_user("nobody"))
    assert client.get("/console/", headers=script).status_code == 302
