"""One row at a time: save the message in the archive, delete its keys.

With `--rows` its Submit and its Report are rows of their own, as in ours.
"""

import sys
from datetime import UTC, datetime

from bench.harness.programs import worker
from bench.references.naive_sms import table
from bench.references.naive_sms.sender import NODE


def main() -> None:
    worker.set_up_django()
    client = table.connect()
    while True:
        message = table.take(client, table.LIST_FINISH, table.PUMPING)
        mt = client.hgetall(table.mt(message))
        if "result" in mt:
            archive(message, mt)
            client.delete(table.mt(message), mt["submit"])
        else:  # the Report was quicker than the sender, which has not stored the response yet
            client.rpush(table.LIST_FINISH, message)
        # Last: until here the message is in the list of what is in hand.
        client.lrem(table.PUMPING, 1, message)


def archive(message, mt) -> None:
    from django.db import transaction

    if "--rows" not in sys.argv:
        save(message, mt)
        return
    with transaction.atomic():
        save(message, mt)
        save_submit_and_report(message, mt)


def save(message, mt) -> None:
    from gateway.models import SgipMt

    SgipMt(
        id=int(message), biz_id=int(mt["biz"]), account_id=int(mt["account"]),
        gateway_id=int(mt["gateway"]), sp_number=mt["sp_number"],
        charge_number=mt["charge_number"], user_number=mt["user_number"], corp_id=mt["corp_id"],
        service_type=mt["service_type"], fee_type=1, fee_value="0", given_value="0",
        agent_flag=0, morelateto_mt_flag=2, priority=int(mt["priority"]), expire_at=None,
        schedule_at=None, report_flag=1, message_coding=int(mt["coding"]), text=mt["text"],
        parts=1, idempotency_key=mt["key"], reference=mt["reference"], final=mt["final"],
        result=int(mt["result"]), error_code=int(mt["error"]), error="",
        accepted_at=moment(mt["accepted_at"]), submitted_at=moment(mt["submitted_at"]),
        responded_at=moment(mt["responded_at"]), reported_at=moment(mt["reported_at"]),
        archived_at=datetime.now(UTC),
    ).save(force_insert=True)  # fmt: skip


def save_submit_and_report(message, mt) -> None:
    from gateway.models import SgipMtPart, SgipReport

    seqno, ts = mt["submit"].rsplit(":", 2)[1:]
    row = {
        "id": int(message), "mt_id": int(message), "part": 1, "node": NODE, "ts": int(ts),
        "seqno": int(seqno), "user_number": mt["user_number"],
        "state": 0 if mt["final"] == "delivered" else 2, "error_code": int(mt["error"]),
    }  # fmt: skip
    at = moment(mt["reported_at"])
    SgipMtPart(**row, result=int(mt["result"]), reported_at=at).save(force_insert=True)
    SgipReport(**row, received_at=at, archived_at=datetime.now(UTC)).save(force_insert=True)


def moment(text) -> datetime:
    return datetime.fromtimestamp(float(text), UTC)


if __name__ == "__main__":
    main()
