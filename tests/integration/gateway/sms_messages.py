"""Short messages that are archived, with the flow that finds them."""

from typing import Any

from gateway.forwarder.forwarder import Forwarder
from gateway.lifecycle import store
from gateway.models import SgipMt, SmsGateway
from gateway.pump.pump import Pump
from tests.support.sms_rows import Caller, report, respond, send, submit


def settle() -> None:
    Forwarder().turn()
    Pump().turn()


def archived(caller: Caller, result: int = 0, error: int = 0, state: int = 0, **fields: Any) -> str:
    """A message that ended: refused with `result`, or reported."""
    message = send(caller.biz, **fields)
    (seqno,) = submit(SmsGateway.objects.get().pk)[message]
    respond(seqno, result)
    if not result:
        number = store.read([message])[0].mt.user_number
        report(seqno, number, state=2 if error else state, error=error)
    settle()
    assert SgipMt.objects.filter(pk=int(message)).exists()
    return message
