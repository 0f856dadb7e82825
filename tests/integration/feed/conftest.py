from collections.abc import Iterator

import pytest

from notify.feed import presence


@pytest.fixture(autouse=True)
def lasting_reports() -> Iterator[None]:
    """No lease, report or decision is over because the machine stood still for some seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(presence, "STALE_SECONDS", 600.0)
        patch.setattr(presence.lease, "_seconds", 600.0)
        patch.setattr(presence.dispatchers, "_seconds", 600.0)
        yield
