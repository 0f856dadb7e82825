"""Benches of SMS on their own servers, and what makes one fail instead of giving a figure."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from bench.gateway import sgip, sgip_messages, sms_messages, sms_rows
from bench.gateway.sgip_sp import submit
from bench.harness.processes import BenchFailed
from bench.references.framed_echo import echo_frames
from bench.references.kannel import center
from gateway.models import SgipMt
from gateway.sgip import Report, ReportResp, SubmitResp
from tests.programs.bench.bench_command import bench, measured_or_left_out


class TestSgip:
    SEQUENCE = (3010012345, 1121083000, 7)

    @pytest.mark.full
    def test_echoes_are_measured(self) -> None:
        result = bench("sgip", "--seconds", "0.3", "--database", "sqlite")
        assert set(result["against"]) == {"framed-echo", "framed-echo-streams"}
        assert min(result["rate"], *result["against"].values()) > 0
        assert result["rss_of"] == ["smg", "sp"]
        assert sum(result["cpu_us"]["ours"][end] for end in ("smg", "sp")) > 0

    def test_the_echoes_frames_have_the_sizes_of_ours(self) -> None:
        user = sgip_messages.user(5)
        report = Report(self.SEQUENCE, self.SEQUENCE, 0, user, 0, 0)
        ours = [submit(self.SEQUENCE, 5), report]
        echoed = [echo_frames.submit(5), echo_frames.report(5)]
        assert [len(each.encode()) for each in ours] == list(map(len, echoed))
        for response in (SubmitResp(self.SEQUENCE), ReportResp(self.SEQUENCE)):
            assert len(response.encode()) == len(echo_frames.response(5))

    @pytest.mark.parametrize(
        "seen", [[0], [0, 1, 1], [0, 2]], ids=["lost", "twice", "another number"]
    )
    def test_records(self, seen: list[int], tmp_path: Path) -> None:
        def written(numbers: list[int]) -> Counter[int]:
            records = sgip_messages.Records()
            for number in numbers:
                records.add(sgip_messages.record(number, sgip_messages.content(number)))
            records.write(tmp_path / "seen")
            return sgip_messages.read(tmp_path / "seen")

        sgip.same("ours", "Submits", written([1, 0]), written([0, 1]))
        with pytest.raises(BenchFailed, match="Submits"):
            sgip.same("ours", "Submits", written(seen), written([0, 1]))


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def frames(self) -> Iterator[tuple[int, int, bytes]]:
        """Command, sequence and body of each."""
        data = self.written
        while data:
            length, command, _, sequence = center.HEADER.unpack_from(data)
            yield command, sequence, data[16:length]
            data = data[length:]


class TestSms:
    @pytest.mark.full
    def test_all_sides_take_every_message_all_the_way(self) -> None:
        result = bench("sms", "--seconds", "0.5")
        references = {"single-reports", "naive", "naive-least", "kannel"}
        assert measured_or_left_out(result) == references
        assert min(result["rate"], *result["against"].values()) > 0
        assert {"web", "run_sms_sender", "run_sms_receiver", "run_report_forwarder",
                "run_data_pump", "run_maker"} <= set(result["rss_of"])  # fmt: skip
        # Not that it used any: CPU is counted in hundredths of a second.
        assert set(result["load_cpu"]) == {"ours", *result["against"]}

    def test_the_center_answers_split_and_joined_frames(self) -> None:
        """A submit_sm as Kannel sends it: its answer, and a receipt with its number behind."""
        submit = bytes.fromhex(
            "00020131303635353030310001013133383030303030303037000300000000010008000400480069"
        )
        assert center.read_submit(submit) == (b"10655001", b"13800000007", b"\0H\0i")
        frames = center.pdu(center.BIND_TRANSCEIVER, 1) + center.pdu(center.SUBMIT_SM, 2, submit)
        transport = Transport()
        connection = center.Center()
        connection.connection_made(transport)
        for byte in frames:
            connection.data_received(bytes([byte]))
        connection.data_received(frames)
        answers = list(transport.frames())
        assert [command for command, _, _ in answers] == 2 * [
            center.BIND_TRANSCEIVER | center.RESPONSE,
            center.SUBMIT_SM | center.RESPONSE,
            center.DELIVER_SM,
        ]
        message = answers[1][2].rstrip(b"\0")
        source, destination, text = center.read_submit(answers[2][2])
        assert (source, destination) == (b"13800000007", b"10655001")
        assert text.startswith(b"id:%s sub:001" % message)
        assert b"stat:DELIVRD" in text

    @pytest.fixture
    def archived(self, db: None) -> dict[int, int]:
        """Two messages in the archive; id → number."""
        accepted = {11: 0, 12: 1}
        now = timezone.now()
        for row_id, number in accepted.items():
            SgipMt.objects.create(
                id=row_id, biz_id=1, account_id=1, gateway_id=1, fee_type=1, agent_flag=0,
                morelateto_mt_flag=2, priority=0, report_flag=1, accepted_at=now, archived_at=now,
                user_number=f"86{sms_messages.recipient(number)}", final="delivered",
                text=sms_messages.text(number), reference=sms_messages.key("a", number),
            )  # fmt: skip
        return accepted

    def test_the_archive(self, archived: dict[int, int]) -> None:
        sms_rows.check_archive(archived, "a")
        with pytest.raises(BenchFailed, match="2 were found, 3 were expected"):
            sms_rows.check_archive({**archived, 13: 2}, "a")
        with pytest.raises(BenchFailed, match="12"):
            sms_rows.check_archive({11: 0, 13: 1}, "a")
        SgipMt.objects.filter(id=11).update(final="unknown")
        with pytest.raises(BenchFailed, match="unknown"):
            sms_rows.check_archive(archived, "a")

    @pytest.mark.parametrize(
        ("ids", "state"), [([11], "delivered"), ([11, 12, 12], "delivered"), ([11, 12], "failed")],
        ids=["lost", "twice", "another ending"],
    )  # fmt: skip
    def test_what_was_heard(self, ids: list[int], state: str, tmp_path: Path) -> None:
        accepted = {11: 0, 12: 1}

        def entry(row_id: int, state: str) -> dict[str, Any]:
            number = accepted[row_id]
            return {
                "id": str(row_id), "reference": sms_messages.key("a", number), "state": state,
                "to": f"86{sms_messages.recipient(number)}", "error_code": 0, "parts": 1,
            }  # fmt: skip

        def body(row_id: int, state: str) -> str:
            return json.dumps({"type": "sms.report", "data": entry(row_id, state)}) + "\n"

        file = tmp_path / "heard"
        file.write_text("".join(body(row_id, "delivered") for row_id in accepted))
        sms_rows.check_heard(file, accepted, "a")
        data = {"reports": [entry(row_id, "delivered") for row_id in accepted]}
        file.write_text(json.dumps({"type": "sms.reports", "data": data}))
        sms_rows.check_heard(file, accepted, "a")
        file.write_text("".join(body(row_id, state) for row_id in ids))
        with pytest.raises(BenchFailed):
            sms_rows.check_heard(file, accepted, "a")

    @pytest.mark.parametrize(
        "lines", [[(1, 0)], [(1, 0), (2, 1), (3, 1)], [(1, 0), (1, 1)]],
        ids=["lost", "twice", "one sequence for two"],
    )  # fmt: skip
    def test_what_the_gateway_took(self, lines: list[tuple[int, int]], tmp_path: Path) -> None:
        def written(pairs: list[tuple[int, int]]) -> Path:
            file = tmp_path / "accepted.log"
            file.write_text(
                "".join(f"3:4:{n}\t86{sms_messages.recipient(m)}\t1/1\t0\n" for n, m in pairs)
            )
            return file

        accepted = {11: 0, 12: 1}
        sms_rows.check_submitted(written([(1, 0), (2, 1)]), accepted)
        with pytest.raises(BenchFailed):
            sms_rows.check_submitted(written(lines), accepted)
