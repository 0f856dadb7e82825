"""The counters of SMS: the pump adds to them in the transaction in which it archives.

Each message counts once, with its segments and the ending that it had when it was archived. The
subject of an account's counter is the account's id, that of a gateway's counter the negated id.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from gateway.lifecycle.messages import Finished
from gateway.models import SgipMt, SgipMtPart
from msgplatform.models import MinuteCounter

FLOW = "sms"
MO = "mo"
SEGMENTS = "segments"  # the short messages that the operator bills
ERROR = "error "  # the names of failures' counters begin so; a code or a word follows

Key = tuple[int, int, str]  # system, subject, name
Owner = tuple[int, int, int]  # system, account, gateway


def count_messages(
    messages: Iterable[Finished],
    earlier_finals: Mapping[int, str],
    billed_segments: Mapping[int, int],
    now: datetime,
) -> None:
    """Count messages in the caller's transaction.

    `earlier_finals`: the endings of messages that the archive already has. `billed_segments`: the
    segments that were counted for them. A changed ending changes the counts.
    """
    counts: Counter[Key] = Counter()
    for message in messages:
        before = earlier_finals.get(int(message.id))
        owner = message.mt.biz, message.mt.account, message.gateway
        if before != message.final:
            counts.update(ending_keys(*owner, message.final, message.error))
        if before and before != message.final:
            counts.subtract(ending_keys(*owner, before, ""))
        new_segments = segments(message) - billed_segments.get(int(message.id), 0)
        for subject in (message.mt.account, -message.gateway):
            counts[message.mt.biz, subject, SEGMENTS] += new_segments
    MinuteCounter.add(FLOW, counts, now)


def count_mos(owners: Iterable[Owner], now: datetime) -> None:
    """Count MOs in the caller's transaction. The gateway may be unknown (0)."""
    counts: Counter[Key] = Counter()
    for biz, account, gateway in owners:
        counts[biz, account, MO] += 1
        if gateway:
            counts[biz, -gateway, MO] += 1
    MinuteCounter.add(FLOW, counts, now)


def recount(before: SgipMt, after: SgipMt, now: datetime) -> None:
    """Move an archived message from one ending to another, in the caller's transaction. The
    statistics of the time at which the message was archived change."""
    owner = after.biz_id, after.account_id, after.gateway_id
    counts = Counter(ending_keys(*owner, after.final, str(after.error_code)))
    counts.subtract(ending_keys(*owner, before.final, ""))
    MinuteCounter.correct(FLOW, counts, after.archived_at, now)


def ending_keys(biz: int, account: int, gateway: int, final: str, error: str) -> list[Key]:
    """The counters of one ending: by account and by gateway, a failure also with its error."""
    names = [final, f"{ERROR}{error}"[:32]] if final == SgipMt.Final.FAILED else [final]
    return [(biz, subject, name) for subject in (account, -gateway) for name in names]


def segments(message: Finished) -> int:
    """The number of short messages that the operator bills for a message: the parts that went out
    and were not refused."""
    # A text that was refused as a whole may have been cut into more parts before.
    parts = {submit.part for submit in message.sent if submit.part <= message.parts}
    answers = message.answers
    return sum(1 for part in parts if not answers.get(part))


def archived_segments(message_ids: Sequence[int]) -> Counter[int]:
    """Message → segments that were counted for it, for messages that the archive has."""
    parts = SgipMtPart.objects.filter(mt_id__in=message_ids)
    rows = list(parts.values_list("mt_id", "part", "result"))
    refused_parts = {(message, part) for message, part, result in rows if result}
    sent_parts = {(message, part) for message, part, _result in rows}
    return Counter(message for message, _part in sent_parts - refused_parts)
