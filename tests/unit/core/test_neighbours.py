"""What goes through Redis is read by programs of the neighbouring release: fields stand in the
order of the last release, new ones last and with a default, and readers pass over others."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from crmsync import orders as crm_orders
from crmsync.presence import LiveCrm, PolicyFacts
from gateway.presence import LinkState
from msgplatform.core.daemons.exits import Exits
from msgplatform.core.daemons.heartbeats import Heartbeat
from msgplatform.core.data.server import Writer
from notify import orders
from notify.feed.presence import DispatcherReport
from notify.presence import LaneState

# Fields that are told by their place. A release adds its own at the end.
PLACES: dict[type[Any], str] = {
    orders.Item: "id msg_id attempt body event_type key due trace",
    orders.Result: (
        "id subscription claim attempt outcome http_status error seconds retry_after at detail "
        "response_headers response_body event_type trace"
    ),
    crm_orders.Entry: "record operation request remote_id attempt check",
    crm_orders.Order: "policy crm claim lease_until entries",
}
BY_NAME = (
    orders.Order, Heartbeat, Exits, Writer, LinkState, LiveCrm, PolicyFacts, DispatcherReport,
    LaneState,
)  # fmt: skip
# A named tuple can get no field: an older reader refuses a longer one.
TUPLES = {"Standstill": ("since", "part", "why")}


def parts(kind: Any) -> Iterator[Any]:
    """The type, and the types inside of it."""
    info = inspect.type_info(kind)
    waiting: list[Any] = [info]
    while waiting:
        one = waiting.pop()
        yield one
        fields = getattr(one, "fields", ())
        waiting += [field.type for field in fields]
        for name in ("item_type", "value_type"):
            if hasattr(one, name):
                waiting.append(getattr(one, name))
        waiting += getattr(one, "types", ())


@pytest.mark.parametrize("kind", PLACES, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_a_field_keeps_its_place_and_a_new_one_has_a_default(kind: type[Any]) -> None:
    names = PLACES[kind].split()
    fields = msgspec.structs.fields(kind)
    assert [field.encode_name for field in fields][: len(names)] == names
    assert all(not field.required for field in fields[len(names) :])


@pytest.mark.parametrize(
    "kind", [*PLACES, *BY_NAME], ids=lambda kind: f"{kind.__module__}.{kind.__name__}"
)
def test_a_reader_passes_over_what_it_does_not_know(kind: type[Any]) -> None:
    for part in parts(kind):
        assert not getattr(part, "forbid_unknown_fields", False), part
        if isinstance(part, inspect.NamedTupleType):
            names = tuple(field.name for field in part.fields)
            assert TUPLES[part.cls.__name__] == names


def test_an_order_of_the_next_release_is_read_and_its_result_too() -> None:
    item = [1, 2, 3, "{}", "order.paid", "k", 4.0, "", "of the next release"]
    order = {"subscription": 5, "claim": "c", "lease_until": 6.0, "items": [item], "shade": "new"}
    decoded = msgspec.json.decode(msgspec.json.encode(order), type=orders.Order)
    assert decoded.items == [orders.Item(1, 2, 3, "{}", "order.paid", "k", 4.0)]
    # As the release before this one wrote it: without what has a default.
    older = msgspec.json.encode([1, 5, "c", 3, "delivered"])
    assert msgspec.json.decode(older, type=orders.Result).trace == ""
