from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from crmsync.poller.reading.source import Columns, Source, earliest_wall_clock, parse_zone
from msgplatform.core.errors import InvalidInput

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"table": ""}, "table"),
        ({"table": "lead`; DROP TABLE lead"}, "table"),
        ({"table": "other.lead"}, "table"),
        ({"table": "l" * 65}, "table"),
        ({"columns": Columns(key="")}, "key"),
        ({"columns": Columns(update_time="")}, "update_time"),
        ({"columns": Columns(values=('a"b',))}, "columns"),
        ({"columns": Columns(values=("100%",))}, "columns"),
        ({"columns": Columns(values=("name", "Name"))}, "columns"),
        ({"zone": "Asia/Nowhere"}, "zone"),
        ({"zone": "+25:00"}, "zone"),
        ({"zone": "../etc/passwd"}, "zone"),
        ({"lag": timedelta(0)}, "lag"),
    ],
)
def test_descriptions_that_are_refused(changes: dict[str, Any], field: str) -> None:
    given: dict[str, Any] = {"table": "lead", "columns": Columns(), **changes}
    with pytest.raises(InvalidInput) as caught:
        Source(**given)
    assert caught.value.field == field


def test_names_in_any_script() -> None:
    Source("线索", Columns(values=("姓名", "phone number", "电话")))


@pytest.mark.parametrize(("text", "hours"), [("Asia/Shanghai", 8), ("+08:00", 8), ("-03:30", -3.5)])
def test_zones(text: str, hours: float) -> None:
    offset = datetime(2026, 7, 1, tzinfo=parse_zone(text)).utcoffset()
    assert offset == timedelta(hours=hours)


@pytest.mark.parametrize(
    ("utc", "wall"),
    [
        ("2026-10-24 23:59:59.5", "2026-10-25 01:59:59.5"),
        ("2026-10-25 00:00:00", "2026-10-25 02:00:00"),
        ("2026-10-25 00:59:59", "2026-10-25 02:00:00"),  # clocks go back to two at 01:00 UTC
        ("2026-10-25 01:00:00", "2026-10-25 02:00:00"),
        ("2026-10-25 01:30:00", "2026-10-25 02:30:00"),
        ("2026-03-29 00:59:59", "2026-03-29 01:59:59"),
        ("2026-03-29 01:00:00", "2026-03-29 03:00:00"),  # and forward
    ],
)
def test_a_wall_clock_that_is_set_back(utc: str, wall: str) -> None:
    """No wall clock shows an earlier time from this moment on."""
    moment = datetime.fromisoformat(utc).replace(tzinfo=UTC)
    assert earliest_wall_clock(moment, BERLIN) == datetime.fromisoformat(wall)
