"""Every daemon looks after the platform: what is silent, away or late has one alert, and an end."""

import socket
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from django.db import OperationalError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from prometheus_client.parser import text_string_to_metric_families
from pytest_django import Settings

from crmsync import copies
from gateway import presence
from gateway.monitor import activity
from msgplatform.core import alerts, flows
from msgplatform.core.daemons import exits, heartbeats, thread_loop
from msgplatform.core.daemons.daemon import Loop, Worker
from msgplatform.core.daemons.heartbeats import Heartbeat
from msgplatform.core.data import server, sql
from msgplatform.core.flows.health import MAX_FAILURES
from msgplatform.core.flows.programs import program_roles
from msgplatform.core.web.request_counts import ANSWERED
from msgplatform.models import Alert, Biz, FailureGroup, IdNode
from msgplatform.monitor import failure_store, metrics
from msgplatform.monitor.failure_store import Loss
from msgplatform.monitor.watch import of_flows, watch as watch_module
from msgplatform.monitor.watch.servers import ClusterOfDatabases, Disks
from msgplatform.monitor.watch.watch import Watch
from msgplatform.operation import doctor
from notify.maker.maker import Maker
from notify.models import BizMsg, BizReceive, ReceiveMsg
from notify.monitor import counters
from tests.support.notify_rows import publish, subscription
from tests.support.sms_net_support import accept, mt
from tests.support.sms_rows import gateway

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("work_redis", "sms_redis"),
]
NOWHERE = "redis://127.0.0.1:1/0"
MINUTES = 15


@pytest.fixture(autouse=True)
def _settings(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    # What is reported once lasts as long as a test may.
    monkeypatch.setattr(heartbeats._heartbeats, "_seconds", 3600.0)
    monkeypatch.setattr(server.writers, "_seconds", 3600.0)
    settings.ALERT_SILENT_SECONDS = 0
    settings.ALERT_BACKLOG_MINUTES = MINUTES


def everybody() -> dict[str, Heartbeat]:
    """A heartbeat of every program that should run."""
    beats = {role: Heartbeat(role) for role in program_roles()}
    for beat in beats.values():
        beat.send()
    return beats


def open_keys() -> set[str]:
    return {key for key in Alert.objects.values_list("open_key", flat=True) if key}


def scraped() -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(metrics.exposition().decode())
    return {
        (sample.name.removeprefix("msgplatform_"), tuple(sorted(sample.labels.items()))): (
            sample.value
        )
        for family in families
        for sample in family.samples
    }


@pytest.fixture
def no_database() -> Iterator[None]:
    name = connection.settings_dict["NAME"]
    connection.close()
    connection.settings_dict["NAME"] = "/no/such/place"
    yield
    connection.close()
    connection.settings_dict["NAME"] = name


# -- programs ------------------------------------------------------------------------------------
def test_a_program_that_was_seen_and_is_silent_has_one_alert_until_it_is_back() -> None:
    beats, look = everybody(), Watch().look
    look()
    assert open_keys() == set()
    beats["marker"].withdraw()
    for _ in range(3):
        look()
    alert = Alert.objects.get()
    assert (alert.open_key, alert.count) == ("platform.silent:marker", 1)
    assert "run_marker" in alert.subject
    beats["marker"].send()
    look()
    assert open_keys() == set()


def test_a_full_redis_hides_no_silent_program(work_redis: redis.Redis) -> None:
    beats, look = everybody(), Watch().look
    look()
    beats["marker"].withdraw()
    work_redis.config_set("maxmemory", 1)
    try:
        look()
        look()
        assert "platform.silent:marker" in open_keys()
        ANSWERED.count("/rpc", "GET", 200, 0.001)
        ANSWERED.add()  # does not raise: requests are answered all the same
    finally:
        work_redis.config_set("maxmemory", 0)


def test_a_program_that_never_ran_is_not_missed() -> None:
    """FLOWS may name what an installation does not start."""
    Heartbeat("maker").send()
    Watch().look()
    assert open_keys() == set()


def test_a_program_that_ends_again_and_again_is_reported_while_the_disk_is_full(
    settings: Settings, tmp_path: Path
) -> None:
    everybody()
    settings.STATE_DIR = tmp_path / "full"
    with pytest.raises(OSError, match="full"):
        exits.report([exits.Exits("run_maker", 3, "No space left on device")], [])
    Watch().look()
    assert open_keys() == {"platform.silent:maker"}
    assert "No space left on device" in Alert.objects.get().text


class Stuck(Worker):
    """Each turn fails, or does not end."""

    role = "marker"

    def __init__(self, error: Exception | None) -> None:
        super().__init__()
        self.error = error
        self.stopping.wait = lambda seconds: False  # type: ignore[method-assign]

    def turn(self) -> bool:
        if self.error:
            raise self.error
        return True


@pytest.mark.parametrize(
    "error", [OperationalError(1366, "Incorrect string value"), ValueError("a bug")]
)
def test_a_program_whose_work_stands_still_is_told_with_its_error(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_loop, "standstills", {})
    beats, look = everybody(), Watch().look
    worker = Stuck(error)
    loop = Loop(worker)
    loop._one_turn()
    monkeypatch.setattr(watch_module, "STANDSTILL_SECONDS", 0.0)
    worker.heartbeat.send()
    look()
    alert = Alert.objects.get()
    assert alert.open_key == "platform.silent:marker"
    assert str(error.args[-1]) in alert.text
    assert "stands still" in alert.subject
    worker.error = None
    loop._one_turn()
    worker.heartbeat.send()
    beats["marker"].send()
    look()
    assert open_keys() == set()


def test_a_minute_of_failures_is_a_standstill_and_one_turn_of_three(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(thread_loop, "standstills", {})
    thread_loop.begin_turn("marker")
    began = thread_loop.longest_standstill().since
    for why, seconds in (("", 180.0), ("disk full", 60.0)):
        if why:
            thread_loop.fail_turn("marker", OSError(why))
        beat = Heartbeat("marker", standstill=thread_loop.longest_standstill())
        for age, is_still in ((seconds - 1, False), (seconds + 1, True)):
            beat.at = began + age
            assert watch_module.stands_still(beat) is is_still
    thread_loop.fail_turn(
        "other", redis.exceptions.ConnectionError("away")
    )  # has an alert of its own
    assert thread_loop.longest_standstill().part == "marker"
    thread_loop.end_turn("marker")
    assert thread_loop.longest_standstill().since == 0


def test_a_restart_is_no_trouble(settings: Settings) -> None:
    settings.ALERT_SILENT_SECONDS = 3600
    beats, look = everybody(), Watch().look
    look()
    beats["marker"].withdraw()
    look()
    look()
    assert open_keys() == set()


def test_a_flush_neither_ends_nor_makes_an_alert(work_redis: Any) -> None:
    beats, look = everybody(), Watch().look
    look()
    beats.pop("marker").withdraw()
    look()
    work_redis.flushall()
    look()
    assert open_keys() == {"platform.silent:marker"}, "it is silent for all that is known"
    for beat in beats.values():
        beat.send()
    look()
    assert open_keys() == {"platform.silent:marker"}


def test_one_looks_for_all_and_another_goes_on(work_redis: Any) -> None:
    beats, first, second = everybody(), Watch(), Watch()
    first.look()
    with CaptureQueriesContext(connection) as captured:
        second.look()
    assert len(captured) == 1, "it asks whether the database answers, and nothing else"
    beats["sender"].withdraw()
    work_redis.delete("platform:watch")  # the first one is gone
    second.look()
    assert open_keys() == {"platform.silent:sender"}


def test_it_runs_beside_every_daemon_of_the_platform() -> None:
    class Idle(Worker):
        role = "idle"

    class Agent(Idle):
        watches = False

    assert len(Loop(Idle()).threads) == 1
    assert not Loop(Agent()).threads, "the Agent has neither database nor Redis of the platform"


# -- servers -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("variable", "key"), [("REDIS_URL", "work"), ("SMS_REDIS_URL", "sms")], ids=["work", "sms"]
)
def test_a_redis_that_is_away(settings: Settings, variable: str, key: str) -> None:
    everybody()
    before, looks = getattr(settings, variable), [Watch().look, Watch().look]
    looks[0]()
    setattr(settings, variable, NOWHERE)
    looks[0]()
    assert open_keys() == set(), "a restart takes less than the time between two looks"
    for look in looks * 2:
        look()
    alert = Alert.objects.get()
    assert (alert.open_key, alert.count) == (f"platform.redis:{key}", 1)
    assert variable in alert.subject
    assert scraped()["redis_up", (("redis", key),)] == 0
    setattr(settings, variable, before)
    everybody()
    looks[0]()
    assert open_keys() == set()
    assert scraped()["redis_up", (("redis", key),)] == 1


def test_programs_are_not_missed_because_redis_was_away(settings: Settings) -> None:
    settings.ALERT_SILENT_SECONDS = 3600
    everybody()
    watched, before = Watch(), settings.REDIS_URL
    watched.look()
    settings.REDIS_URL = NOWHERE
    watched.look()
    settings.REDIS_URL = before
    assert watched._programs._silent == {}


def test_without_the_database_a_metric_and_the_log_say_so(
    no_database: None, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scraped()["database_up", ()] == 0
    watched = Watch()
    watched.look()
    watched.look()
    # In one of them: where the output is closed, Python repeats the line there.
    said = caplog.text or "".join(capsys.readouterr())
    assert said.count("database_away") == 1


def test_an_alert_that_came_without_the_database_is_told_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody looks at what it tells of once more, such as a stranger at the SMS receiver."""
    connection.close()
    with monkeypatch.context() as away:
        is_file = connection.vendor == "sqlite"
        away.setitem(connection.settings_dict, "NAME" if is_file else "HOST", "/no/such/place")
        for text in ("first", "second"):
            alerts.raise_alert("sms.stranger", "A stranger", text, "sms.stranger")
        connection.close()
    Watch().turn()
    alert = Alert.objects.get(open_key="sms.stranger")
    assert (alert.text, alert.count) == ("second", 2)


def test_without_the_database_the_console_says_so(no_database: None) -> None:
    client = Client(raise_request_exception=False)
    client.cookies["sessionid"] = "x" * 32
    answer = client.get("/console/")
    assert answer.status_code == 503
    assert "The database does not answer" in answer.content.decode()


# -- backlogs ------------------------------------------------------------------------------------
def late(*fields: str) -> dict[str, Any]:
    """These fields, a minute longer ago than is allowed."""
    then = sql.now() - timedelta(minutes=MINUTES + 1)
    return dict.fromkeys(fields, then)


def test_a_delivery_that_waits_for_long() -> None:
    row = subscription(Biz.objects.create(name="orders"))
    publish(row.biz, 2)
    Maker().splitter.split()
    of_flows.report_backlogs()
    assert open_keys() == set()
    ReceiveMsg.objects.update(**late("next_at"))
    of_flows.report_backlogs()
    of_flows.report_backlogs()
    alert = Alert.objects.get()
    assert (alert.open_key, alert.count) == ("platform.backlog:notify:deliveries", 1)
    assert "orders → warehouse" in alert.subject
    ReceiveMsg.objects.update(status=ReceiveMsg.Status.DELIVERED)
    of_flows.report_backlogs()
    assert open_keys() == set()


def test_a_field_of_somebody_else_in_the_curves_is_left_out(work_redis: Any) -> None:
    of_flows.store_backlogs({"notify": 3}, now=600.0)
    work_redis.hset("platform:backlog:notify", mapping={"x": "1", "11": "many"})
    assert of_flows.read_backlogs(["notify"]) == {"notify": {600.0: 3}}


def test_fields_of_somebody_else_hide_none_of_ours(work_redis: Any, sms_redis: Any) -> None:
    beats, look = everybody(), Watch().look
    look()
    for client, name in (
        (work_redis, "platform:seen"), (work_redis, "notify:totals"), (work_redis, copies.INDEX),
        (sms_redis, "{sms}:mt-minutes"), (sms_redis, "{sms}:gateway-away"),
    ):  # fmt: skip
        client.hset(name, mapping={"x": "1", "11": "many", "é": "é"})
    beats["marker"].withdraw()
    look()
    assert open_keys() == {"platform.silent:marker"}
    assert counters.totals() == {"x": 1.0}
    assert copies.slots() == []
    assert presence.outages.note([7]) == {7: 0.0}
    now = sql.now()
    assert activity.ACTIVITY.live is not None
    assert activity.ACTIVITY.live(now - timedelta(hours=1), now) == {}


def test_a_consumer_that_fails_hides_no_other(settings: Settings) -> None:
    """It has its own alert after as long; the backlog is that of those that could be sent."""
    settings.NOTIFY_FAILING_MINUTES = 15
    biz = Biz.objects.create(name="orders")
    dead, alive = subscription(biz, "dead"), subscription(biz, "alive")
    publish(biz)
    Maker().splitter.split()
    ReceiveMsg.objects.filter(biz_receive=dead).update(**late("next_at"))
    BizReceive.objects.filter(pk=dead.pk).update(failures=2, **late("failing_since"))
    of_flows.report_backlogs()
    assert open_keys() == set()
    ReceiveMsg.objects.filter(biz_receive=alive).update(**late("next_at"))
    of_flows.report_backlogs()
    assert "alive" in Alert.objects.get().subject


def test_messages_that_nobody_splits() -> None:
    publish(Biz.objects.create(name="orders"))
    BizMsg.objects.update(**late("created_at"))
    of_flows.report_backlogs()
    assert open_keys() == {"platform.backlog:notify:messages"}
    assert flows.get("notify").health.status().oldest_seconds > MINUTES * 60  # type: ignore[union-attr,operator]


def test_each_gateway_has_its_own_and_an_unreadable_flow_keeps_what_was_told(
    sms_redis: Any, settings: Settings
) -> None:
    one, other = gateway("one"), gateway("other")
    for number, row in ((1, one), (2, other)):
        (message,) = accept(mt(number, [row.pk]))
        sms_redis.hincrbyfloat(f"{{sms}}:mt:{message}", "accepted_at", -3600)
    told = {f"platform.backlog:sms:{row.pk}" for row in (one, other)}
    of_flows.report_backlogs()
    assert open_keys() == told
    before = settings.SMS_REDIS_URL
    settings.SMS_REDIS_URL = NOWHERE
    of_flows.report_backlogs()
    assert open_keys() == told
    settings.SMS_REDIS_URL = before
    sms_redis.flushall()
    of_flows.report_backlogs()
    assert open_keys() == set()


def test_never(settings: Settings) -> None:
    publish(Biz.objects.create(name="orders"))
    BizMsg.objects.update(**late("created_at"))
    of_flows.report_backlogs()
    settings.ALERT_BACKLOG_MINUTES = 0
    of_flows.report_backlogs()
    assert open_keys() == set()


def test_a_look_costs_the_same_whatever_there_is(work_redis: Any) -> None:
    biz = Biz.objects.create(name="orders")
    look = Watch().look

    def queries() -> int:
        look()
        with CaptureQueriesContext(connection) as captured:
            look()
        return len(captured)

    subscription(biz, "first")
    few = queries()
    for number in range(20):
        subscription(biz, f"s{number}")
    publish(biz, 50)
    Maker().splitter.split()
    ReceiveMsg.objects.update(**late("next_at"))
    look()
    assert queries() <= few + 5, "an open alert is read, and renewed now and then"


# -- what is said --------------------------------------------------------------------------------
def test_an_open_alert_is_kept_up_to_date_and_that_is_no_news() -> None:
    news: list[alerts.AlertEvent] = []
    key = "sms.link:1"
    alerts.reconcile(["sms.link"], [alerts.Condition(key, "Gateway 1", "down for 1 minute")])
    Alert.objects.update(last_at=sql.now() - timedelta(minutes=2))
    alerts.register("test", news.append)
    try:
        alerts.reconcile(["sms.link"], [alerts.Condition(key, "Gateway one", "down for 2 minutes")])
    finally:
        alerts._handlers.pop("test")
    alert = Alert.objects.get()
    assert (alert.subject, alert.text, alert.count) == ("Gateway one", "down for 2 minutes", 1)
    assert sql.now() - alert.last_at < timedelta(minutes=1)
    assert news == []


def test_one_that_goes_on_unchanged_was_seen_lately() -> None:
    condition = alerts.Condition("sms.link:1", "Gateway 1", "down")
    for _ in range(2):
        alerts.reconcile(["sms.link"], [condition])
        Alert.objects.update(last_at=sql.now() - timedelta(minutes=2))
    alerts.reconcile(["sms.link"], [condition])
    assert sql.now() - Alert.objects.get().last_at < timedelta(minutes=1)
    with CaptureQueriesContext(connection) as captured:
        alerts.reconcile(["sms.link"], [condition])
    assert not [query for query in captured if query["sql"].startswith("UPDATE")]


CALM = "nothing needs you"


def test_the_console_is_calm_only_when_nothing_needs_anybody(
    admin_client: Client, settings: Settings
) -> None:
    def text() -> str:
        return admin_client.get("/console/").content.decode()

    assert CALM not in text(), "no program runs"
    beats = everybody()
    assert CALM in text()
    beats["bulk"].withdraw()
    assert CALM not in text()
    assert "bulk" in text()
    beats["bulk"].send()
    for number in range(25):
        alerts.raise_alert("kind", f"Subject {number}", "", f"kind:{number}")
    assert CALM not in text()
    assert "5 more open alerts" in text()
    assert admin_client.get("/admin/msgplatform/alert/?state=open").status_code == 200
    for number in range(25):
        alerts.resolve(f"kind:{number}")
    assert CALM in text()
    for variable in ("SMS_REDIS_URL", "REDIS_URL"):
        before = getattr(settings, variable)
        setattr(settings, variable, NOWHERE)
        assert CALM not in text(), variable
        setattr(settings, variable, before)


def test_metrics_say_what_alerts_do() -> None:
    beats = everybody()
    alerts.raise_alert("kind.a", "One", "", "kind.a:1")
    alerts.raise_alert("kind.a", "Two", "", "kind.a:2")
    beats["maker"].withdraw()
    found = scraped()
    assert found["alerts_open", (("kind", "kind.a"),)] == 2
    assert found["program_up", (("role", "maker"),)] == 0
    assert found["program_up", (("role", "bulk"),)] == 1
    assert found["database_up", ()] == 1


def test_what_the_list_has_no_room_for_stays_open() -> None:
    """The list is full of places that lost more, so it does not say whether this one is over."""
    now = sql.now()
    failure_store.add("notify", [Loss(1, "timeout", 1)], now)
    of_flows.report_failures()
    assert open_keys() == {"notify.failures:1"}
    many = [Loss(subject, "timeout", 1) for subject in range(2, 2 + MAX_FAILURES)] * 2
    failure_store.add("notify", many, now)
    of_flows.report_failures()
    assert "notify.failures:1" in open_keys()
    FailureGroup.objects.exclude(subject=2).update(count=0)
    of_flows.report_failures()
    assert open_keys() == {"notify.failures:2"}


def test_alerts_of_kinds_of_an_earlier_release_are_resolved() -> None:
    everybody()
    alerts.raise_alert("notify.given_up", "Orders", "", "notify.given_up:7")
    alerts.raise_alert("notify.old", "Old", "", "notify.old")
    alerts.raise_alert("notify.poison", "Poison", "", "notify.poison:1")
    other, look = Heartbeat("maker", host="other", release="0.0.9"), Watch().look
    other.send()  # an update goes on
    look()
    assert open_keys() == {"notify.given_up:7", "notify.old", "notify.poison:1"}
    other.withdraw()
    look()
    assert open_keys() == {"notify.poison:1"}


def test_the_backlog_of_a_flow_that_is_not_in_flows_any_more_is_resolved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That of a flow that cannot be read stays."""

    def locked() -> Any:
        raise OperationalError(1205, "Lock wait timeout exceeded")

    everybody()
    monkeypatch.setattr(flows.get("sms").health, "oldest_waits", locked)
    for flow in ("gone", "sms"):
        alerts.raise_alert("platform.backlog", flow, "", f"platform.backlog:{flow}:1")
    Watch().look()
    assert open_keys() == {"platform.backlog:sms:1"}


# -- what cannot be looked up --------------------------------------------------------------------
def test_a_condition_that_cannot_be_read_is_an_alert(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise ValueError("Empty module name")

    look = Watch().look
    everybody()
    with monkeypatch.context() as patched:
        patched.setattr(flows.get("sms").health, "failures", broken)
        look()
        look()
    alert = Alert.objects.get()
    assert (alert.open_key, alert.count) == ("platform.watch:sms.failures", 1)
    assert "ValueError: Empty module name" in alert.text
    look()
    assert open_keys() == set()


def test_a_database_that_refuses_once_is_no_alert(monkeypatch: pytest.MonkeyPatch) -> None:
    def locked() -> Any:
        raise OperationalError(1205, "Lock wait timeout exceeded")

    look = Watch().look
    everybody()
    monkeypatch.setattr(flows.get("notify").health, "failures", locked)
    for _ in range(3):
        look()
    assert open_keys() == set()
    look()
    assert open_keys() == {"platform.watch:notify.failures"}


def test_a_redis_that_is_away_has_one_alert(settings: Settings) -> None:
    everybody()
    look = Watch().look
    look()
    settings.SMS_REDIS_URL = NOWHERE
    for _ in range(6):
        look()
    assert open_keys() == {"platform.redis:sms"}


def test_doctor_names_what_cannot_be_looked_up_and_that_nobody_looks(work_redis: Any) -> None:
    def lines() -> list[str]:
        return [finding.what for finding in doctor.examine() if finding.level == "bad"]

    assert any("no program watches the platform" in line for line in lines())
    everybody()
    assert not any("watches" in line for line in lines()), "the programs have just started"
    Watch().look()
    assert not any("no program watches" in line for line in lines())
    alerts.raise_alert("platform.watch", "Alerts x cannot be looked up", "", "platform.watch:x")
    assert any("alert platform.watch: Alerts x cannot" in line for line in lines())


# -- disks and memory ----------------------------------------------------------------------------
def test_programs_of_two_releases_make_an_alert_when_that_lasts(settings: Settings) -> None:
    watched = watch_module.Programs()
    old, new = (
        Heartbeat(role, at=time.time(), release=release)
        for role, release in (("maker", "1.0.0"), ("sender", "1.1.0"))
    )
    for seconds, beats, keys in (
        (1800, [old, new], set()),
        (0, [old, new], {"platform.releases:programs"}),
        (0, [new], set()),
    ):
        settings.ALERT_MIXED_SECONDS = seconds
        watched.report_releases(beats)
        assert {key for key in open_keys() if "releases" in key} == keys
    assert Alert.objects.get(kind="platform.releases").text.startswith(
        "1.0.0: maker; 1.1.0: sender."
    )


def on_disk(host: str, free: float) -> Heartbeat:
    """A heartbeat of a machine with a disk of 100 GiB, of which this share is free."""
    beat = Heartbeat("maker", host=host, at=time.time(), disk_bytes=100 << 30)
    beat.disk_free_bytes = int(free * beat.disk_bytes)
    return beat


def test_a_disk_that_is_nearly_full_and_one_of_a_machine_that_is_silent() -> None:
    disks = Disks()
    disks.report([on_disk("one", 0.5), on_disk("two", 0.09)])
    assert open_keys() == {"platform.disk:two"}
    assert "9.0 of 100.0 GiB" in Alert.objects.get().text
    disks.report([on_disk("one", 0.5)])
    assert open_keys() == {"platform.disk:two"}, "nobody knows"
    disks.report([on_disk("two", 0.11)])
    assert open_keys() == {"platform.disk:two"}, "it would come and go"
    disks.report([on_disk("two", 0.13)])
    assert open_keys() == set()


@pytest.fixture
def set_minute(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the monotonic clock to so many minutes from now."""
    now = time.monotonic()
    return lambda minute: monkeypatch.setattr(time, "monotonic", lambda: now + 60 * minute)


def test_a_machine_that_is_gone_needs_nobody(set_minute: Callable[[float], None]) -> None:
    """A container that was made anew has another name."""
    disks = Disks()
    disks.report([on_disk("old", 0.09)])
    for minute, keys in ((1, {"platform.disk:old"}), (60, {"platform.disk:old"}), (62, set())):
        set_minute(minute)
        disks.report([on_disk("new", 0.5)])
        assert open_keys() == keys


def test_a_disk_that_will_be_full_soon(set_minute: Callable[[float], None]) -> None:
    """From 30 to 25 percent in half an hour: the rest lasts for two and a half; at the pace of the
    slowest third it would last for more than six."""
    disks = Disks()
    for minute, free in ((0, 0.30), (10, 0.276), (20, 0.27), (29, 0.25)):
        set_minute(minute)
        disks.report([on_disk("one", free)])
        assert open_keys() == set(), "too soon for a pace"
    set_minute(30.1)
    disks.report([on_disk("one", 0.25)])
    assert "it is full in about 2 h" in Alert.objects.get().text
    set_minute(40)
    disks.report([on_disk("one", 0.288)])
    assert open_keys() == {"platform.disk:one"}, "it would come and go"
    set_minute(60)
    disks.report([on_disk("one", 0.30)])
    assert open_keys() == set()


def test_a_backup_is_no_pace(set_minute: Callable[[float], None]) -> None:
    """6 of 40 GiB in five minutes, and nothing before and afterwards."""
    disks = Disks()
    for minute in range(130):
        set_minute(minute)
        disks.report([on_disk("one", 0.40 - 0.012 * min(5, max(0, minute - 60)))])
        assert open_keys() == set(), minute


def test_few_free_id_nodes_are_an_alert() -> None:
    everybody()
    look = Watch().look
    lease = sql.now() + timedelta(minutes=5)
    IdNode.objects.all().delete()
    IdNode.objects.bulk_create(IdNode(node=n, holder="x", lease_until=lease) for n in range(115))
    look()
    assert open_keys() == set()
    IdNode.objects.create(node=115, holder="x", lease_until=lease)
    look()
    assert open_keys() == {"platform.ids"}
    assert "116 of 128 id nodes of the database are in use" in Alert.objects.get().text
    IdNode.objects.filter(node__gte=113).update(lease_until=sql.now())
    look()
    assert open_keys() == {"platform.ids"}  # not yet: it would come and go
    IdNode.objects.filter(node=112).update(lease_until=sql.now())
    look()
    assert open_keys() == set()


def test_the_memory_of_a_redis_and_the_disk_are_metrics_and_findings(sms_redis: Any) -> None:
    everybody()
    # So much that what connections take, and give back, makes no difference.
    sms_redis.mset({f"ballast:{n}": bytes(10_000) for n in range(400)})
    used = int(sms_redis.info("memory")["used_memory"])
    sms_redis.config_set("maxmemory", int(used * 1.05))
    try:
        Watch().look()
        assert open_keys() == {"platform.memory:sms"}
        samples = scraped()
        assert samples["redis_memory_bytes", (("redis", "sms"),)] > 0.9 * used
        assert samples["redis_memory_limit_bytes", (("redis", "work"),)] == 0
        assert samples["disk_free_bytes", (("host", socket.gethostname()),)] > 0
        assert any("(maxmemory)" in finding.what for finding in doctor.examine())
    finally:
        sms_redis.config_set("maxmemory", 0)
    Watch().look()


# -- the cluster of databases ----------------------------------------------------------------------
def test_programs_that_write_to_two_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    def report(program: str, node: str) -> None:
        monkeypatch.setitem(server.nodes, "default", node)
        server.report(program)

    cluster = ClusterOfDatabases()
    report("maker", "one:3306")
    report("marker", "one:3306")
    cluster.report()
    cluster.report()
    assert open_keys() == set()
    report("marker", "two:3306")
    cluster.report()
    assert open_keys() == set(), "the writer may have changed a moment ago"
    cluster.report()
    assert open_keys() == {"platform.writers:database"}
    text = Alert.objects.get().text
    assert "one:3306: maker (" in text
    assert "two:3306: marker (" in text
    report("maker", "two:3306")
    cluster.report()
    assert open_keys() == set()
