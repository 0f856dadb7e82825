"""The page Failures, alerts with what to do about them, and what `doctor` says of both."""

import html
import re
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import translation

from msgplatform.core import alerts, flows
from msgplatform.core.data import sql
from msgplatform.core.flows.bulk_pages import Counted
from msgplatform.core.flows.health import Finding
from msgplatform.models import Acknowledgement, Alert, AuditLog, Biz, FailureGroup, Preferences
from msgplatform.monitor import failure_groups, failure_store, runbooks
from msgplatform.monitor.failure_store import Loss
from msgplatform.monitor.watch import PLATFORM, of_flows
from msgplatform.operation import doctor
from notify.models import BizReceive
from tests.support.notify_rows import subscription

pytestmark = [
    pytest.mark.both_databases,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("work_redis", "sms_redis"),
]
PAGE = "/console/failures"
ROOT = Path(__file__).parents[3]


@pytest.fixture
def row() -> BizReceive:
    return subscription(Biz.objects.create(name="orders", title="Orders"))


def lose(
    subject: int, number: int = 1, answer: str = "HTTP 503", flow: str = "notify"
) -> FailureGroup:
    failure_store.add(flow, [Loss(subject, answer, 1, "<b>no room</b>")] * number, sql.now())
    return FailureGroup.objects.get(flow=flow, subject=subject, answer=answer)


def text(client: Client) -> str:
    return client.get(PAGE).content.decode()


def acknowledge(
    client: Client, group: FailureGroup, note: str = "known", flow: str = "notify"
) -> Any:
    given = {
        "id": group.pk, "lost": group.lost, "until": group.last_at.isoformat(), "note": note,
    }  # fmt: skip
    return client.post(f"{PAGE}/{flow}/acknowledge", given, follow=True)


def person(*permissions: str) -> Client:
    user = User.objects.create_user("eve", password="x", is_staff=True)
    for permission in permissions:
        app, _, name = permission.partition(".")
        user.user_permissions.add(
            Permission.objects.get(content_type__app_label=app, codename=name)
        )
    client = Client()
    client.force_login(user)
    return client


def test_all_groups_of_a_subscription_are_sent_again_at_once(
    admin_client: Client, row: BizReceive
) -> None:
    lose(row.pk, 30, "HTTP 503")
    assert "of this subscription again" not in text(admin_client), "one group has its own button"
    lose(row.pk, 12, "timeout")
    lose(row.pk, 1, "poison: message is gone")
    shown = text(admin_client)
    assert "Send all 42 of this subscription again…" in shown
    (form,) = re.findall(r'href="([^"]*)">Send all 42', shown)
    assert "answer" not in form
    assert admin_client.get(html.unescape(form)).status_code == 200
    assert shown.count("Deliver now</button>") == 1
    viewer = person("notify.view_bizmsg")
    assert "Send all" not in text(viewer)
    assert "Deliver now" not in text(viewer)


def test_it_says_where_what_and_how_many(admin_client: Client, row: BizReceive) -> None:
    assert "None: everything" in text(admin_client)
    lose(row.pk, 3332)
    lose(99, 2, "timeout")
    shown = text(admin_client)
    assert "Orders → warehouse" in shown
    assert "subscription 99, which was deleted" in shown
    assert "<b>3,332</b>" in shown
    assert "&lt;b&gt;no room" in shown, "what a consumer answered is escaped"
    badge = re.search(r"heart_broken.*?bg-red-100[^>]*>\s*(\d+)", shown, re.DOTALL)
    assert badge
    assert badge[1] == "2"
    assert "Messages were given up: 2 groups" in admin_client.get("/console/").content.decode()
    of_flows.report_failures()
    alert = Alert.objects.get(key="notify.failures:99")
    assert alert.subject.endswith("subscription 99, which was deleted")
    Preferences.objects.create(user=User.objects.get(), language="zh-hans")
    for page in (PAGE, f"/admin/msgplatform/alert/{alert.pk}/change/"):
        shown = admin_client.get(page).content.decode()
        assert "订阅 99（已删除）" in shown, page
        assert "超时" in shown, page


def test_the_overview_sends_nobody_to_groups_that_they_may_not_see(row: BizReceive) -> None:
    lose(row.pk, 2)
    shown = person("gateway.view_sgipmt").get("/console/").content.decode()
    assert "Messages were given up" not in shown


def test_send_again_leads_to_the_count_of_this_group(admin_client: Client, row: BizReceive) -> None:
    lose(row.pk, 2)
    link = re.search(r'href="(/console/bulk/notify[^"]*)"', text(admin_client))
    assert link
    shown = admin_client.get(link[1].replace("&amp;", "&"))
    assert shown.context["counted"] == Counted(0), "the rows of this test are not there"
    assert shown.context["form"].filter() == {
        "subscription": f"{row.biz.name}/{row.receive.name}", "status": "exhausted",
        "answer": "HTTP 503",
    }  # fmt: skip


def test_acknowledged_it_leaves_with_its_note(admin_client: Client, row: BizReceive) -> None:
    group = lose(row.pk, 3)
    lose(row.pk, 2)
    assert "3 messages acknowledged" in acknowledge(admin_client, group).content.decode()
    assert FailureGroup.objects.get().count == 2, "two came after the page was shown"
    assert "acknowledged" in acknowledge(admin_client, FailureGroup.objects.get()).content.decode()
    shown = text(admin_client)
    assert "None: everything" in shown
    assert "known" in shown
    entry = AuditLog.objects.filter(action="failures_acknowledged").last()
    assert entry
    assert (entry.detail["count"], entry.detail["note"]) == (3, "known")
    lose(row.pk)
    assert "None: everything" not in text(admin_client)


@pytest.mark.parametrize(
    "given",
    [{}, {"note": " "}, {"id": "x"}, {"id": "-1"}, {"lost": "9" * 40}, {"until": "soon"},
     {"note": "n" * 501}],
)  # fmt: skip
def test_nothing_is_acknowledged_by_a_wrong_form(
    admin_client: Client, row: BizReceive, given: dict[str, str]
) -> None:
    group = lose(row.pk, 3)
    form = {"id": str(group.pk), "lost": "3", "until": group.last_at.isoformat(), "note": "n"}
    answer = admin_client.post(f"{PAGE}/notify/acknowledge", {**form, **given} if given else {})
    assert answer.status_code == 302
    assert FailureGroup.objects.get().count == 3
    # A group of another flow is none of this one's.
    admin_client.post(f"{PAGE}/sms/acknowledge", form)
    assert not Acknowledgement.objects.exists()


def test_what_was_answered_is_masked_and_what_a_code_means_is_not(row: BizReceive) -> None:
    lose(row.pk)
    failure_store.add("sms", [Loss(1, "result 5", 2)], sql.now())
    shown = text(person("notify.view_bizmsg", "gateway.view_sgipmt"))
    assert "no room" not in shown
    assert "Wrong parameter format" in shown


def test_who_may_not_is_not_offered_it(row: BizReceive) -> None:
    group = lose(row.pk)
    lose(1, flow="sms")
    client = person("notify.view_bizmsg")
    shown = text(client)
    assert "Orders → warehouse" in shown
    assert "Acknowledge" not in shown
    assert "Send again" not in shown
    assert "gateway 1" not in shown, "of a flow that they may not see"
    assert re.search(r"heart_broken.*?bg-red-100[^>]*>\s*1\s", shown, re.DOTALL)
    assert acknowledge(client, group).status_code == 403
    assert FailureGroup.objects.filter(count=1).count() == 2


def test_with_the_permission_for_alerts_only_the_own_flows(row: BizReceive) -> None:
    group = lose(1, flow="sms")
    client = person("notify.view_bizmsg", "msgplatform.change_alert")
    assert acknowledge(client, group, flow="sms").status_code == 403


def test_without_any_flow_there_is_no_such_entry() -> None:
    shown = person().get("/console/").content.decode()
    assert PAGE not in shown.replace("class", "")


def test_the_page_costs_the_same_for_many_groups(admin_client: Client, row: BizReceive) -> None:
    def queries(count: int) -> int:
        for number in range(count):
            lose(row.pk, 1, f"HTTP {500 + number}")
        with CaptureQueriesContext(
            connection,
        ) as made:
            assert admin_client.get(PAGE).status_code == 200
        return len(made)

    queries(1)  # what is read once in a process
    assert queries(2) == queries(60)


# -- alerts --------------------------------------------------------------------------------------
def alarm(kind: str = "notify.failing", which: str = "") -> Alert:
    alerts.raise_alert(kind, "It fails", "since noon", f"{kind}:{which}")
    return Alert.objects.get(open_key__isnull=False, kind=kind)


def test_an_alert_leads_to_where_to_act(admin_client: Client, row: BizReceive) -> None:
    raised = alarm(which=str(row.pk))
    shown = admin_client.get(f"/admin/msgplatform/alert/{raised.pk}/change/").content.decode()
    assert reverse("admin:notify_bizreceive_change", args=[row.pk]) in shown
    assert "is the consumer down" in shown
    assert "docs/runbook.md#notifyfailing" in shown
    assert "refuses (401, 403: a secret or a header is" in shown, "the paragraph of the runbook"
    listed = admin_client.get("/admin/msgplatform/alert/").content.decode()
    assert reverse("admin:notify_bizreceive_change", args=[row.pk]) in listed


def test_acknowledged_it_stays_open_and_is_no_longer_new(admin_client: Client) -> None:
    raised = alarm()
    notice = "1 alert is open, and nobody has acknowledged it."
    assert notice in admin_client.get("/console/").content.decode()
    where = f"/admin/msgplatform/alert/{raised.pk}/do"
    admin_client.post(f"{where}/acknowledge/", {"note": " "})
    raised.refresh_from_db()
    assert raised.acknowledged_at is None, "a note is asked for"
    admin_client.post(f"{where}/acknowledge/", {"note": "Ann calls the shop"})
    raised.refresh_from_db()
    assert (raised.acknowledged_by, raised.note) == ("admin", "Ann calls the shop")
    assert raised.open_key
    shown = admin_client.get("/admin/msgplatform/alert/?state=open").content.decode()
    assert "Ann calls the shop" in shown
    empty = admin_client.get("/admin/msgplatform/alert/?state=unseen").content.decode()
    assert "Ann calls the shop" not in empty
    assert notice not in admin_client.get("/console/").content.decode()
    admin_client.post(f"{where}/resolve/")
    raised.refresh_from_db()
    assert raised.resolved_at
    alarm()
    again = admin_client.get(f"/admin/msgplatform/alert/{raised.pk + 1}/change/").content.decode()
    assert "2 times" in again, "it was opened twice"
    assert "Ann calls the shop" in again, "what was done about it before"
    done = AuditLog.objects.order_by("id").values_list("action", flat=True)
    assert list(done) == ["alert_acknowledged", "alert_resolved"]


def test_a_note_replaces_none_that_was_not_seen(admin_client: Client) -> None:
    raised = alarm()
    page, act = (f"/admin/msgplatform/alert/{raised.pk}/{part}/" for part in
                 ("change", "do/acknowledge"))  # fmt: skip

    def send(seen: str, note: str) -> str:
        answer = admin_client.post(act, {"note": note, "seen": seen}, follow=True)
        return answer.content.decode()

    before = admin_client.get(page).context["seen"]
    send(before, "Ann calls the shop")
    assert "your note was not saved" in send(before, "Bob looks")
    raised.refresh_from_db()
    assert raised.note == "Ann calls the shop"
    assert AuditLog.objects.count() == 1
    shown = admin_client.get(page)
    assert f'name="seen" value="{shown.context["seen"]}"' in shown.content.decode()
    send(shown.context["seen"], "Ann called, Bob looks")
    raised.refresh_from_db()
    assert raised.note == "Ann called, Bob looks"


def test_who_may_not_change_alerts_is_not_offered_it() -> None:
    raised = alarm()
    client = person("msgplatform.view_alert")
    shown = client.get(f"/admin/msgplatform/alert/{raised.pk}/change/").content.decode()
    assert "It fails" in shown
    assert "Acknowledge" not in shown
    answer = client.post(f"/admin/msgplatform/alert/{raised.pk}/do/resolve/")
    assert answer.status_code == 403
    assert Alert.objects.get().open_key


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_every_kind_has_a_first_step_a_page_and_a_paragraph(language: str) -> None:
    """Also the kinds of retention, which are made of an archive's name."""
    translation.activate(language)
    code = [
        path.read_text() for app in ("msgplatform", "notify", "gateway", "crmsync")
        for path in (ROOT / app).rglob("*.py") if "runbooks" not in path.name
    ]  # fmt: skip
    raised = re.compile(
        r'"((?:platform|notify|sms|crm|feed)\.[a-z_]+)"(?=,\s*(?:f?"|_\()|\n|, "| *$)', re.MULTILINE
    )
    found = {kind for source in code if "alerts" in source for kind in raised.findall(source)}
    found |= {f"{name}.retention" for source in code for name in
              re.findall(r'Archive\(\s*"([a-z.]+)"', source)}  # fmt: skip
    found |= {f.health.failures_alert or f"{f.name}.failures" for f in flows.all()}
    known = runbooks.by_kind()
    assert {kind for kind in known if kind.startswith("platform.")} == PLATFORM
    others = {"platform.alert", "notify.feed"}  # an event, and an app
    assert found - known.keys() - others == set()
    assert len(found) > 25
    assert runbooks.language() == language
    assert sorted(runbooks.sections()) == sorted(known)
    for kind in known:
        section = runbooks.section(f"{kind}:1")
        assert section.first_step.endswith((".", "?", "。", "？")), kind
        assert runbooks.link(Alert(kind=kind, key=f"{kind}:1")), kind
        # The page of an alert shows it as people read it, and nothing of the next one.
        shown = html.unescape(section.text)
        assert len(shown) > (80 if language == "en" else 25), kind
        assert not re.search(r"[`*\]]|^#", shown), shown


def test_doctor_names_open_alerts_and_failures(row: BizReceive) -> None:
    def said() -> list[Finding]:
        return [f for f in doctor.examine() if "alert" in f.what or "failures" in f.what]

    assert {finding.level for finding in said()} == {"ok"}
    raised = alarm()
    for number in range(25):
        lose(row.pk, 1, f"HTTP {500 + number}")
    found = said()
    assert [f.level for f in found if "It fails" in f.what] == ["bad"]
    assert any("Orders → warehouse: HTTP 5" in finding.what for finding in found)
    assert any("more groups of failures: 5" in finding.what for finding in found)
    Alert.objects.filter(pk=raised.pk).update(acknowledged_at=sql.now(), acknowledged_by="ann")
    (finding,) = [f for f in said() if "It fails" in f.what]
    assert (finding.level, "ann" in finding.what) == ("warn", True)


def test_notes_are_masked_for_who_may_not_see_whose_number_it_is(row: BizReceive) -> None:
    group = lose(row.pk)
    failure_groups.acknowledge(
        failure_groups.GroupSnapshot(group.pk, 1, group.last_at),
        "orders",
        group.answer,
        "call 13800138000",
        "li",
    )
    earlier = alarm()
    Alert.objects.update(note="call 13800138000", acknowledged_by="li", acknowledged_at=sql.now())
    alerts.resolve(earlier.key)
    again = alarm()
    client = person("notify.view_bizmsg", "msgplatform.view_alert")
    address = f"/admin/msgplatform/alert/{again.pk}/change/"
    for page in (text(client), client.get(address).content.decode()):
        assert "call 138****8000" in page
        assert "13800138000" not in page
    # Nor is the mask offered to be saved.
    Alert.objects.filter(pk=again.pk).update(note="call 13800138000", acknowledged_at=sql.now())
    User.objects.get().user_permissions.add(Permission.objects.get(codename="change_alert"))
    assert 'value="call' not in client.get(address).content.decode()
