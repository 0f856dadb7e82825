"""What every integration test starts from."""

from collections.abc import Iterator

import pytest

from msgplatform.core import flows
from msgplatform.doors.console.views import page


@pytest.fixture(autouse=True)
def flows_that_are_set_up() -> Iterator[None]:
    """The menu takes every flow for one that is set up. It would ask now and then else, and the
    number of a page's statements would depend on the time."""
    page.set_up_flows.update(flow.name for flow in flows.all())
    yield
    page.set_up_flows.clear()
    page.unused_until.clear()
