"""Traces through real programs, each killed with the message in its hands, as a collector sees
them: a message to its consumer, a text to its Report, a lead to its CRM. A collector that hangs."""

import json
import secrets
import shutil
import sqlite3
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench.harness.mariadb import MariaDb
from notify.agent.schema import ddl
from tests.cluster import DAEMONS, LEASE_SECONDS, WEB, times_of_notify
from tests.flows.sms_cluster import SmsCluster
from tests.support.http_sinks import Sink, answering
from tests.support.otlp_receiver import Receiver, Seen, receiver

SMG = "smg"
SMS = ("sender-a", "receiver", "forwarder", "pump")
LEADS = ("run_sync_poller", "run_sync_handler")
ROWS = """
import json
from crmsync.models import Crm, LandingPage, Policy, Source
from gateway.models import SmsAccount, SmsGateway
from msgplatform.doors.api.access import keys
from msgplatform.models import Biz
from notify.models import BizReceive, Receive
biz = Biz.objects.create(name="shop")
receive = Receive.objects.create(name="consumer", url={url!r})
BizReceive.objects.create(biz=biz, receive=receive, schedule=[1, 1, 1, 600])
SmsGateway.objects.create(pk=1, name="smg", host="127.0.0.1", port={port}, login_name="sp",
    login_password="secret", smg_login_name="smg", smg_login_password="secret", corp_id="12345",
    connections=1)
SmsAccount.objects.create(biz=biz, name="shop", sp_number="10655001", corp_id="12345")
LandingPage.objects.create(biz=biz, appkey="drive", title="Drive", form_fields=[
    {{"name": "name", "required": True, "label": ""}}])
crm = Crm.objects.create(name="crm", adapter="sql", credentials={{"url": {crm!r}}},
    settings={{"table": "customer", "key_column": "code", "version_column": "revision"}})
Policy.objects.create(source=Source.hive(), crm=crm, interval_seconds=1, mapping="name = name")
print(json.dumps(keys.create(biz, "test", [
    "events:write", "sms:write", "leads:write"])[1]))
"""


class HastyPoller(SmsCluster):
    """A killed poller's policies are free after seconds, not after half a minute."""

    def _command(self, name: str) -> list[str]:
        if name == LEADS[0]:
            return [sys.executable, "-m", "tests.programs.hasty_program", "leases", name]
        return super()._command(name)


class Platform:
    """The running platform, its consumer, its CRM and its collector."""

    def __init__(self, cluster: SmsCluster, consumer: Sink, seen: Receiver) -> None:
        self.cluster, self.consumer, self.seen = cluster, consumer, seen
        self.crm = cluster.folder / "crm.db"
        with closing(sqlite3.connect(self.crm)) as crm:
            crm.execute(
                "CREATE TABLE customer (code VARCHAR(40) PRIMARY KEY, name TEXT, revision BIGINT)"
            )
        urls = {"url": consumer.url(), "crm": f"sqlite:///{self.crm}"}
        self.token = cluster.script(ROWS.format(port=cluster.ports[SMG], **urls))

    def run(self, *names: str) -> None:
        """Start programs that do not run."""
        for name in names:
            if name not in self.cluster.processes or self.cluster.died(name):
                self.cluster.start(name)

    def post(self, path: str, body: Any, traceparent: str = "") -> Any:
        headers = {"authorization": f"Bearer {self.token}", "content-type": "application/json"}
        if traceparent:
            headers["traceparent"] = traceparent
        request = urllib.request.Request(
            self.cluster.base_url + path, json.dumps(body).encode(), headers
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def spans(self, trace_id: str, name: str) -> list[Seen]:
        """Each once: a batch is exported again when its answer was late."""
        return list({span.span_id: span for span in self.seen.of(trace_id, name)}.values())

    def wait_for(self, trace_id: str, name: str, count: int = 1) -> list[Seen]:
        self.cluster.wait_until(
            lambda: len(self.spans(trace_id, name)) >= count, f"{count} × {name}"
        )
        return self.spans(trace_id, name)

    def delivered(self, trace_id: str, about: str) -> list[str]:
        """The spans that the consumer was given of this trace."""
        given = [r.headers.get("traceparent", "") for r in list(self.consumer.requests)
                 if about in r.body.decode()]  # fmt: skip
        return [text.split("-")[2] for text in given if text.split("-")[1:2] == [trace_id]]


@pytest.fixture(scope="module")
def platform(mariadb: MariaDb) -> Iterator[Platform]:
    folder = Path(tempfile.mkdtemp(prefix="mp-tr-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        seen = stack.enter_context(receiver())
        consumer = stack.enter_context(Sink(answering()))
        url = mariadb.create(folder.name.replace("-", "_"))
        cluster = HastyPoller(folder, url, {SMG: []}, (WEB,))
        cluster.environment |= {
            "OTEL_EXPORTER_OTLP_ENDPOINT": seen.url, "OTEL_TRACES_SAMPLER_ARG": "0",
            "OTEL_EXPORTER_OTLP_HEADERS": "X-Key=a%20secret", "CRM_LEASE_SECONDS": "12",
            "ACCESS_LOG": "yes", **times_of_notify(LEASE_SECONDS),
        }  # fmt: skip
        cluster.expected_errors = {"web_server"}
        stack.enter_context(cluster)
        yield Platform(cluster, consumer, seen)


def caller() -> tuple[str, str, str]:
    """A caller's trace, span and header."""
    trace_id, span_id = secrets.token_hex(16), secrets.token_hex(8)
    return trace_id, span_id, f"00-{trace_id}-{span_id}-01"


def test_a_message_over_the_death_of_each_program(platform: Platform) -> None:
    cluster = platform.cluster
    trace_id, span_id, header = caller()
    body = {"event_type": "order.paid", "payload": {"order": "traced"}}
    accepted = platform.post("/api/v1/messages", body, header)["id"]
    (accept,) = platform.wait_for(trace_id, "notify accept")
    cluster.restart(WEB)
    dying = {
        "run_maker": "maker_split_after_commit",
        "run_sender": "sender_before_results",
        "run_marker": "marker_after_commit_before_done",
    }
    for name, failpoint in dying.items():
        cluster.start(name, failpoint)
        cluster.wait_until(lambda name=name: cluster.died(name), f"{name} to die")
        cluster.start(name)

    def steps() -> list[tuple[Seen, Seen, Seen]]:
        """Of each attempt with an answer: delivery, mark and its batch. Each program exports its
        spans by itself, and a busy machine may give a request up before."""
        return [
            (deliver, mark, batch)
            for deliver in platform.spans(trace_id, "notify deliver")
            for mark in platform.spans(trace_id, "notify mark")
            for batch in platform.seen.named("notify mark batch")
            if deliver.attributes.get("http.response.status_code") == 200
            and deliver.span_id == mark.parent_id
            and (trace_id, deliver.span_id) in batch.links
            and (batch.trace_id, batch.span_id) in mark.links
        ]

    cluster.wait_until(lambda: bool(steps()), "the spans of an attempt")
    deliver, _, batch = steps()[-1]
    assert accept.parent_id == span_id
    assert accept.attributes["messaging.message.id"] == accepted
    assert deliver.parent_id == accept.span_id
    given = platform.delivered(trace_id, "traced")
    assert deliver.span_id in given, "the consumer is the attempt's child"
    assert len(given) >= 2, "once by the sender that died"
    assert batch.trace_id != trace_id
    assert {span.program for span in platform.seen.of(trace_id)} == {
        "web", "run_sender", "run_marker",
    }, "the maker died after its commit"  # fmt: skip
    assert platform.seen.headers[0]["x-key"] == "a secret"
    log = [json.loads(line) for line in cluster.said(WEB).splitlines() if line.startswith("{")]
    assert any(line.get("trace_id") == trace_id for line in log if line["event"] == "request")
    # The next tests count what the consumer gets: on a busy machine it is sent once only with time.
    cluster.environment |= {"NOTIFY_LEASE_SECONDS": "120", "NOTIFY_TIMEOUT_SECONDS": "30"}
    for name in DAEMONS:
        cluster.stop(name)


@pytest.mark.parametrize(
    "header",
    ["", "00-0-0-01", "00-" + "0" * 32 + "-00f067aa0ba902b7-01", "ff-" + "a" * 32 + "-" + "b" * 16,
     "00-" + "a" * 32 + "-" + "b" * 16 + "-00"],
)  # fmt: skip
def test_what_is_not_traced(platform: Platform, header: str) -> None:
    """No context, a malformed one, one that is not sampled: the same message, no trace."""
    platform.run(*DAEMONS)
    name = secrets.token_hex(8)
    body = {"event_type": "order.paid", "payload": {"order": name}}
    platform.post("/api/v1/messages", body, header)
    platform.cluster.wait_until(
        lambda: any(name in r.body.decode() for r in list(platform.consumer.requests)),
        "the delivery",
    )
    (request,) = (r for r in platform.consumer.requests if name in r.body.decode())
    assert "traceparent" not in request.headers


def test_each_message_of_a_batch_has_its_own_trace(platform: Platform) -> None:
    platform.run(*DAEMONS)
    callers = [caller() for _ in range(3)]
    items = [
        {"event_type": "order.paid", "payload": {"order": trace_id}, "traceparent": header}
        for trace_id, _, header in callers
    ]
    trace_id, _, header = caller()
    items.append({"event_type": "order.paid", "payload": {"order": trace_id}})
    answer = platform.post("/api/v1/messages/batch", {"messages": items}, header)
    assert {verdict["outcome"] for verdict in answer["results"]} == {"created"}
    for each in [*(one for one, _, _ in callers), trace_id]:
        platform.wait_for(each, "notify mark")
        (split,) = platform.wait_for(each, "notify split")
        (deliver,) = platform.wait_for(each, "notify deliver")
        (accept,) = platform.wait_for(each, "notify accept")
        assert split.parent_id == deliver.parent_id == accept.span_id
        assert platform.delivered(each, each) == [deliver.span_id]


def test_an_event_of_an_outbox(platform: Platform) -> None:
    cluster = platform.cluster
    shop = cluster.folder / "shop.db"
    trace_id, span_id, header = caller()
    with closing(sqlite3.connect(shop)) as database:
        database.executescript(ddl("sqlite"))
        database.execute(
            "INSERT INTO outbox (event_type, payload, traceparent) VALUES ('order.paid', ?, ?)",
            (json.dumps({"order": trace_id}), header),
        )
        database.commit()
    cluster.environment |= {
        "AGENT_DATABASE_URL": f"sqlite:///{shop}", "AGENT_API_KEY": platform.token,
        "AGENT_INTAKE_URL": cluster.base_url,
    }  # fmt: skip
    platform.run("run_agent", *DAEMONS)
    platform.wait_for(trace_id, "notify mark")
    (accept,) = platform.wait_for(trace_id, "notify accept")
    assert accept.parent_id == span_id
    assert platform.delivered(trace_id, trace_id)
    cluster.stop("run_agent")


def test_a_text_to_the_consumer_of_its_report(platform: Platform) -> None:
    cluster = platform.cluster
    platform.run(SMG, *SMS, *DAEMONS)
    trace_id, span_id, header = caller()
    cluster.kill("sender-a")
    body = {"to": "13800000001", "text": "traced", "account": "shop"}
    (sms,) = platform.post("/api/v1/sms", body, header)["ids"]
    cluster.kill("receiver")
    cluster.kill("forwarder")
    for name in ("sender-a", "receiver", "forwarder"):
        cluster.start(name)
    platform.wait_for(trace_id, "notify mark")
    (accept,) = platform.wait_for(trace_id, "sms accept")
    assert accept.parent_id == span_id
    assert {s.parent_id for n in ("sms wait", "sms submit", "sms report")
            for s in platform.seen.of(trace_id, n)} == {accept.span_id}  # fmt: skip

    def are_linked() -> bool:
        """Also when a busy machine took the Report from the forwarder and gave it once more."""
        reports = {span.span_id for span in platform.spans(trace_id, "sms report")}
        events = platform.spans(trace_id, "notify accept")
        return bool(events) and {event.parent_id for event in events} <= reports

    cluster.wait_until(are_linked, "the Report and its event")
    assert platform.delivered(trace_id, sms)
    code = "from msgplatform.core.tracing import spans; import json; print(json.dumps("
    code += f"[row.trace_id for row in spans.read_contexts([{sms}]).values()]))"
    cluster.wait_until(lambda: cluster.script(code) == [trace_id], "the archive")


def test_a_lead_to_its_crm(platform: Platform) -> None:
    cluster = platform.cluster
    trace_id, span_id, header = caller()
    lead = platform.post("/api/v1/leads", {"appkey": "drive", "name": "Traced"}, header)["id"]
    poller, handler = LEADS
    cluster.start(poller, "after_store_before_queue")
    cluster.wait_until(lambda: cluster.died(poller), "the poller to die")
    cluster.start(poller)
    cluster.start(handler, "after_send_before_mark")
    cluster.wait_until(lambda: cluster.died(handler), "the handler to die")
    cluster.start(handler)
    (send,) = platform.wait_for(trace_id, "lead send")[-1:]
    (accept,) = platform.wait_for(trace_id, "lead accept")
    assert accept.parent_id == span_id
    assert send.parent_id == accept.span_id
    assert send.attributes["messaging.message.id"] == lead
    assert send.error == ""
    with closing(sqlite3.connect(platform.crm)) as crm:
        assert crm.execute("SELECT code, name FROM customer").fetchall() == [(lead, "Traced")]


def test_a_collector_that_hangs(platform: Platform) -> None:
    """Messages go on, memory is bounded, one line is logged, and programs end in time."""
    cluster, seen = platform.cluster, platform.seen
    platform.run(*DAEMONS)
    cluster.stop("run_sender")
    cluster.environment["OTEL_EXPORTER_OTLP_TIMEOUT"] = "500"
    cluster.start("run_sender")
    before, complaints = seen.requests, cluster.said("run_sender").count("traces_not_exported")
    seen.is_answering.clear()
    deliver_traced(platform, 3000)  # more than the queue of spans holds
    sender = psutil.Process(cluster.processes["run_sender"].pid)
    full = sender.memory_info().rss
    deliver_traced(platform, 3000)
    assert sender.memory_info().rss - full < 32 * 2**20
    cluster.wait_until(lambda: seen.requests > before, "a request to the collector")

    def lines() -> int:
        return cluster.said("run_sender").count("traces_not_exported") - complaints

    cluster.wait_until(lines, "the line")
    cluster.wait_until(lambda: figure(platform, "dropped") > 0, "the count of dropped spans")
    cluster.stop("run_sender")  # while the collector hangs
    assert lines() == 1
    seen.is_answering.set()
    exported = figure(platform, "exported")
    trace_id, _, header = caller()
    cluster.start("run_sender")
    body = {"event_type": "order.paid", "payload": {"order": "after"}}
    platform.post("/api/v1/messages", body, header)
    platform.wait_for(trace_id, "notify deliver")
    cluster.wait_until(lambda: figure(platform, "exported") > exported, "the count")


def deliver_traced(platform: Platform, count: int) -> None:
    wanted: set[str] = set()
    while len(wanted) < count:
        items = []
        for trace_id, _, header in (caller() for _ in range(1000)):
            wanted.add(trace_id)
            payload = {"order": trace_id}
            items.append({"event_type": "order.paid", "payload": payload, "traceparent": header})
        platform.post("/api/v1/messages/batch", {"messages": items})

    def is_delivered() -> bool:
        given = (r.headers.get("traceparent", "") for r in list(platform.consumer.requests))
        return wanted <= {text.split("-")[1] for text in given if text}

    platform.cluster.wait_until(is_delivered, "the deliveries")


def figure(platform: Platform, outcome: str) -> int:
    """Spans of all programs, as /metrics has them."""
    with urllib.request.urlopen(platform.cluster.base_url + "/metrics", timeout=60) as answer:
        text = answer.read().decode()
    name = f'msgplatform_trace_spans_total{{outcome="{outcome}"}} '
    (line,) = (line for line in text.splitlines() if line.startswith(name))
    return int(float(line.removeprefix(name)))
