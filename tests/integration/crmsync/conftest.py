from collections.abc import Iterator

import pytest

from crmsync import presence
from tests.support import sources

connections_of_sources = pytest.fixture(autouse=True)(sources.connections_of_sources)
foreign = pytest.fixture(sources.foreign)


@pytest.fixture(autouse=True)
def lasting_reports() -> Iterator[None]:
    """No report is over because the machine stood still for some seconds."""
    with pytest.MonkeyPatch.context() as patch:
        for reports in (presence.crms, presence.policies):
            patch.setattr(reports, "_seconds", 3600.0)
        yield
