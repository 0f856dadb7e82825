"""The names of Notify's RQ queues; a name may not hold ":", which RQ splits on."""

from __future__ import annotations

MARKER = "notify-marker"
# What `subscription()` makes.
PATTERN = r"notify-\d+-\d+"


def subscription(biz_id: int, receive_id: int) -> str:
    """The queue of one subscription, named as in the original: notify-<biz id>-<receive id>."""
    return f"notify-{biz_id}-{receive_id}"
