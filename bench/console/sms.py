"""An archive of SMS: messages with their parts and Reports, what handsets sent, user reports."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from bench.console.spread import Spread, mostly_first
from bench.harness.mariadb import digest, numbers
from gateway.models import SgipMt, SmsAccount, SmsGateway
from gateway.pump.retention import ARCHIVE
from msgplatform.core.archive import partitions
from msgplatform.models import Biz

DAYS = 60
TABLES = ("sgip_mt", "sgip_mt_part", "sgip_report", "sgip_mo", "sgip_user_rpt")
_Final = SgipMt.Final
# Recipients, each of whom got some messages.
_USER = "CONCAT('86139', LPAD(n.seq * 7919 MOD 20000, 8, '0'))"
_LOT = "CRC32(n.seq) % 1000"  # decides how a message ends


def number(of: int) -> str:
    """The recipient of the message with this number."""
    return f"86139{of * 7919 % 20_000:08}"


def fill(cursor: Any, rows: int, systems: Sequence[Biz], now: datetime) -> None:
    """Write `rows` messages, the same number of parts, and what else comes with these."""
    accounts, gateways = _cast(systems)
    for months in (3, 0):  # so that there are partitions from the oldest month on
        partitions.prepare(ARCHIVE, now - timedelta(days=30 * months))
    spread = Spread(rows, DAYS, now)
    final = (
        f"CASE WHEN {_LOT} < 930 THEN '{_Final.DELIVERED}' WHEN {_LOT} < 965 THEN "
        f"'{_Final.FAILED}' WHEN {_LOT} < 975 THEN '{_Final.EXPIRED}' WHEN {_LOT} < 980 THEN "
        f"'{_Final.UNKNOWN}' ELSE '{_Final.ACCEPTED}' END"
    )
    of_rows = f"FROM {numbers(1, rows)} n"
    cursor.execute(
        "INSERT INTO sgip_mt (id, biz_id, account_id, gateway_id, sp_number, charge_number, "
        "user_number, corp_id, service_type, fee_type, fee_value, given_value, agent_flag, "
        "morelateto_mt_flag, priority, report_flag, message_coding, text, parts, idempotency_key, "
        "reference, final, result, error_code, error, accepted_at, submitted_at, responded_at, "
        f"reported_at, ended_at, archived_at) SELECT {spread.id()}, "
        f"{mostly_first([account.biz_id for account in accounts])}, "
        f"{mostly_first([account.pk for account in accounts])}, {mostly_first(gateways)}, '10655', "
        f"'', {_USER}, '12345', '', 1, '0', '0', 0, 2, 0, 1, 8, "
        "CONCAT('您的验证码是 ', 100000 + n.seq MOD 900000), 1, "
        f"CONCAT('key-', {digest('n.seq')}), CONCAT('order-', n.seq), {final}, "
        f"IF({_LOT} BETWEEN 930 AND 964, 5, 0), IF({_LOT} BETWEEN 930 AND 964, 5, 0), "
        f"'', {spread.at()}, {spread.at(seconds=1)}, {spread.at(seconds=2)}, "
        f"{spread.at(seconds=5)}, {spread.at(seconds=5)}, {spread.at(seconds=6)} {of_rows}"
    )
    sequence = "3010012345, m.id DIV 4294967296, m.id MOD 4294967296"
    cursor.execute(
        "INSERT INTO sgip_mt_part (id, mt_id, part, node, ts, seqno, user_number, result, state, "
        f"error_code, reported_at) SELECT m.id, m.id, 1, {sequence}, m.user_number, m.result, 0, "
        "m.error_code, m.reported_at FROM sgip_mt m"
    )
    # One in five hundred belongs to no message.
    cursor.execute(
        "INSERT INTO sgip_report (id, mt_id, part, node, ts, seqno, user_number, state, "
        f"error_code, received_at, archived_at) SELECT m.id, IF(CRC32(m.id) % 500, m.id, 0), 1, "
        f"{sequence}, m.user_number, 0, 0, m.reported_at, m.archived_at FROM sgip_mt m "
        f"WHERE m.final = '{_Final.DELIVERED}'"
    )
    _received(cursor, rows, accounts, gateways, now)


def _received(
    cursor: Any, rows: int, accounts: Sequence[SmsAccount], gateways: Sequence[int], now: datetime
) -> None:
    """A tenth as many messages from handsets, and a hundredth as many user reports."""
    count = max(1, rows // 10)
    spread = Spread(count, DAYS, now)
    cursor.execute(
        "INSERT INTO sgip_mo (id, biz_id, account_id, gateway_id, user_number, sp_number, tp_pid, "
        "tp_udhi, message_coding, content, text, parts, missing, sequence, received_at, "
        f"archived_at) SELECT {spread.id()}, {mostly_first([a.biz_id for a in accounts])}, "
        f"{mostly_first([a.pk for a in accounts])}, {mostly_first(gateways)}, {_USER}, '10655', 0, "
        "0, 8, '', CONCAT('退订 ', n.seq), 1, 0, CONCAT('3010012345:', n.seq), "
        f"{spread.at()}, {spread.at(seconds=1)} FROM {numbers(1, count)} n"
    )
    count = max(1, rows // 100)
    spread = Spread(count, DAYS, now)
    cursor.execute(
        "INSERT INTO sgip_user_rpt (id, gateway_id, sp_number, user_number, user_condition, "
        f"sequence, received_at, archived_at) SELECT {spread.id()}, {mostly_first(gateways)}, "
        f"'10655', {_USER}, n.seq MOD 3, CONCAT('3010012345:', n.seq), {spread.at()}, "
        f"{spread.at(seconds=1)} FROM {numbers(1, count)} n"
    )


def _cast(systems: Sequence[Biz]) -> tuple[list[SmsAccount], list[int]]:
    """An account for each of the first ten systems, and two gateways."""
    gateways = [
        SmsGateway.objects.create(
            name=name, host="127.0.0.1", login_name="us", login_password="secret",
            smg_login_name="smg", smg_login_password="secret", corp_id="12345",
        ).pk
        for name in ("unicom", "mobile")
    ]  # fmt: skip
    accounts = [
        SmsAccount.objects.create(
            biz=biz, name=f"{biz.name}-sms", sp_number="10655", corp_id="12345", is_default=True
        )
        for biz in systems[:10]
    ]
    return accounts, gateways
