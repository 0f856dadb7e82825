"""From messages to Submits: texts are split into parts, packed for many recipients and encoded. The
pace of packs follows a sender's share of the speed limit, and pauses."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache

import msgspec

from gateway import sgip
from gateway.connections import sms_redis
from gateway.directory import Gateway
from gateway.lifecycle import keys, store
from gateway.lifecycle.messages import ClaimedMessage, Member, Mt, NewSubmit, Response
from gateway.sender.pending_submits import RETRY, UNANSWERED
from msgplatform.core.rates.backoff import Backoff
from msgplatform.core.rates.shared import SharedRateLimit

_MAX_BUSY = 5.0  # seconds, so that a gateway that is free again is soon used
# Seconds. A pack that costs more of the limit than this is sent on credit and paid for later.
_CREDIT_SECONDS = 10
_COUNTERS_AT_ONCE = 1000


class Pack(msgspec.Struct, frozen=True):
    """Messages that share a Submit, and the parts of their text that are to be sent."""

    messages: Sequence[Mt]
    parts: sgip.Parts
    part_numbers: Sequence[int]
    ascii_limit: int

    @property
    def cost(self) -> int:
        """Number of short messages: one for each part to each recipient."""
        return len(self.part_numbers) * len(self.messages)


def make_packs(claims: Sequence[ClaimedMessage], gateway: Gateway) -> list[Pack]:
    """Messages of equal text and options, as many in a pack as a Submit takes."""
    groups: dict[object, list[ClaimedMessage]] = {}
    for item in claims:
        group_key = item.mt.pack, item.part_numbers, item.max_users, item.parts, item.ascii_limit
        groups.setdefault(group_key, []).append(item)
    packs = []
    for group in groups.values():
        first = group[0]
        # A part that is sent again must fit the other parts: cut with the same limit, and with the
        # message's own reference.
        ascii_limit = first.ascii_limit or gateway.row.ascii_limit
        is_packed = ascii_limit == 160
        parts = _split(first.mt.text, first.mt.signature, is_packed, first.mt.udh_reference)
        max_bytes = max(map(len, parts.contents))
        user_limit = gateway.row.users_per_submit
        size = sgip.users_per_submit(max_bytes, min(first.max_users or user_limit, user_limit))
        count = len(parts.contents)
        part_numbers = first.part_numbers or tuple(range(1, count + 1))
        if first.parts and first.parts != count:
            raise ValueError(f"its text was cut into {first.parts} parts, and is into {count} now")
        # A number is once in a pack: a Report names only sequence and number.
        by_number: list[dict[str, Mt]] = [{}]
        for item in group:
            number = item.mt.user_number
            if len(by_number[-1]) >= size or number in by_number[-1]:
                by_number.append({})
            by_number[-1][number] = item.mt
        packs += [Pack([*mts.values()], parts, part_numbers, ascii_limit) for mts in by_number]
    return packs


# A text that goes to thousands comes in many claims.
@lru_cache(maxsize=256)
def _split(text: str, signature: str, packed_ascii: bool, reference: int) -> sgip.Parts:
    options = sgip.SplitOptions(signature=signature, packed_ascii=packed_ascii)
    return sgip.split(text, reference, options)


class Counters:
    """Counters for sequences, which no other sender gets. Redis gives out many at once, because
    each script waits for the disk; counters that are not used are left out."""

    def __init__(self) -> None:
        self._reserve = range(0)

    def take(self, count: int) -> range:
        """The next `count` counters. Raises what `store.next_seqnos` raises."""
        if count > len(self._reserve):
            self._reserve = store.next_seqnos(max(count, _COUNTERS_AT_ONCE))
        reserve = self._reserve
        counters, self._reserve = reserve[:count], reserve[count:]
        return counters


def make_submits(packs: Sequence[Pack], gateway: Gateway, counters: Counters) -> list[NewSubmit]:
    """Each pack's Submits with sequences of their own, ready to be remembered and written."""
    # One time for all Submits: the counters keep their sequences apart.
    ts = sgip.timestamp(datetime.now(UTC))
    parts = [(pack, part) for pack in packs for part in pack.part_numbers]
    new_submits = []
    for (pack, part), counter in zip(parts, counters.take(len(parts)), strict=True):
        mt, seqno = pack.messages[0], counter & 0xFFFFFFFF
        users = tuple(message.user_number for message in pack.messages)
        # With several recipients an empty number says that each pays. A single one is named.
        charge_number = mt.charge_number or (users[0] if len(users) == 1 else "")
        expire_at = datetime.fromtimestamp(mt.expire_at, UTC) if mt.expire_at else None
        command = sgip.Submit(
            sequence=(gateway.node_id, ts, seqno),
            sp_number=mt.sp_number,
            charge_number=charge_number,
            user_numbers=users,
            corp_id=mt.corp_id,
            service_type=mt.service_type,
            fee_type=mt.fee_type,
            fee_value=mt.fee_value,
            given_value=mt.given_value,
            agent_flag=mt.agent_flag,
            morelateto_mt_flag=mt.morelateto_mt_flag,
            priority=mt.priority,
            expire_time=sgip.absolute_time(expire_at) if expire_at else "",
            report_flag=mt.report_flag,
            tp_udhi=pack.parts.tp_udhi,
            message_coding=pack.parts.message_coding,
            message_content=pack.parts.contents[part - 1],
        )
        new_submits.append(NewSubmit(
            seqno, ts, gateway.node_id, part, len(pack.parts.contents), command.encode(),
            [Member(message.id, message.user_number) for message in pack.messages],
            pack.ascii_limit,
        ))  # fmt: skip
    return new_submits


def user_count(frame: bytes) -> int:
    """The number of users of a Submit that was written before."""
    command = sgip.decode(frame)
    return command.user_count if isinstance(command, sgip.Submit) else 1


# -- pace -----------------------------------------------------------------------------------------
class Pace:
    """A sender's share of a gateway's limit. The limit itself is in Redis, shared by all
    senders."""

    def __init__(self, gateway: int) -> None:
        self._limit = SharedRateLimit(sms_redis, keys.speed(gateway))
        self._credit = 0.0  # short messages that may be sent
        self.is_short = False  # of credit: ask before the limit's burst (0.1 s) is over
        self._busy = Backoff(first=0.1, factor=2, cap=_MAX_BUSY)
        self._busy_until = 0.0

    @property
    def is_paused(self) -> bool:
        return time.monotonic() < self._busy_until

    def slow_down(self, responses: Sequence[Response]) -> None:
        """Pause for a gateway that is too busy, longer each time until it accepts all again.

        Without pauses a long queue would be refused again and again, until its messages' last try.
        Responses that come during a pause neither lengthen nor end it, nor make the next pause a
        short one.
        """
        if self.is_paused:
            return
        if not any(response.verdict in (RETRY, UNANSWERED) for response in responses):
            self._busy.reset()
        else:
            self._busy_until = time.monotonic() + self._busy.next()

    def can_repeat(self, rate: float) -> bool:
        """True if a Submit may be repeated now. `charge` takes its cost, which is known later."""
        if not rate:
            return True
        if self._credit < 1:
            allowance, _ = self._limit.take(rate, 1 - int(self._credit))
            self._credit += allowance
        self.is_short = self._credit < 1
        return not self.is_short

    def charge(self, messages: int) -> None:
        """Take short messages from the credit. A debt is paid before the next messages."""
        self._credit -= messages

    def affordable(self, packs: list[Pack], rate: float) -> list[Pack]:
        """The first packs that `rate` short messages a second let go; 0: all packs."""
        self.is_short = False
        if not rate:
            return packs
        missing_credit = sum(pack.cost for pack in packs) - int(self._credit)
        # Redis is asked only for missing credit, after the rest of earlier turns is used.
        if missing_credit > 0:
            allowance, _ = self._limit.take(rate, missing_credit)
            self._credit += allowance
        affordable_packs: list[Pack] = []
        for pack in packs:
            if self._credit < min(pack.cost, max(1.0, _CREDIT_SECONDS * rate)):
                break
            self._credit -= pack.cost
            affordable_packs.append(pack)
        self.is_short = len(affordable_packs) < len(packs)
        return affordable_packs
