"""Pending messages that no sender has claimed: looked at in their lists, and moved if they may go.

`waiting` ─ look ─▶ judged by the caller ─ divert ─▶ another gateway's list, or its end
"""

from __future__ import annotations

from collections.abc import Iterable

from gateway.lifecycle import scripts
from gateway.lifecycle.messages import WaitingMessage, decode_mt

# A priority, and the number of its messages before this place.
Place = tuple[int, int]
FRONT: Place = (9, 0)


def look(
    gateway: int, holder: str, start: Place, limit: int
) -> tuple[list[WaitingMessage], Place | None]:
    """Messages that wait for a gateway, most urgent first, from a place on, and the next place
    (None at the end). Nothing is claimed: the messages stay in their lists.

    Returns no messages while another holder looks through this gateway's list.
    """
    flat = scripts.run("look", [gateway, holder, *start, limit])
    waiting = [
        WaitingMessage(
            decode_mt(flat[i + 1]), bool(flat[i + 2]), int(flat[i + 3]), int(flat[i + 4])
        )
        for i in range(2, len(flat), 5)
    ]
    return waiting, (int(flat[0]), int(flat[1])) if flat[0] != b"" else None


def divert(gateway: int, leaving: Iterable[tuple[WaitingMessage, int]]) -> int:
    """Move messages that `look` returned to another gateway, or with 0 end them as expired; how
    many. Messages that moved since, or were sent and would change their gateway, are left alone."""
    flat: list[scripts.Argument] = []
    for message, gateway_id in leaving:
        flat += [message.mt.id, message.priority, message.position, gateway_id or ""]
    return int(scripts.run("divert", [gateway, *flat])) if flat else 0
