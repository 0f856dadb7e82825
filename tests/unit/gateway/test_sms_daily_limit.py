"""How long it is until a new day begins, in the zone in which messages are counted."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from gateway.intake.request import seconds_to_tomorrow


@pytest.mark.parametrize(
    ("zone", "now", "seconds"),
    [
        ("Asia/Shanghai", "2026-11-20T23:59:30", 30),
        ("Asia/Shanghai", "2026-11-20T23:59:59.900", 1),
        ("Asia/Shanghai", "2026-12-31T00:00:00", 86_400),
        # Clocks are changed on these days: they have 23 and 25 hours.
        ("Europe/Berlin", "2026-03-29T00:00:00", 23 * 3600),
        ("Europe/Berlin", "2026-10-25T00:00:00", 25 * 3600),
    ],
)
def test_seconds_to_tomorrow(zone: str, now: str, seconds: int) -> None:
    moment = datetime.fromisoformat(now).replace(tzinfo=ZoneInfo(zone))
    assert seconds_to_tomorrow(moment) == seconds
