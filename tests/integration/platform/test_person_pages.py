"""The console's pages of one person's data and of retention, and the command."""

import io
import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django.fixtures import Settings

from msgplatform import person_limits
from msgplatform.company.alerting.models import AlertChannel, AlertMessage
from msgplatform.company.person_data import people
from msgplatform.company.person_data.models import Erasure
from msgplatform.company.person_data.runner import ErasureRunner
from msgplatform.core import alerts
from msgplatform.models import Alert, AuditLog, Biz
from tests.support.api_support import problem
from tests.support.management import Manager

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("work_redis", "sms_redis"),
]
PAGE = "/console/person-data"
PHONE = "13911122233"
LI = {"phones": f"+86 {PHONE}", "emails": "", "users": "", "leads": ""}
ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def list_of_its_own(tmp_path: Path, settings: Settings) -> None:
    settings.STATE_DIR = tmp_path


def person(*permissions: str) -> Client:
    user = User.objects.create_user("eve", password="x", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def officer() -> Client:
    return person("find_person", "erase_person", "view_erasure", "view_personal")


def erase(client: Client, reason: str, **changes: str) -> Any:
    """Find the person, and press Erase with these fields changed since."""
    shown = client.post(PAGE, {**LI, "find": "1"}).context["shown"]
    return client.post(PAGE, {**LI, "shown": shown, "erase": "1", "reason": reason, **changes})


def raised() -> None:
    alerts.raise_alert("tests", "Somebody cannot be reached", f"Call {PHONE}.", "tests:1")


def run() -> None:
    runner = ErasureRunner()
    while runner.turn():
        pass


def test_from_the_search_to_the_proof(officer: Client) -> None:
    raised()
    assert "Nobody" in officer.get(PAGE).content.decode()
    found = officer.post(PAGE, {**LI, "find": "1"})
    assert "alerts" in found.content.decode()
    assert PHONE in found.content.decode()
    entry = {**LI, "shown": found.context["shown"], "erase": "1"}
    assert officer.get(f"{PAGE}?phones={PHONE}").status_code == 200
    refused = officer.post(PAGE, {**entry, "reason": f"for {PHONE}"})
    assert "Leave out the person" in refused.content.decode()
    assert not Erasure.objects.exists()
    begun = officer.post(PAGE, {**entry, "reason": "asked for by mail"})
    row = Erasure.objects.get()
    assert begun["Location"] == reverse("console:erasure", args=[row.key])
    run()
    shown = officer.get(begun["Location"]).content.decode()
    assert "asked for by mail" in shown
    assert row.hashes[0] in shown
    assert PHONE not in shown
    assert Alert.objects.get().text == "Call [erased]."
    again = officer.post(PAGE, {**LI, "find": "1"}).content.decode()
    assert "Nothing is held of this person." in again
    assert "Erased before" in again
    actions = list(AuditLog.objects.order_by("id").values_list("action", "actor"))
    assert actions == [
        ("person_found", "eve"), ("person_found", "eve"), ("person_erased", "eve"),
        ("erasure_done", "run_bulk"), ("person_found", "eve"),
    ]  # fmt: skip
    assert PHONE not in str(list(AuditLog.objects.values_list("detail", flat=True)))


@pytest.mark.parametrize("changes", [{"phones": "13800000001"}, {"emails": "li@example.com"}])
def test_only_the_person_who_was_shown_is_erased(officer: Client, changes: dict[str, str]) -> None:
    raised()
    answer = erase(officer, "asked for", **changes)
    assert "look at it, then erase" in answer.content.decode()
    assert not Erasure.objects.exists()
    entry = {**LI, **changes, "shown": answer.context["shown"], "erase": "1", "reason": "asked for"}
    assert officer.post(PAGE, entry).status_code == 302
    assert Erasure.objects.get().hashes == answer.context["shown"].split()
    assert officer.post(PAGE, {**LI, "erase": "1", "reason": "nobody was shown"}).status_code == 200
    assert Erasure.objects.count() == 1


def test_an_export_is_a_file(officer: Client) -> None:
    raised()
    answer = officer.post(PAGE, {**LI, "export": "1"})
    assert "person.json" in answer["Content-Disposition"]
    document = json.loads(b"".join(answer.streaming_content))  # type: ignore[attr-defined]
    assert document["person"] == {"phones": [PHONE]}
    assert document["data"]["alerts"][0]["text"] == f"Call {PHONE}."


def test_who_may_not_see_personal_data_finds_it_masked() -> None:
    raised()
    client = person("find_person")
    found = client.post(PAGE, {**LI, "find": "1"}).content.decode()
    assert "alerts" in found
    assert PHONE not in re.sub(r"(?s)<textarea.*?</textarea>", "", found)
    assert client.post(PAGE, {**LI, "export": "1"}).status_code == 403
    assert client.post(PAGE, {**LI, "erase": "1", "reason": "x"}).status_code == 403


def test_who_may_look_at_erasures_only_finds_nobody() -> None:
    client = person("view_erasure")
    assert client.get(PAGE).status_code == 200
    assert client.post(PAGE, {**LI, "find": "1"}).status_code == 403
    row = Erasure.objects.create(reason="x", created_by="eve", created_at="2026-11-26T08:00:00Z")
    address = reverse("console:erasure", args=[row.key])
    assert client.get(address).status_code == 200
    assert client.post(address, {"cancel": "1"}).status_code == 403


def test_others_and_limited_people_are_refused(officer: Client) -> None:
    client = Client()
    client.force_login(User.objects.create_user("ann", is_staff=True))
    for path in (PAGE, f"{PAGE}/erasures/{'0' * 32}", "/console/retention"):
        assert client.get(path).status_code == 403
    Biz.objects.create(name="shop")
    person_limits.limit_person(User.objects.get(username="eve"), ["shop"], "test")
    for path in (PAGE, f"{PAGE}/erasures/{'0' * 32}"):
        assert officer.get(path).status_code == 403


def test_it_asks_again_who_somebody_is(officer: Client) -> None:
    session = officer.session
    session["confirmed_at"] = 0.0
    session.save()
    for answer in (officer.get(PAGE), officer.post(PAGE, {**LI, "erase": "1", "reason": "x"})):
        assert answer["Location"].startswith("/console/confirm")
    assert not Erasure.objects.exists()


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"phones": ""}, "by a phone number, an e-mail address"),
        ({"phones": "123"}, "123 is no phone number"),
        ({"users": "nobody/1"}, "There is no business system nobody"),
        ({"leads": "x"}, "x is no id of a lead"),
    ],
)
def test_wrong_input_is_said_at_its_field(
    officer: Client, entry: dict[str, str], words: str
) -> None:
    answer = officer.post(PAGE, {**LI, **entry, "find": "1"})
    assert words in answer.content.decode()


def test_without_its_list_no_erasure_is_changed(officer: Client, settings: Settings) -> None:
    erase(officer, "asked for")
    key = Erasure.objects.get().key
    settings.STATE_DIR = Path("/proc/nowhere")
    manager = Manager("manage:person-data")
    for change in ("end", "cancel"):
        shown = officer.post(reverse("console:erasure", args=[key]), {change: "1"}, follow=True)
        assert "The list of erasures cannot be written" in shown.content.decode()
        answer = manager.send("POST", f"person-data/erasures/{key}/{change}")
        assert "nothing was changed" in problem(answer, 503, "unavailable")["detail"]
    row = Erasure.objects.get()
    assert (row.state, row.ends_open) == (Erasure.State.PENDING, False)


def test_an_erasure_is_ended_and_cancelled_on_its_page(officer: Client) -> None:
    erase(officer, "asked for")
    address = reverse("console:erasure", args=[Erasure.objects.get().key])
    session = officer.session
    proved_at, session["confirmed_at"] = session["confirmed_at"], 0.0
    session.save()
    assert officer.post(address, {"end": "1"})["Location"].startswith("/console/confirm")
    assert officer.get(address).status_code == 200
    assert not Erasure.objects.get().ends_open
    session["confirmed_at"] = proved_at
    session.save()
    officer.post(address, {"end": "1"})
    assert Erasure.objects.get().ends_open
    assert "live-erasure" in officer.get(f"{address}?live=1").content.decode()
    officer.post(address, {"cancel": "1"})
    assert Erasure.objects.get().state == Erasure.State.CANCELLED
    late = officer.post(address, {"end": "1"}, follow=True).content.decode()
    assert "This erasure has ended." in late
    assert officer.get(f"{PAGE}/erasures/nothing").status_code == 404


# -- the command ---------------------------------------------------------------------------------
def command(*words: str, **options: Any) -> str:
    out = io.StringIO()
    call_command("person", *words, stdout=out, **options)
    return out.getvalue()


def test_the_command_does_the_same(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    raised()
    given = ("--phone", f"0086{PHONE}")
    assert command("find", *given) == "alerts: 1\n"
    command("export", *given)
    assert json.loads(capsysbinary.readouterr().out)["data"]["alerts"]
    key = command("erase", *given, "--reason", "asked for").partition(":")[0]
    run()
    assert Alert.objects.get().text == "Call [erased]."
    listed = command("list")
    assert key in listed
    assert "done" in listed
    (hash,) = command("hash", *given).split()
    assert hash in listed
    assert hash == people.hashes({"phones": [PHONE]})[0]
    assert command("find", *given) == "Nothing is held of this person.\n"
    assert command("repeat") == "Erasures that run once more: 1\n"
    assert Erasure.objects.get().state == Erasure.State.PENDING


@pytest.mark.parametrize("words", [("find",), ("erase", "--phone", "1", "--reason", "x")])
def test_the_command_refuses_wrong_input(words: tuple[str, ...]) -> None:
    with pytest.raises(CommandError, match="phones: "):
        command(*words)


# -- retention -----------------------------------------------------------------------------------
def test_the_page_of_retention_has_what_the_document_has() -> None:
    raised()
    channel = AlertChannel.objects.create(name="operators", url="json://ops.example")
    AlertMessage.objects.create(channel=channel, due_at=timezone.now())
    page = person("view_bizmsg").get("/console/retention")
    assert page.status_code == 200
    shown = set(re.findall(r"<code>([A-Z_]+)</code>", page.content.decode()))
    text = (ROOT / "docs" / "run.md").read_text()
    table = text.partition("## Retention")[2].partition("On a server an archive")[0]
    assert shown == set(re.findall(r"`([A-Z_]{8,})`", table))
    lines = {str(line.title): line for line in page.context["lines"]}
    assert lines["alerts"].oldest
    assert lines["alerts"].next_at is None
    sent_alerts = lines["sent alerts"]
    assert sent_alerts.next_at - sent_alerts.oldest == timedelta(days=90)
    assert "| sent alerts | | 90 days" in table
