"""Where a trace id is shown, how long it is kept, and what traces cost while they are off."""

import os
import re
import subprocess
import sys
import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from pytest_django import Settings

from msgplatform import env
from msgplatform.core.data import ids
from msgplatform.core.tracing import exemplars, figures, spans
from msgplatform.core.tracing.context import Context
from msgplatform.core.tracing.exemplars import Observation
from msgplatform.jobs import upkeep
from msgplatform.jobs.bulk import old_traces
from msgplatform.jobs.upkeep import DeletedRows
from msgplatform.models import Alert, Biz, MessageTrace
from msgplatform.monitor.watch import servers
from notify.maker.maker import Maker
from tests.support.notify_rows import publish, subscription
from tests.support.otlp_receiver import receiver

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CONTEXT = Context(TRACE, "00f067aa0ba902b7")
COLLECTOR = "http://127.0.0.1:9"
PROGRAMS = (
    "notify.maker.maker", "notify.sender.sender", "notify.marker.marker", "notify.api.views",
    "gateway.intake.accept", "gateway.sender.sender", "gateway.receiver.receiver",
    "gateway.forwarder.forwarder", "gateway.pump.pump", "crmsync.poller.poller",
    "crmsync.handler.handler", "msgplatform.jobs.bulk", "msgplatform.doors.web.application",
    "msgplatform.monitor.metrics", "notify.agent.relay",
)  # fmt: skip


@pytest.fixture
def traced(settings: Settings) -> int:
    """A message that is traced; its id."""
    settings.OTEL_EXPORTER_OTLP_ENDPOINT = COLLECTOR
    settings.OTEL_TRACES_SAMPLER_ARG = 0.0
    row = subscription(Biz.objects.create(name="orders"), "warehouse")
    (pk,) = publish(row.biz)
    spans.store_contexts({pk: CONTEXT})
    return pk


def test_the_page_of_a_message_names_its_trace(
    admin_client: Client, traced: int, settings: Settings
) -> None:
    address = f"/console/notify/{traced}"
    assert f"<dd>{TRACE}</dd>" in admin_client.get(address).content.decode()
    settings.TRACE_URL = "https://traces.example.com/trace/{trace_id}?from=msgplatform"
    link = f'<a href="https://traces.example.com/trace/{TRACE}?from=msgplatform">{TRACE}</a>'
    assert link in admin_client.get(address).content.decode()
    (other,) = publish(Biz.objects.get(name="orders"))
    assert "Trace" not in admin_client.get(f"/console/notify/{other}").content.decode()


def test_off_no_statement_reads_a_trace(
    admin_client: Client, traced: int, settings: Settings
) -> None:
    settings.OTEL_EXPORTER_OTLP_ENDPOINT = ""
    with CaptureQueriesContext(
        connection,
    ) as queries:
        publish(Biz.objects.get(name="orders"))
        Maker().turn()
        shown = admin_client.get(f"/console/notify/{traced}").content.decode()
    assert TRACE not in shown
    assert not [q["sql"] for q in queries.captured_queries if "message_trace" in q["sql"]]


@pytest.mark.usefixtures("traced")
def test_histograms_have_exemplars(client: Client, settings: Settings, work_redis: Any) -> None:
    settings.METRICS_TOKEN = "token"
    key = {"authorization": "Bearer token"}
    exemplars.note([Observation("notify_delivery_seconds", (), "0.25", 0.2, TRACE)])
    work_redis.hset("platform:exemplars", "x", "1")  # of another program
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    answer = client.get("/metrics", headers={"accept": accept, **key})
    assert answer["Content-Type"].startswith("application/openmetrics-text")
    samples = [
        sample
        for family in text_string_to_metric_families(answer.content.decode())
        for sample in family.samples
        if sample.exemplar
    ]
    (sample,) = samples
    assert sample.name == "msgplatform_notify_delivery_seconds_bucket"
    assert sample.labels["le"] == "0.25"
    assert (sample.exemplar.labels, sample.exemplar.value) == ({"trace_id": TRACE}, 0.2)
    plain = client.get("/metrics", headers=key)
    assert plain["Content-Type"].startswith("text/plain")
    assert TRACE not in plain.content.decode()


def test_one_alert_while_programs_cannot_export() -> None:
    tally = figures.Tally()
    tally.failure = "HTTP 503"
    tally.report()
    servers.report_traces()
    servers.report_traces()
    (alert,) = Alert.objects.filter(kind="platform.traces")
    assert re.fullmatch(r"1 programs, among them .+:\d+: HTTP 503\. Messages go on\.", alert.text)
    assert alert.open_key
    tally.failure = ""
    tally.report()
    servers.report_traces()
    assert not Alert.objects.get(pk=alert.pk).open_key


def test_a_trace_is_forgotten_after_its_days(settings: Settings) -> None:
    settings.TRACE_DAYS = 2
    days = [ids.first_id_at(timezone.now() - timedelta(days=number)) for number in (3, 1)]
    spans.store_contexts(dict.fromkeys(days, CONTEXT))
    assert not DeletedRows(old_traces).turn()
    assert list(MessageTrace.objects.values_list("id", flat=True)) == days[1:]


def test_many_old_traces_are_work_for_the_next_turn(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.TRACE_DAYS = 2
    monkeypatch.setattr(upkeep, "CHUNK", 2)
    first = ids.first_id_at(timezone.now() - timedelta(days=3))
    spans.store_contexts(dict.fromkeys(range(first, first + 3), CONTEXT))
    traces = DeletedRows(old_traces)
    assert [traces.turn() for _ in range(3)] == [True, False, False]
    assert not MessageTrace.objects.exists()


def test_off_no_program_loads_opentelemetry() -> None:
    code = "import django, importlib, sys; django.setup()\n"
    code += f"for name in {PROGRAMS}: importlib.import_module(name)\n"
    code += "print([n for n in sys.modules if n.startswith('opentelemetry') and sys.modules[n]])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=env.BASE_DIR, env=dict(os.environ), check=True,
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.stdout.strip() == "[]"


LAST_SPANS = """
import django, multiprocessing, os, sys
django.setup()
from msgplatform.core.tracing import spans

def work(name):
    spans.record(name, None, spans.now())
    # Loaded by the first span; its collector may be busy, too.
    sys.modules["msgplatform.operation.trace_export.export"].FLUSH_SECONDS = 60.0

if __name__ == "__main__":
    child = multiprocessing.get_context("fork").Process(target=work, args=["of a web worker"])
    child.start()
    child.join()
    work("of a daemon")
"""


def test_a_collector_that_rejects_spans_and_asks_to_wait(settings: Settings) -> None:
    code = "import django, time; django.setup()\nfrom msgplatform.core.tracing import spans\n"
    code += "for name in 'abc': spans.record(name, None, spans.now())\ntime.sleep(600)"
    with receiver() as seen:
        seen.rejected, seen.retry_after = 1, 3
        environment = {
            **os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": seen.url, "REDIS_URL": settings.REDIS_URL
        }  # fmt: skip
        with subprocess.Popen(
            [sys.executable, "-c", code], cwd=env.BASE_DIR, env=environment,
            stderr=subprocess.PIPE, text=True,
        ) as program:  # fmt: skip
            while seen.requests < 2:
                assert program.poll() is None
                time.sleep(0.01)
            settings.OTEL_EXPORTER_OTLP_ENDPOINT = COLLECTOR
            while not all(counts := [sample.value for sample in figures.samples()]):
                time.sleep(0.01)
            program.terminate()
            _, log = program.communicate()
    assert seen.moments[1] - seen.moments[0] > 2.5
    assert counts == [2, 1], log  # exported, dropped


def test_a_program_that_ends_hands_over_its_last_spans(settings: Settings) -> None:
    """A web worker ends as a child of multiprocessing, another program as Python does."""
    with receiver() as seen:
        environment = {
            **os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": seen.url,
            "REDIS_URL": settings.REDIS_URL, "OTEL_SERVICE_NAME": "platform",
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", LAST_SPANS], cwd=env.BASE_DIR, env=environment, check=False,
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        assert [span.name for span in seen.spans] == ["of a web worker", "of a daemon"]
