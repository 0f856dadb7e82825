"""The parts of the flows' contract that need a database and Redis."""

from __future__ import annotations

import pytest
import redis

from msgplatform.core import flows
from msgplatform.core.errors import InvalidInput

pytestmark = pytest.mark.django_db(transaction=True)
FLOWS = flows.all()


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
class TestContract:
    def test_status_of_an_empty_platform(self, flow: flows.Flow, work_redis: redis.Redis) -> None:
        status = flow.status()
        assert (status.backlog, status.oldest_seconds, status.problem) == (0, None, "")

    def test_status_survives_a_broken_database(
        self, flow: flows.Flow, django_db_blocker: pytest.FixtureRequest
    ) -> None:
        from django.db import connection

        connection.close()
        name = connection.settings_dict["NAME"]
        connection.settings_dict["NAME"] = "/no/such/place/db" + str(name)[:0]
        try:
            assert flow.status().problem
        finally:
            connection.close()
            connection.settings_dict["NAME"] = name

    @pytest.mark.parametrize(
        "query", ["", "nothing", "0", "9" * 18, "9" * 40, "' OR 1=1 --", "%", "\x00", "消息"]
    )
    def test_search_takes_anything(self, flow: flows.Flow, query: str) -> None:
        assert flow.search(query, 10) == []

    @pytest.mark.parametrize("id", ["", "x", "-1", "1.5", "9" * 40, "９"])
    def test_page_of_an_unknown_id(self, flow: flows.Flow, id: str) -> None:
        assert flow.page(id) is None

    def test_requeue_of_nothing(self, flow: flows.Flow) -> None:
        assert flow.requeue_count({}) == 0
        assert flow.requeue({}, "", 100) == flows.Requeued(cursor="", done=0)

    def test_requeue_refuses_an_unknown_filter(self, flow: flows.Flow) -> None:
        with pytest.raises(InvalidInput) as caught:
            flow.requeue_count({"no_such_field": "1"})
        assert caught.value.field == "no_such_field"

    def test_metrics_have_names_and_numbers(
        self, flow: flows.Flow, work_redis: redis.Redis
    ) -> None:
        samples = list(flow.metrics())
        assert samples
        for sample in samples:
            assert sample.name.startswith(flow.name)
            assert float(sample.value) >= 0
