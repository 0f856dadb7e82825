"""The audit log leaves the platform as a chain: no line lost, none changed unseen."""

import base64
import gzip
import io
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from structlog.testing import capture_logs

from msgplatform.company.audit_export import exporter, lines
from msgplatform.company.audit_export.exporter import Exporter, NotTaken
from msgplatform.company.audit_export.lines import Chain
from msgplatform.company.audit_export.models import AuditExport
from msgplatform.core.daemons import thread_loop
from msgplatform.core.data import sql
from msgplatform.jobs.bulk import BulkRunner
from msgplatform.jobs.models import BulkJob
from msgplatform.models import Alert, AuditLog
from msgplatform.operation import doctor
from tests.support.children import child
from tests.support.http_sinks import Sink, answering, slow

pytestmark = pytest.mark.django_db(transaction=True)

OLD_KEY, KEY = (base64.urlsafe_b64encode(bytes([n]) * 32).decode() for n in (1, 2))
REFUSED = b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture(autouse=True)
def _settings(settings: Any) -> None:
    settings.AUDIT_EXPORT, settings.AUDIT_SIGNING_KEYS = "stdout", (KEY,)
    settings.OUTBOUND_ALLOW = ["127.0.0.0/8"]


def entries(count: int, **values: Any) -> list[int]:
    return [
        AuditLog.objects.create(
            actor="ann", action="consumer_changed", target=f"仓库 {n}",
            detail={"changes": {"url": ["https://a.example/", f"https://b.example/{n}"]}}, **values,
        ).pk
        for n in range(count)
    ]  # fmt: skip


def export() -> None:
    """Turns until nothing waits."""
    worker = Exporter()
    while worker.turn() == 0.0 or AuditLog.objects.filter(line=None).exists():
        pass


def numbers(texts: Sequence[str]) -> list[int]:
    return [json.loads(text)["line"] for text in texts]


def verify(*files: Path | str, **options: Any) -> tuple[int, str]:
    """Exit code and output of the command."""
    output = io.StringIO()
    try:
        call_command("verify_audit", *map(str, files), stdout=output, **options)
    except CommandError as error:
        return error.returncode, output.getvalue() + str(error)
    return 0, output.getvalue()


@pytest.fixture
def written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> list[bytes]:
    """Ten lines of a chain."""
    entries(10)
    export()
    return capsys.readouterr().out.encode().splitlines(keepends=True)


def of(folder: Path, rows: Sequence[bytes], name: str = "audit.log") -> Path:
    path = folder / name
    path.write_bytes(b"".join(rows))
    return path


# -- what a line says ----------------------------------------------------------------------------
def test_each_entry_becomes_a_line_that_is_known_in_the_console(
    written: list[bytes], admin_client: Client
) -> None:
    said = [json.loads(line) for line in written]
    rows = list(AuditLog.objects.order_by("id"))
    assert [each["line"] for each in said] == [row.line for row in rows] == list(range(1, 11))
    for each, row in zip(said, rows, strict=True):
        assert (each["actor"], each["action"], each["target"]) == (
            row.actor,
            row.action,
            row.target,
        )
        assert each["detail"] == row.detail
        assert each["at"] == row.at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    shown = admin_client.get(f"/admin/msgplatform/auditlog/{rows[6].pk}/change/")
    assert "<dd>7</dd>" in shown.content.decode()


def test_a_long_entry_leaves_its_detail_out(capsys: pytest.CaptureFixture[str]) -> None:
    detail = {"text": "x" * 2 * lines.MAX_BYTES}
    AuditLog.objects.create(actor="ann", action="a", target="t", detail=detail)
    export()
    (text,) = capsys.readouterr().out.splitlines()
    assert len(text) < lines.MAX_BYTES
    assert json.loads(text)["detail"]["left_out"] > lines.MAX_BYTES


def of_key(line: bytes, value: str) -> bytes:
    """The line with this in place of its key's name."""
    before, _key, after = line.partition(b'"key":"')
    return before + b'"key":' + value.encode() + after[after.index(b'"') + 1 :]


# -- the verifier --------------------------------------------------------------------------------
def test_a_whole_chain_in_rotated_and_compressed_files(
    written: list[bytes], tmp_path: Path
) -> None:
    older = tmp_path / "audit.log.2.gz"
    older.write_bytes(gzip.compress(b"".join(written[:4])))
    newer = of(tmp_path, written[4:])
    code, text = verify(older, newer, first=1, last=10)
    assert (code, "10 lines, 1 to 10" in text) == (0, True), text
    assert verify(newer)[0] == 0, "older files may be gone"
    assert verify(newer, first=1) == (1, verify(newer, first=1)[1])
    assert "lines 1 to 4 are missing" in verify(newer, first=1)[1]
    assert verify(newer, older)[0] == 1, "the wrong order"
    damaged = tmp_path / "damaged.gz"
    packed = older.read_bytes()
    for content in (packed[:-20], packed[:10] + b"\xff" + packed[11:]):
        damaged.write_bytes(content)
        code, text = verify(damaged, newer)
        assert (code, "damaged" in text) == (1, True), text


def test_one_changed_byte_is_seen_wherever_it_is(written: list[bytes]) -> None:
    keys = {lines.Signer(KEY).key_name: lines.Signer(KEY).public_key}
    line = written[4].rstrip(b"\n")
    for place in range(len(line)):
        changed = bytearray(line)
        changed[place] ^= 1
        chain = Chain(keys)
        chain.read("audit.log", [*written[3:4], bytes(changed), *written[5:6]])
        chain.end()
        assert any(fault.startswith("audit.log:2: ") for fault in chain.faults), place


def test_what_is_left_out_swapped_or_cut_is_named(written: list[bytes], tmp_path: Path) -> None:
    w = written
    other = w[4].replace(b"ann", b"bob")
    for rows, fault in (
        ([*w[:4], *w[5:]], "line 5 is missing"),
        ([*w[:2], *w[7:]], "lines 3 to 7 are missing"),
        ([*w[:4], w[5], w[4], *w[6:]], "audit.log:6: line 5 comes after line 6"),
        ([*w[:9], w[9][:200]], "audit.log:10: a line is cut off"),
        ([*w[:4], other, *w[5:]], "audit.log:5: line 5 was changed"),
        ([*w[:4], w[4][:90] + w[4][91:], *w[5:]], "audit.log:5: "),
        ([*w[:4], of_key(w[4], "[]"), *w[5:]], "audit.log:5: line 5 was changed: it is no JSON"),
        ([*w[:9], of_key(w[9], "[" * 100_000)], "audit.log:10: a line was changed"),
        ([b"{}\n", *w], "audit.log:1: is no line of the audit log"),
    ):
        code, text = verify(of(tmp_path, rows))
        assert (code, fault in text, "Faults: 1" in text) == (1, True, True), (fault, text)
    code, text = verify(of(tmp_path, w[:7]))
    assert (code, "after line 7" in text) == (0, True), "the end cannot tell by itself"
    code, text = verify(of(tmp_path, w[:7]), last=10)
    assert (code, "lines 8 to 10 are missing" in text) == (1, True), text
    assert verify(of(tmp_path, []))[0] == 1
    assert verify(tmp_path / "none.log")[0] == 2
    assert verify()[0] == 2


def test_lines_that_come_again_are_no_fault(written: list[bytes], tmp_path: Path) -> None:
    rows = [*written[:6], *written[3:6], *written[6:], *written[:2]]
    code, text = verify(of(tmp_path, rows))
    assert (code, "10 lines, 1 to 10, 5 came again" in text) == (0, True), text


def test_a_second_content_for_a_line_is_named(
    written: list[bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As after a restore of a backup, which does not have the last lines."""
    before = json.loads(written[6])["previous"]
    AuditExport.objects.update(line=6, last_hash=before)
    entries(2)
    export()
    again = capsys.readouterr().out.encode().splitlines(keepends=True)
    assert numbers([line.decode() for line in again]) == [7, 8]
    code, text = verify(of(tmp_path, [*written, *again]))
    assert (code, "line 7 is there twice, with different content" in text) == (1, True), text
    assert verify(of(tmp_path, [*written[:6], *again]))[0] == 0
    code, text = verify(of(tmp_path, [*written[:7], again[1]]))
    assert (code, "line 8 does not follow line 7" in text) == (1, True), text


def test_other_lines_are_skipped_if_the_files_are_mixed(
    written: list[bytes], tmp_path: Path
) -> None:
    rows = [b"Nov 26 03:00:00 host cron: x\n"]
    rows += [b"Nov 26 03:00:01 host msgplatform-audit: " + line for line in written]
    assert verify(of(tmp_path, rows), mixed=True)[0] == 0
    assert verify(of(tmp_path, rows))[0] == 1


def test_keys_are_rotated_and_passed_on(
    written: list[bytes], tmp_path: Path, settings: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.AUDIT_SIGNING_KEYS = (OLD_KEY, KEY)  # the first signs from now on
    entries(2)
    export()
    rows = [*written, *capsys.readouterr().out.encode().splitlines(keepends=True)]
    assert verify(of(tmp_path, rows))[0] == 0
    public = verify(show_public_keys=True)[1].split()
    settings.AUDIT_SIGNING_KEYS = ()
    path = of(tmp_path, rows)
    assert verify(path)[0] == 2, "no key"
    assert verify(path, public_key=public)[0] == 0
    code, text = verify(path, public_key=public[1:])
    assert (code, "line 11 is signed with the key" in text) == (1, True), text
    assert verify(path, public_key=["x"])[0] == 2


def test_wrong_settings_are_named(settings: Any) -> None:
    def ids() -> set[str]:
        return {message.id for message in run_checks(tags=["msgplatform"])}

    assert not ids() & {"msgplatform.E013", "msgplatform.E014"}
    settings.AUDIT_SIGNING_KEYS = ()  # on every machine but that of run_bulk
    assert ids() == set()
    assert any("run_bulk does not start here" in found.what for found in doctor.examine())
    with pytest.raises(CommandError, match="AUDIT_SIGNING_KEY is not"):
        BulkRunner()
    settings.AUDIT_SIGNING_KEYS = (KEY, "short")
    assert "msgplatform.E013" in ids()
    for wrong in ("file", "syslog://", "syslog://a..b", "ftp://a.example/", "https://"):
        settings.AUDIT_EXPORT = wrong
        assert "msgplatform.E014" in ids(), wrong


# -- at least once, in order ---------------------------------------------------------------------
EXPORT = """
from msgplatform.company.audit_export import exporter
exporter.LEASE_SECONDS = {lease}
worker = exporter.Exporter()
{prelude}
for _ in range({turns}):
    worker.turn()
"""
CHILD = {"AUDIT_SIGNING_KEY": KEY, "AUDIT_EXPORT": "stdout"}


@pytest.mark.parametrize("point", ["before_hand_over", "after_hand_over"])
def test_a_killed_exporter_loses_nothing(
    point: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries(150)  # two batches
    program = EXPORT.format(lease=0.0, prelude="", turns=20)
    with child(program, **CHILD, MSGPLATFORM_FAILPOINT=f"audit_{point}:2") as killed:
        assert killed.process.stdout
        out = killed.process.stdout.read().decode()
        assert killed.ended() == -signal.SIGKILL
    assert AuditExport.objects.get().line == 150
    entries(3)
    export()
    rows = (out + capsys.readouterr().out).encode().splitlines(keepends=True)
    code, text = verify(of(tmp_path, rows), first=1, last=153)
    assert code == 0, text
    assert ("50 came again" in text) == (point == "after_hand_over"), text


def test_several_exporters_at_once_make_one_chain(tmp_path: Path, settings: Any) -> None:
    """Also while people go on changing things, in transactions that end late."""
    with Sink(answering()) as sink:
        settings.AUDIT_EXPORT = sink.url()
        prelude = """
def work(number):
    from django.db import transaction
    from msgplatform.models import AuditLog
    if number:
        for n in range(40):
            with transaction.atomic():
                AuditLog.objects.create(actor=f"{number}", action="a", target=f"{n}")
        return 0
    worker = exporter.Exporter()
    while AuditLog.objects.exclude(line=None).count() < 80 or worker.turn() == 0.0:
        worker.turn()
    return 1
together(work, 3)
"""
        program = EXPORT.format(lease=60.0, prelude=prelude, turns=0)
        environment = {**CHILD, "AUDIT_EXPORT": sink.url(), "OUTBOUND_ALLOW": "127.0.0.0/8"}
        with child(program, **environment) as one, child(program, **environment) as two:
            assert sorted(one.heard()) == sorted(two.heard()) == [0, 0, 1]
        export()
        rows = [line + b"\n" for seen in sink.requests for line in seen.body.split(b"\n") if line]
    code, text = verify(of(tmp_path, rows), first=1, last=160)
    assert code == 0, text
    assert AuditLog.objects.count() == AuditLog.objects.exclude(line=None).count() == 160


def test_an_entry_that_commits_late_is_not_missed(capsys: pytest.CaptureFixture[str]) -> None:
    early = entries(1)[0]
    (late,) = entries(1)
    AuditLog.objects.filter(pk=early).delete()
    export()
    AuditLog.objects.create(pk=early, actor="slow", action="a", target="t")  # a smaller id
    export()
    actors = [json.loads(text)["actor"] for text in capsys.readouterr().out.splitlines()]
    assert actors == ["ann", "slow"]
    assert AuditLog.objects.get(pk=late).line == 1


def test_a_lost_lease_changes_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process stands still while it hands over; another takes its lines, and it goes on later."""
    entries(5)
    slow, hand_over = Exporter(), exporter.hand_over
    Exporter().turn()  # makes the row

    def stand_still(texts: Sequence[str], *address: Any) -> None:
        monkeypatch.setattr(exporter, "hand_over", hand_over)
        AuditExport.objects.update(lease_until=sql.now() - timedelta(seconds=1))
        entries(5)
        export()
        hand_over(texts, *address)

    monkeypatch.setattr(exporter, "hand_over", stand_still)
    slow.turn()
    state = AuditExport.objects.get()
    assert (state.line, state.pending) == (10, "")
    path = of(tmp_path, capsys.readouterr().out.encode().splitlines(keepends=True))
    code, text = verify(path, first=1, last=10)
    assert code == 0, text


# -- targets that fail ---------------------------------------------------------------------------
def test_what_is_refused_waits_with_an_alert_and_comes_later(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.AUDIT_EXPORT_TOKEN = "the-token"
    entries(3)
    with Sink(answering(REFUSED)) as refusing:
        settings.AUDIT_EXPORT = refusing.url()
        worker = Exporter()
        worker.turn()
        for _ in range(2):
            with pytest.raises(NotTaken, match="HTTP 500"):
                worker.turn()
        assert not Alert.objects.exists(), "it may be over in a moment"
        long_ago = sql.now() - timedelta(hours=1)
        AuditExport.objects.update(moved_at=long_ago)
        AuditLog.objects.update(at=long_ago)
        with pytest.raises(NotTaken):
            worker.turn()
    alert = Alert.objects.get()
    assert (alert.kind, alert.open_key) == ("platform.audit", "platform.audit")
    assert "HTTP 500" in alert.text
    assert "the-token" not in repr(alert.__dict__)
    bodies = {seen.body for seen in refusing.requests}
    assert len(bodies) == 1, "the same lines each time"
    with Sink(answering()) as taking:
        settings.AUDIT_EXPORT = taking.url()
        export()
        Exporter().turn()
    (seen,) = taking.requests
    assert seen.body in bodies
    assert seen.headers["authorization"] == "Bearer the-token"
    assert seen.headers["content-type"] == "application/x-ndjson"
    assert not Alert.objects.exclude(open_key=None).exists()


def test_a_fresh_entry_waits_without_an_alert_after_a_quiet_time(settings: Any) -> None:
    entries(1)
    export()
    AuditExport.objects.update(moved_at=sql.now() - timedelta(hours=9))
    entries(3)
    AuditLog.objects.filter(line=None).update(at=sql.now() - timedelta(minutes=1))
    with Sink(answering(REFUSED)) as refusing:
        settings.AUDIT_EXPORT = refusing.url()
        worker = Exporter()
        for _ in range(2):
            with pytest.raises(NotTaken, match="HTTP 500"):
                worker.turn()
        assert not Alert.objects.exists()
        AuditLog.objects.filter(line=2).update(at=sql.now() - timedelta(hours=1))
        with pytest.raises(NotTaken):
            worker.turn()
    assert Alert.objects.exists(), "the first of those that wait"


def test_a_target_that_hangs_holds_up_nothing(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries(3)
    with Sink(slow(3600.0)) as hanging:
        settings.AUDIT_EXPORT = hanging.url()
        monkeypatch.setattr(exporter, "EVERY_SECONDS", 0.05)
        runner = BulkRunner()
        runner.start()
        deadline = time.monotonic() + 120
        while not hanging.busy:
            assert time.monotonic() < deadline, "nothing was handed over"
            time.sleep(0.02)
        job = BulkJob.objects.create(flow="nothing", action="resend", created_by="ann")
        with pytest.raises(ValueError, match="no flow named nothing"):
            runner.turn()  # jobs go on
        job.refresh_from_db()
        assert job.state == BulkJob.State.FAILED
        runner.stop()
        monkeypatch.setattr(exporter, "TIMEOUT_SECONDS", 1.0)
        AuditExport.objects.update(claimed_by="", lease_until=None)
        with pytest.raises(NotTaken, match=r"127\.0\.0\.1"):
            Exporter().turn()
    with socket.create_server(("127.0.0.1", 0)) as nobody:  # accepts nothing
        settings.AUDIT_EXPORT = f"syslog://127.0.0.1:{nobody.getsockname()[1]}"
        with pytest.raises(NotTaken, match="timed out"):
            Exporter().turn()
    assert len(AuditExport.objects.get().pending.splitlines()) == 3


def test_a_target_that_refuses_is_no_standstill(settings: Any) -> None:
    entries(1)
    export_thread, deadline = exporter.ExportThread(), time.monotonic() + 120
    with Sink(answering(REFUSED)) as refusing, capture_logs() as log:
        settings.AUDIT_EXPORT = refusing.url()
        export_thread.start()
        try:
            while len(refusing.requests) < 2:
                assert time.monotonic() < deadline, "nothing was handed over twice"
                time.sleep(0.02)
            parts = list(thread_loop.standstills)
            settings.AUDIT_EXPORT = "stdout"
            while AuditExport.objects.get().pending:
                Exporter().turn()  # as another process, whose target takes it
            while [line["event"] for line in log][-1] != "audit_export_goes_on":
                assert time.monotonic() < deadline, "nothing says that it was handed over"
                time.sleep(0.02)
        finally:
            export_thread.stop()
    assert "audit-export" not in parts
    assert len(log) == 2


def test_nothing_leaves_while_outbound_is_off(
    settings: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.OUTBOUND = False
    entries(2)
    worker = Exporter()
    worker.turn()
    assert worker.turn() is None
    assert capsys.readouterr().out == ""
    assert AuditLog.objects.filter(line=None).count() == 2


def test_an_idle_turn_writes_nothing() -> None:
    entries(1)
    export()
    worker = Exporter()
    worker.turn()
    with CaptureQueriesContext(connection) as captured:
        worker.turn()
    assert [q["sql"].split()[0] for q in captured] == ["SELECT", "SELECT"]


def test_off_is_free(settings: Any) -> None:
    settings.AUDIT_EXPORT = ""
    threads = threading.enumerate()
    export_thread = exporter.ExportThread()
    export_thread.start()
    assert threading.enumerate() == threads
    export_thread.stop()


# -- syslog --------------------------------------------------------------------------------------
@pytest.fixture
def server() -> Iterator[tuple[int, Callable[[], bytes]]]:
    """A syslog server that reads each connection to its end: its port, and what it has read."""
    listener = socket.create_server(("127.0.0.1", 0))
    read: list[bytes] = []

    def serve() -> None:
        while True:
            try:
                accepted, _ = listener.accept()
            except OSError:
                return
            with accepted:
                while part := accepted.recv(65536):
                    read.append(part)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1], lambda: b"".join(read)
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(60)


def test_syslog_over_tcp(
    server: tuple[int, Callable[[], bytes]], settings: Any, tmp_path: Path
) -> None:
    port, read = server
    settings.AUDIT_EXPORT = f"syslog://127.0.0.1:{port}"
    entries(120)
    export()
    rows = read().splitlines(keepends=True)
    assert all(row.startswith(b"<110>1 - ") for row in rows)
    code, text = verify(of(tmp_path, rows), first=1, last=120)
    assert code == 0, text


def test_a_syslog_server_that_sends_without_end_has_taken_nothing(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, "TIMEOUT_SECONDS", 1.0)
    entries(1)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def send() -> None:
            accepted, _ = listener.accept()
            end = time.monotonic() + 60
            with accepted, suppress(OSError):
                while time.monotonic() < end:
                    accepted.sendall(bytes(4096))

        thread = threading.Thread(target=send)
        thread.start()
        settings.AUDIT_EXPORT = f"syslog://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(NotTaken, match="does not close the connection"):
            export()
        thread.join()


def test_syslog_over_the_local_socket(settings: Any, tmp_path: Path) -> None:
    folder = Path(os.environ.get("TMPDIR", "/tmp"))  # a short path
    path = folder / f"audit-{os.getpid()}.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
        try:
            settings.AUDIT_EXPORT = f"syslog://{path}"
            entries(5)
            export()
            rows = [listener.recv(65536) + b"\n" for _ in range(5)]
        finally:
            path.unlink()
    assert all(row.startswith(b"<110>msgplatform-audit: {") for row in rows)
    assert verify(of(tmp_path, rows), first=1, last=5)[0] == 0
    entries(1)
    with pytest.raises(NotTaken, match="No such file"):
        export()


def test_a_rolled_back_entry_has_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    with transaction.atomic():
        entries(1)
        transaction.set_rollback(True)
    entries(1)
    export()
    assert numbers(capsys.readouterr().out.splitlines()) == [1]
