"""MOs and changes of users, taken in once: long ones joined, in any order, over any connection.

Ids come from the database, all else from Redis. Functions raise an exception when one of them is
unavailable.
"""

import time
from collections.abc import Mapping, Sequence

import msgspec

from gateway import sgip
from gateway.lifecycle import keys, mo_store
from gateway.lifecycle.messages import Mo
from msgplatform.core import logging
from msgplatform.core.data import ids

log = logging.get(__name__)

_LATE_AT_ONCE = 100  # messages; the receiver looks for late ones every few seconds


def take(requests: Sequence[tuple[int, sgip.Deliver | sgip.UserRpt]]) -> None:
    """Take (gateway's id, request) pairs. All are safe when this returns."""
    # Each request gets an id, also a part: its message has the id of the first part.
    message_ids = ids.reserve(len(requests)).ids([ids.bucket(0, None) for _ in requests])
    whole_mos: list[tuple[Mo, mo_store.SequenceWords]] = []
    for (gateway, request), message_id in zip(requests, map(str, message_ids), strict=True):
        if isinstance(request, sgip.UserRpt):
            report = Mo(
                id=message_id,
                kind="userrpt",
                gateway=gateway,
                user_number=sgip.international(request.user_number),
                sp_number=request.sp_number,
                user_condition=request.user_condition,
                sequence=_words(request.sequence),
                at=time.time(),
            )
            whole_mos.append((report, request.sequence))
        elif (part := sgip.part_of(request)).total > 1:
            mo = _mo(message_id, gateway, request, "", part)
            parts_key = keys.mo_part(mo.user_number, mo.sp_number, part.reference, part.total)
            arguments = (parts_key, part.number, part.total, mo, request.sequence)
            # The handset uses the reference for a new message: the older one is taken in as is.
            while (outcome := mo_store.keep_part(*arguments)).what == "cut":
                _join(parts_key, outcome.parts)
            if outcome.what == "whole":
                _join(parts_key, outcome.parts)
        else:
            text = sgip.decode_text(part.payload, request.message_coding)
            whole_mos.append((_mo(message_id, gateway, request, text), request.sequence))
    mo_store.accept(whole_mos)


def take_late() -> int:
    """Take in long MOs whose other parts did not come in time; returns how many."""
    late = mo_store.late_parts(_LATE_AT_ONCE)
    for parts_key, parts in late.items():
        _join(parts_key, parts)
    return len(late)


def _join(parts_key: str, parts: Mapping[int, Mo]) -> None:
    """The id is that of the first part that came: a repetition makes the same message."""
    if not parts:
        return
    # Ids grow with time.
    first = min(parts.values(), key=lambda part: int(part.id))
    contents = {number: part.content for number, part in parts.items()}
    codings = {number: part.message_coding for number, part in parts.items()}
    whole = msgspec.structs.replace(
        first,
        text=_readable(sgip.text_of(contents, codings), first.message_coding),
        content=b"".join(contents[number] for number in sorted(contents)),
        missing=first.parts - len(parts),
    )
    if mo_store.join_parts(parts_key, whole, parts) and whole.missing:
        log.warning("mo_incomplete", id=whole.id, parts=whole.parts, missing=whole.missing)


def _mo(
    message_id: str, gateway: int, deliver: sgip.Deliver, text: str, part: sgip.Part | None = None
) -> Mo:
    return Mo(
        id=message_id,
        gateway=gateway,
        user_number=sgip.international(deliver.user_number),
        sp_number=deliver.sp_number,
        text=_readable(text, deliver.message_coding),
        content=part.payload if part else deliver.message_content,
        message_coding=deliver.message_coding,
        tp_pid=deliver.tp_pid,
        tp_udhi=deliver.tp_udhi,
        parts=part.total if part else 1,
        sequence=_words(deliver.sequence),
        at=time.time(),
    )


def _readable(text: str, coding: int) -> str:
    """The text without NUL, which XML and many databases refuse. In the characters of GSM 03.38
    (6.2.1) NUL is @, which some SMSCs hand on unchanged; at the end NUL only fills up."""
    is_gsm = sgip.alphabet_of(coding) is sgip.Coding.ASCII
    return text.rstrip("\0").replace("\0", "@" if is_gsm else "\ufffd")


def _words(sequence: sgip.SequenceNumber) -> str:
    return ":".join(map(str, sequence))
