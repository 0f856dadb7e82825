"""What people who are limited to business systems can do, and that what is another system's is
answered like what does not exist."""

import re
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import get_resolver, resolve

from crmsync.models import Crm, Source
from gateway.intake import accept
from msgplatform import person_limits, roles
from msgplatform.core import flows
from msgplatform.core.data import sql
from msgplatform.core.flows.health import MAX_FAILURES
from msgplatform.jobs.models import BulkJob
from msgplatform.models import Alert, AuditLog, Biz, FailureGroup, MinuteCounter, PersonLimit, Role
from notify.models import BizMsg, BizReceive, EventType, Receive, ReceiveMsg
from tests.support import crm_rows, notify_rows, sms_rows, two_systems
from tests.support.api_document import api_views
from tests.support.two_systems import OWN, ZEBRA, System

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("work_redis", "sms_redis"),
]
Systems = tuple[System, System]
MISSING = 4711_0000_0000_0000_001


@pytest.fixture
def systems(tmp_path: Path) -> Systems:
    roles.make()
    return two_systems.make(tmp_path)


@pytest.fixture
def anna(systems: Systems) -> Client:
    return limited(OWN)


def limited(*names: str) -> Client:
    user = User.objects.create_user(f"anna-{'-'.join(names)}", is_staff=True)
    user.groups.add(Role.objects.get(name=roles.ADMINISTRATOR).group)
    person_limits.limit_person(user, names, "tests")
    client = Client()
    client.force_login(user)
    return client


# -- what is foreign is as what is missing -------------------------------------------------------
def told(client: Client, address: str, form: dict[str, Any] | None = None) -> tuple[int, str, str]:
    """An answer without what differs each time, and without the id or name that was asked for."""
    answer = client.get(address) if form is None else client.post(address, form)
    text = answer.content.decode()
    text = re.sub(r'(nonce|csrfmiddlewaretoken|value|id)="[^"]*"', "", text)
    return (
        answer.status_code,
        re.sub(r"\b\d{9,}\b|\b\d\d:\d\d(:\d\d)?\b|\b[\d.]+ s\b", "", text),
        str(answer.get("Location", "")),
    )


def test_what_is_foreign_is_answered_like_what_is_missing(systems: Systems, anna: Client) -> None:
    _own, foreign = systems
    rows, post = foreign.rows, {"recipient": "", "note": "taken", "to": "paused"}
    for flow, kind in (("notify", "message"), ("sms", "sms"), ("crmsync", "lead"),
                       ("feed", "post")):  # fmt: skip
        for tail, form in (("", None), ("/content", None), ("/resend", post)):
            here, there = (f"/console/{flow}/{pk}{tail}" for pk in (rows[kind], MISSING))
            assert told(anna, here, form) == told(anna, there, form), here
            assert told(anna, here, form)[0] == 404
    for address, key, missing in (
        ("/console/bulk/jobs/{}", "job_notify", 4711),
        ("/console/bulk/jobs/{}/arrived", "job_sms", 4711),
        ("/admin/msgplatform/biz/{}/change/", "biz", 4711),
        ("/admin/msgplatform/apikey/{}/change/", "key", 4711),
        ("/admin/msgplatform/alert/{}/change/", "alert", 4711),
        ("/admin/notify/bizreceive/{}/change/", "subscription", 4711),
        ("/admin/notify/bizreceive/{}/test/", "subscription", 4711),
        ("/admin/notify/receive/{}/change/", "consumer", 4711),
        ("/admin/notify/eventtype/{}/change/", "event_type", 4711),
        ("/admin/gateway/smsaccount/{}/change/", "account", 4711),
        ("/admin/gateway/sgipmo/{}/change/", "mo", MISSING),
        ("/admin/crmsync/landingpage/{}/change/", "landing_page", 4711),
        ("/admin/crmsync/policy/{}/change/", "policy", 4711),
        ("/admin/notify/bizreceive/?biz__id__exact={}", "biz", 4711),
        ("/admin/notify/bizreceive/?receive__id__exact={}", "consumer", 4711),
        ("/admin/notify/eventtype/?biz__id__exact={}", "biz", 4711),
        ("/console/statistics?flow=notify&system={}", "biz", 4711),
        ("/console/statistics?flow=notify&subscription={}", "subscription", 4711),
        ("/console/statistics.csv?flow=notify&system={}", "biz", 4711),
    ):  # fmt: skip
        number = re.compile(rf"(?:\b|(?<=%3D))({rows[key]}|{missing})\b")
        plain = []
        for pk in (rows[key], missing):
            status, text, to = told(anna, address.format(pk))
            plain.append((status, number.sub("ID", text), number.sub("ID", to)))
        assert plain[0] == plain[1], address


FOREIGN_FILTERS = [
    ("notify", "biz", ZEBRA, "nobody"),
    ("notify", "subscription", f"{ZEBRA}/{ZEBRA}-hook", "no/body"),
    ("sms", "biz", ZEBRA, "nobody"),
    ("sms", "account", f"{ZEBRA}-sms", "nobody"),
    ("crmsync", "appkey", f"{ZEBRA}-page", "nobody"),
    ("crmsync", "crm", f"crm-of-{ZEBRA}", "nobody"),
    ("crmsync", "policy", f"hive/crm-of-{ZEBRA}", "hive/nobody"),
    ("feed", "biz", ZEBRA, "nobody"),
]


def test_filters_know_no_other_system(anna: Client, subtests: pytest.Subtests) -> None:
    for flow, field, foreign, missing in FOREIGN_FILTERS:
        with subtests.test(f"{flow} {field}"):
            sentences = []
            for value in (foreign, missing):
                answer = anna.get(f"/console/search/{flow}", {field: value})
                assert answer.context["found"] is None
                sentences.append(answer.context["form"].errors.as_json())
            assert sentences[0] == sentences[1]
            offered = anna.get(f"/console/options/{flow}/search/{field}", {"q": ""})
            assert ZEBRA not in str(offered.json()["options"])


# -- what they can do ----------------------------------------------------------------------------
def job_form(**fields: str) -> dict[str, str]:
    return {"action": "resend", **fields}


def start(client: Client, flow: str, **fields: str) -> Any:
    """Preview, then start what the preview showed."""
    answer = client.post(f"/console/bulk/{flow}", job_form(**fields))
    if not answer.context["previewed"]:
        return answer
    form = {**job_form(**fields), "start": "1", "previewed": answer.context["previewed"]}
    for name in answer.context["form"].fields:
        form.setdefault(name, answer.context["form"].data.get(name, ""))
    return client.post(f"/console/bulk/{flow}", form)


def test_a_bulk_job_is_about_own_messages(systems: Systems, anna: Client) -> None:
    own, foreign = systems
    count = BulkJob.objects.count()
    for fields in (
        {"biz": ZEBRA}, {"subscription": f"{ZEBRA}/{ZEBRA}-hook"},
        {"subscription": str(foreign.rows["subscription"])}, {"biz": "nobody"},
    ):  # fmt: skip
        answer = start(anna, "notify", **fields)
        assert answer.status_code == 200
        assert answer.context["preview"] is None
        assert answer.context["form"].errors
    # Of several ids those that are their own: the system is filled in.
    ids = f"{own.rows['message']},{foreign.rows['message']},{foreign.rows['delivery']}"
    answer = start(anna, "notify", ids=ids)
    assert answer.status_code == 302
    job = BulkJob.objects.latest("id")
    assert (job.biz_id, job.filter["biz"], job.total) == (own.biz.pk, OWN, 1)
    assert BulkJob.objects.count() == count + 1
    page = anna.get(f"/console/bulk/jobs/{job.pk}")
    assert page.status_code == 200
    assert anna.post(f"/console/bulk/jobs/{job.pk}", {"to": "paused"}).status_code == 302
    # Who sees two systems says which one.
    both = limited(OWN, Biz.objects.exclude(name__in=[OWN, ZEBRA]).earliest("id").name)
    answer = start(both, "notify", ids=ids)
    assert answer.context["form"].errors["biz"]
    assert start(both, "notify", ids=ids, biz=OWN).status_code == 302


def test_messages_are_sent_again_one_by_one(systems: Systems, anna: Client) -> None:
    own, foreign = systems
    ids = [own.rows["message"], foreign.rows["message"]]
    exhausted = ReceiveMsg.objects.filter(status=ReceiveMsg.Status.EXHAUSTED)
    owners = set(exhausted.values_list("biz__name", flat=True))
    assert {OWN, ZEBRA} <= owners
    assert anna.post("/console/search/notify/resend", {"id": ids}).status_code == 302
    assert set(exhausted.values_list("biz__name", flat=True)) == owners - {OWN}
    resent = AuditLog.objects.filter(action="message_resent").values_list("target", flat=True)
    assert list(resent) == [f"notify {ids[0]}"]


def test_failures_alerts_and_their_acknowledgement(
    systems: Systems, anna: Client, admin_client: Client
) -> None:
    own, foreign = systems
    page = anna.get("/console/failures")
    shown = [one for listing in page.context["listings"] for place in listing.places
             for one, _url in place.failures]  # fmt: skip
    assert {one.system for one in shown} == {OWN}
    for system, is_done in ((foreign, False), (own, True)):
        group = FailureGroup.objects.get(flow="notify", subject=system.rows["subscription"])
        form = {"id": group.pk, "lost": group.lost, "until": group.last_at.isoformat(), "note": "n"}
        anna.post("/console/failures/notify/acknowledge", form)
        group.refresh_from_db()
        assert (group.count == 0) is is_done
    # Those of other flows have no system: nobody may conclude that there are none.
    names = ", ".join(str(flow.title) for flow in flows.all() if flow.name != "notify")
    sentence = f"{names}: failures are counted for all business systems together"
    empty_page = anna.get("/console/failures").content.decode()
    for text in (page.content.decode(), empty_page):
        assert sentence in text
    assert "None is listed for your business systems." in empty_page
    assert "everything that was given up was sent again" not in empty_page
    assert sentence not in admin_client.get("/console/failures").content.decode()
    # The badge has the own alert; there are others.
    assert Alert.objects.filter(open_key__isnull=False).count() > 1
    overview = anna.get("/console/").content.decode()
    assert "1 problem" in overview
    assert f"{OWN} is failing" in overview
    assert ZEBRA not in overview
    for system, is_done in ((foreign, False), (own, True)):
        pk = system.rows["alert"]
        anna.post(f"/admin/msgplatform/alert/{pk}/do/acknowledge/", {"note": "mine", "seen": ""})
        assert bool(Alert.objects.get(pk=pk).note) is is_done


def test_failures_alone_keep_the_overview_from_being_calm(systems: Systems, anna: Client) -> None:
    own, _foreign = systems
    Alert.objects.update(open_key=None)
    page = anna.get("/console/").content.decode()
    assert "Messages were given up: 1 group." in page
    assert "nothing needs you" not in page
    FailureGroup.objects.filter(subject=own.rows["subscription"]).update(count=0)
    assert "nothing needs you" in anna.get("/console/").content.decode()


def test_larger_failures_of_others_hide_none(
    systems: Systems, anna: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, _foreign = systems
    for number in range(MAX_FAILURES):
        FailureGroup.objects.create(
            flow="notify", subject=999, answer=f"HTTP {number}", count=1000, lost=1000,
            since=sql.now(), sample=1, counted_since=sql.now(), last_at=sql.now(),
        )  # fmt: skip
    assert "/console/failures" in anna.get("/console/").content.decode()
    page = anna.get("/console/failures").content.decode()
    subscription = BizReceive.objects.filter(biz=own.biz).first()
    assert subscription is not None
    assert subscription.receive.name in page


def test_a_record_of_their_own_source_has_its_page(systems: Systems, anna: Client) -> None:
    """Its id is none of a lead."""
    own, foreign = systems
    for system, status in ((own, 200), (foreign, 404)):
        crm = Crm.objects.create(name=f"crm-{system.biz.name}", adapter="sql")
        source = Source.objects.create(
            name=f"table-{system.biz.name}", database="sqlite:///shop.db", table="customer",
            time_column="changed_at", value_columns=["name"],
        )  # fmt: skip
        policy = crm_rows.policy(crm, source, biz=system.biz, mapping="name = name")
        row = crm_rows.record(policy, crm_rows.operation(policy, []), "A-1")
        assert anna.get(f"/console/crmsync/record-{row.pk}").status_code == status


def test_a_policy_leads_to_no_page_of_the_platform(systems: Systems, anna: Client) -> None:
    own, _foreign = systems
    Crm.objects.filter(pk=own.rows["crm"]).update(paused_at=sql.now(), paused_because="no login")
    run_page = f'<a href="/admin/crmsync/run/{own.rows["run"]}/change/">'
    everybody = Client()
    everybody.force_login(User.objects.create_superuser("everybody"))
    for client, has_links in ((anna, False), (everybody, True)):
        shown = client.get("/admin/crmsync/policy/").content.decode()
        assert f"crm-of-{OWN}" in shown
        assert (run_page in shown) is has_links
        page = client.get(f"/admin/crmsync/policy/{own.rows['policy']}/change/").content.decode()
        assert (run_page in page) is has_links
        text = f"crm-of-{OWN} is paused, so nothing is read: no login"
        assert (f'<p class="notice bad">{text}' in page) is not has_links
        assert (f'/change/">{text.replace(" is", "</a> is", 1)}' in page) is has_links


def test_statistics_count_their_systems_alone(systems: Systems, anna: Client) -> None:
    own, foreign = systems
    for client, has_foreign in ((anna, False), (limited(OWN, ZEBRA), True)):
        for address in ("/console/statistics?flow=notify&period=1h",
                        "/console/statistics?period=1h"):  # fmt: skip
            text = client.get(address).content.decode().replace(",", "").replace(" ", "")
            assert str(7000 + own.biz.pk) in text or has_foreign
            assert (str(7000 + foreign.biz.pk) in text) is has_foreign, address
        rows = b"".join(client.get(
            "/console/statistics.csv?flow=notify&period=1h&by=system"
        )).decode()  # fmt: skip
        assert OWN in rows
        assert (ZEBRA in rows) is has_foreign


def test_a_group_that_is_the_platforms_leads_nowhere(systems: Systems, anna: Client) -> None:
    own, _foreign = systems
    MinuteCounter.add("feed", {(own.biz.pk, 0, "set_aside_vip"): 11}, sql.now())
    address = "/console/statistics?flow=feed&period=1h"
    rows = {
        str(table.heading): [(row.title, bool(row.url)) for row in table.rows]
        for table in anna.get(address).context["tables"]
    }
    assert ("vip", False) in rows["Topic"]
    assert all(has_url for _title, has_url in rows["System"])
    for refused in (anna.get(f"{address}&topic=vip"),
                    anna.get(f"{address.replace('?', '.csv?')}&topic=vip")):  # fmt: skip
        assert "There is no such choice." in refused.content.decode()
    assert limited(OWN, ZEBRA).get(f"{address}&system={own.biz.pk}").context["numbers"]


def test_counters_of_no_system_are_not_shown_as_zeros(
    systems: Systems, anna: Client, admin_client: Client
) -> None:
    own, _foreign = systems
    MinuteCounter.add("crmsync", {(0, own.rows["policy"], "confirmed"): 4321}, sql.now())
    sentence = "CRM sync counts for all business systems together"
    for address in ("/console/", "/console/?live=1", "/console/statistics?period=1h",
                    "/console/statistics?flow=crmsync&period=1h"):  # fmt: skip
        page = anna.get(address).content.decode()
        assert sentence in page, address
        assert "Nothing was counted in this time" not in page
        assert sentence not in admin_client.get(address).content.decode()
    by_flow, _by_system = anna.get("/console/statistics?period=1h").context["tables"]
    titles = [row.title for row in by_flow.rows]
    assert "Notify" in titles
    assert "CRM sync" not in titles
    refused = anna.get("/console/statistics.csv?flow=crmsync&period=1h")
    assert refused.status_code == 400
    assert sentence in refused.content.decode()


def troubles(page: Any) -> set[str]:
    """The subscriptions that the overview names as the worst."""
    return {one.group.title for one, _url in page.context["troubles"] if one.flow.name == "notify"}


def test_the_overview_counts_their_systems_alone(systems: Systems, anna: Client) -> None:
    own, foreign = systems
    page = anna.get("/console/")
    numbers = [value for card in page.context["cards"] for _title, value, *_rest in card.numbers]
    assert 7000 + own.biz.pk in numbers
    assert troubles(page) == {str(BizReceive.objects.get(pk=own.rows["subscription"]))}
    both = limited(OWN, ZEBRA).get("/console/")
    numbers = [value for card in both.context["cards"] for _title, value, *_rest in card.numbers]
    assert 14000 + own.biz.pk + foreign.biz.pk in numbers
    assert len(troubles(both)) == 2


def test_the_overview_leaves_out_what_is_counted_for_all_together(
    systems: Systems, anna: Client, admin_client: Client
) -> None:
    """Messages that SMS has accepted are counted in Redis, without their systems."""
    own, _foreign = systems
    counts = {(own.biz.pk, own.rows["account"], "delivered"): 3}
    MinuteCounter.add("sms", counts, sql.now())
    for client, is_accepted_shown in ((anna, False), (admin_client, True)):
        cards = client.get("/console/").context["cards"]
        (card,) = [each for each in cards if each.flow.name == "sms"]
        titles = {str(title) for title, *_rest in card.numbers}
        lines = {str(line.title) for chart in card.charts for line in chart.lines}
        assert "delivered" in titles & lines
        assert ("accepted" in titles, "accepted" in lines) == (is_accepted_shown,) * 2


def test_messages_in_flight(systems: Systems, anna: Client) -> None:
    accept.intake.cache_clear()  # it knows the accounts of a test before
    own, foreign = systems
    ids = [sms_rows.send(system.biz, text="still in flight") for system in (own, foreign)]
    found = anna.get("/console/search/sms").context["found"]
    assert ids[0] in {hit.id for hit in found.hits}
    assert ids[1] not in {hit.id for hit in found.hits}
    assert [anna.get(f"/console/sms/{id}").status_code for id in ids] == [200, 404]
    piece = anna.get("/console/texts/sms?q=in flight").json()
    assert ids[0] in piece["rows"]
    assert ids[1] not in piece["rows"]
    assert piece["range"].startswith("1 message in flight")
    everybody = limited(OWN, ZEBRA).get("/console/texts/sms?q=in flight").json()
    assert everybody["range"].startswith("2 messages in flight")


def test_what_is_made_belongs_to_their_systems(systems: Systems, anna: Client) -> None:
    own, foreign = systems
    shared = EventType.objects.create(name="shared.type")
    for biz, is_made in ((foreign.biz.pk, False), ("", False), (own.biz.pk, True)):
        form = {"biz": biz, "name": "orders.new", "description": "", "example": "", "schema": ""}
        answer = anna.post("/admin/notify/eventtype/add/", form)
        assert (answer.status_code == 302) is is_made
        key = {"biz": biz, "name": f"till {biz}", "scopes": ["events:write"]}
        assert (anna.post("/admin/msgplatform/apikey/add/", key).status_code == 302) is is_made
    assert ZEBRA not in anna.get("/admin/msgplatform/apikey/add/").content.decode()
    # Neither handed over nor taken.
    entry = EventType.objects.get(name="orders.new")
    form = {"biz": foreign.biz.pk, "name": "orders.new", "description": "taken"}
    anna.post(f"/admin/notify/eventtype/{entry.pk}/change/", form)
    form = {"biz": own.biz.pk, "name": "shared.type", "description": "taken", "example": "",
            "schema": ""}  # fmt: skip
    anna.post(f"/admin/notify/eventtype/{shared.pk}/change/", form)
    assert not EventType.objects.filter(description="taken").exists()
    # A subscription to a consumer that others use is refused; a consumer is not changed at all.
    receive = Receive.objects.get(pk=foreign.rows["consumer"])
    count = BizReceive.objects.count()
    form = {"biz": own.biz.pk, "receive": receive.pk, "status": 0, "timeout": "5",
            "attempts_limit": "3", "in_flight_limit": "1", "format": "plain"}  # fmt: skip
    answer = anna.post("/admin/notify/bizreceive/add/", form)
    assert "receive" in answer.context["adminform"].form.errors
    assert BizReceive.objects.count() == count
    page = anna.get(f"/admin/notify/receive/{own.rows['consumer']}/change/").content.decode()
    assert f"{OWN}-token" not in page


def test_an_event_is_published_for_their_systems(systems: Systems, anna: Client) -> None:
    count, address = BizMsg.objects.count(), "/admin/notify/bizreceive/publish/"
    for chosen in ("", ZEBRA):
        shown = anna.get(address, {"system": chosen})
        assert shown.context["form"].initial["system"] == OWN
        assert f"{OWN}.paid" in shown.context["types"]
        assert ZEBRA not in str([shown.context["types"], shown.context["systems"]])
    for name, is_published in ((ZEBRA, False), (OWN, True)):
        form = {"system": name, "event_type": "orders.paid", "payload": "{}", "key": f"k-{name}"}
        answer = anna.post(address, form)
        assert (answer.status_code == 302) is is_published
    assert BizMsg.objects.count() == count + 1


def test_a_person_without_a_system_sees_nothing(systems: Systems) -> None:
    nobody = limited()
    for flow in ("notify", "sms", "crmsync", "feed"):
        assert nobody.get(f"/console/search/{flow}").context["found"].hits == []
        assert b"".join(nobody.get(f"/console/search/{flow}.csv")).count(b"\n") == 1
    for model in ("msgplatform/biz", "notify/bizreceive", "notify/receive", "msgplatform/apikey",
                  "msgplatform/alert", "msgplatform/bulkjob", "crmsync/policy"):  # fmt: skip
        assert nobody.get(f"/admin/{model}/").context["cl"].result_count == 0
    types = nobody.get("/api/asyncapi.json").json()
    assert ZEBRA not in str(types)
    assert OWN not in str(types["channels"])


def test_the_document_of_events_keeps_to_the_limit(systems: Systems, anna: Client) -> None:
    text = anna.get("/api/asyncapi.json").content.decode()
    assert f"{OWN}.paid" in text
    assert ZEBRA not in text
    answers = [anna.get(f"/api/asyncapi.json?system={name}").content for name in (ZEBRA, "nobody")]
    assert answers[0] == answers[1]


# -- the gate ------------------------------------------------------------------------------------
def test_a_page_that_declares_nothing_is_refused(
    systems: Systems, anna: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = resolve("/console/search/notify").func
    assert anna.get("/console/search/notify").status_code == 200
    monkeypatch.delattr(view, "answers_limited_people")
    answer = anna.get("/console/search/notify")
    assert answer.status_code == 403
    assert "business systems" in answer.content.decode()
    for address in ("/admin/msgplatform/auditlog/", "/admin/auth/user/", "/django-rq/",
                    "/console/getting-started",
                    "/admin/gateway/smsgateway/", "/admin/crmsync/crm/", "/admin/feed/eventqueue/",
                    "/admin/msgplatform/alertchannel/", "/admin/search/?s=zebra",
                    f"/admin/notify/bizreceive/{systems[0].rows['subscription']}/history/",
                    ):  # fmt: skip
        assert anna.get(address).status_code == 403, address
    assert anna.get("/admin/").headers["Location"] == "/console/"


def test_only_the_document_of_events_takes_a_session(systems: Systems, anna: Client) -> None:
    """Other operations of the API know keys alone: the gate leaves the API out."""
    with_session = [
        path
        for path, view in api_views(get_resolver("msgplatform.urls"))
        if any("Session" in each.__name__ for each in view.authentication_classes)
    ]
    assert [path.strip("/^$") for path in with_session] in ([], ["api/asyncapi.json"])
    assert anna.get("/api/v1/systems").status_code == 401


def test_a_limit_takes_effect_with_the_next_request(systems: Systems, anna: Client) -> None:
    _own, foreign = systems
    address = f"/console/notify/{foreign.rows['message']}"
    assert anna.get(address).status_code == 404
    user = User.objects.get(username__startswith="anna")
    person_limits.limit_person(user, None, "tests")
    assert anna.get(address).status_code == 200
    person_limits.limit_person(user, [OWN], "tests")
    PersonLimit.objects.get(user=user).systems.clear()  # as if its system were deleted
    assert anna.get(address).status_code == 404


# -- cost ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("address", ["/console/search/notify", "/admin/notify/bizreceive/"])
def test_the_number_of_statements_does_not_grow(systems: Systems, address: str) -> None:
    own, foreign = systems
    both = limited(OWN, ZEBRA)
    counts = []
    for _round in range(2):
        for system in (own, foreign):
            notify_rows.publish(system.biz, 40)
        both.get(address)
        with CaptureQueriesContext(connection) as statements:
            assert both.get(address).status_code == 200
        counts.append(len(statements))
    assert counts[0] == counts[1]


def test_a_list_reads_the_index_of_each_system(systems: Systems) -> None:
    both = limited(OWN, ZEBRA)
    with CaptureQueriesContext(connection) as statements:
        both.get("/console/search/notify")
    (own_id, foreign_id) = (system.biz.pk for system in systems)
    reads = [
        each["sql"] for each in statements
        if "ORDER BY" in each["sql"] and "biz_msg" in each["sql"].lower() and "LIMIT" in each["sql"]
    ]  # fmt: skip
    assert any(str(own_id) in each for each in reads)
    assert any(str(foreign_id) in each for each in reads)
    with connection.cursor() as cursor:
        for statement in reads:
            cursor.execute(
                f"EXPLAIN {'' if connection.vendor == 'mysql' else 'QUERY PLAN'} {statement}"
            )
            plan = str(cursor.fetchall()).lower()
            assert "filesort" not in plan, (statement, plan)
            assert "temp b-tree" not in plan, (statement, plan)
            assert "biz" in plan, (statement, plan)
