"""The demo's console says which failures are on purpose."""

import pytest

from demo.notify import scenario
from demo.notify.scenario import Consumer


@pytest.mark.parametrize("consumer", scenario.CONSUMERS, ids=lambda consumer: consumer.name)
def test_a_consumer_that_fails_says_that_it_is_on_purpose(consumer: Consumer) -> None:
    fails = {"--status", "--fail-every", "--down-for"} & set(consumer.sink)
    assert ("on purpose" in consumer.title) == bool(fails)
    assert len(consumer.title) <= 100
