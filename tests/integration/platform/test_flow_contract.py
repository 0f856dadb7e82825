"""The parts of the flows' contract that need a database and Redis."""

import time

import pytest
import redis

from crmsync.models import Crm
from msgplatform.core import flows
from msgplatform.core.errors import InvalidInput
from msgplatform.core.flows.actions import Step
from msgplatform.core.flows.bulk_pages import Counted
from msgplatform.core.flows.contract import Flow
from msgplatform.core.flows.page import SearchResult
from msgplatform.messages import engine
from msgplatform.models import Biz
from notify.models import BizReceive
from tests.support.notify_rows import subscription

pytestmark = pytest.mark.django_db(transaction=True)
FLOWS = flows.all()


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
class TestContract:
    def test_status_of_an_empty_platform(self, flow: Flow, work_redis: redis.Redis) -> None:
        deadline = time.monotonic() + 60
        # Counts of an earlier test's many rows are kept for a while.
        while (status := flow.health.status()).backlog and time.monotonic() < deadline:
            time.sleep(0.1)
        assert (status.backlog, status.oldest_seconds, status.problem) == (0, None, "")

    def test_status_survives_a_broken_database(
        self, flow: Flow, django_db_blocker: pytest.FixtureRequest
    ) -> None:
        from django.db import connection

        connection.close()
        name = connection.settings_dict["NAME"]
        connection.settings_dict["NAME"] = "/no/such/place/db" + str(name)[:0]
        try:
            assert flow.health.status().problem
        finally:
            connection.close()
            connection.settings_dict["NAME"] = name

    @pytest.mark.parametrize(
        "query", ["", "nothing", "0", "9" * 18, "9" * 40, "' OR 1=1 --", "%", "\x00", "消息"]
    )
    def test_search_takes_anything(self, flow: Flow, query: str) -> None:
        assert engine.search(flow.messages, query, 10).hits == []

    @pytest.mark.parametrize("id", ["", "x", "-1", "1.5", "9" * 40, "９"])
    def test_page_of_an_unknown_id(self, flow: Flow, id: str) -> None:
        assert flow.messages.page(id) is None

    def test_what_is_unknown_is_not_sent_again(self, flow: Flow) -> None:
        assert flow.resend_permission
        action = flow.resend_action
        assert action
        assert action.is_resend
        for id in ("", "x", "-1", "7", "9" * 40):
            with pytest.raises(InvalidInput):
                action.resend(id, "", "somebody")

    @pytest.mark.parametrize("value", ["0", "9" * 30, "' OR 1=1 --", "%", "\x00", "消息", "x/y"])
    def test_find_takes_anything(self, flow: Flow, value: str) -> None:
        """It finds nothing, or says what is wrong and where."""
        for field in flow.messages.fields:
            try:
                found = engine.find(flow.messages, {field: value}, "", 10)
            except InvalidInput as error:
                refused: tuple[str, bool] | None = (error.field, bool(str(error)))
            else:
                refused = None
                assert found == SearchResult([])
            assert refused in (None, (field, True))

    @pytest.mark.parametrize("cursor", ["x", "-1", "9" * 40, "\x00"])
    def test_find_refuses_a_wrong_cursor(self, flow: Flow, cursor: str) -> None:
        if flow.messages.fields:
            with pytest.raises(InvalidInput) as caught:
                engine.find(flow.messages, {}, cursor, 10)
            assert caught.value.field == "cursor"

    def test_find_and_bulk_refuse_an_unknown_field(self, flow: Flow) -> None:
        for ask in (
            *(
                [lambda given: engine.find(flow.messages, given, "", 10)]
                if flow.messages.fields
                else []
            ),
            *(action.count for action in flow.actions.values()),
            *(action.preview for action in flow.actions.values()),
        ):
            with pytest.raises(InvalidInput) as caught:
                ask({"no_such_field": "1"})
            assert caught.value.field == "no_such_field"

    def test_nothing_is_unreadable(self, flow: Flow) -> None:
        assert flow.messages.search_warning(None) == ""

    def test_bulk_actions_of_nothing(self, flow: Flow) -> None:
        """With the fields that an action asks for, until it asks for no more."""
        for name in flow.actions:
            filter: dict[str, str] = {}
            for _ in range(len(flow.actions[name].fields) + 1):
                try:
                    assert flow.action(name).count(filter) == Counted(0)
                    shown = flow.action(name).preview(filter)
                    assert (shown.counted, list(shown.groups)) == (Counted(0), [])
                    break
                except InvalidInput as error:
                    asked = error.field
                assert asked not in filter, name
                filter[asked] = self.sample(asked)
            assert flow.action(name).step(filter, shown.cursor, 100) == Step("", 0)
            step = flow.action(name).step(filter, "", 100)
            for _ in range(3):  # the first may only begin
                assert step.done == 0
                if not step.cursor:
                    break
                step = flow.action(name).step(filter, step.cursor, 100)
            assert step.cursor == ""
            for cursor in ("x", "|", "2026-11-20|", "2026-11-20T08:00:00|1", "\x00|1"):
                with pytest.raises(InvalidInput) as caught:
                    flow.action(name).step(filter, cursor, 100)
                assert caught.value.field == "cursor", (name, cursor)

    def sample(self, field: str) -> str:
        if field == "subscription":
            biz, _ = Biz.objects.get_or_create(name="orders")
            row = BizReceive.objects.first() or subscription(biz)
            return str(row.pk)
        if field == "crm":
            return str(Crm.objects.get_or_create(name="sales", adapter="sql")[0].pk)
        return "1" if field == "biz" else "2026-01-01"

    def test_an_unknown_bulk_action_is_refused(self, flow: Flow) -> None:
        with pytest.raises(InvalidInput) as caught:
            flow.action("no_such_action").count({})
        assert caught.value.field == "action"

    def test_what_it_counts_can_be_shown(self, flow: Flow) -> None:
        activity = flow.health.activity
        assert activity
        names = [measure.name for measure in activity.measures]
        names += [figure.name for figure in activity.figures]
        names += [dimension.name for dimension in activity.dimensions]
        assert len(names) == len(set(names))
        assert [m.name for m in activity.measures if m.tone == "good"]
        assert [m.name for m in activity.measures if m.tone == "lost"]
        assert all(figure.of({}) is None for figure in activity.figures)
        assert activity.success({}) is None
        for dimension in activity.dimensions:
            assert dimension.groups([]) == {}
            if dimension.name == "sp_number":  # any text may be one
                continue
            for key in ("x", "-1", "9" * 40, "\x00", "１"):
                with pytest.raises(InvalidInput) as caught:
                    activity.condition({dimension.name: key})
                assert caught.value.field == dimension.name

    def test_metrics_have_names_and_numbers(self, flow: Flow, work_redis: redis.Redis) -> None:
        samples = list(flow.health.metrics())
        assert samples
        for sample in samples:
            assert sample.metric in set(flow.health.declared_metrics)
            assert float(sample.value) >= 0
