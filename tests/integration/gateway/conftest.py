from collections.abc import Iterator

import pytest

from gateway import presence


@pytest.fixture(autouse=True)
def lasting_links() -> Iterator[None]:
    """No connection is taken for gone because the machine stood still for some seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(presence.links, "_seconds", 3600.0)
        yield
