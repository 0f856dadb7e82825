"""The handler: what each outcome makes of a record, with real CRMs on sockets and in tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from crmsync.models import Item, Record
from tests.integration.crmsync import sync_support as sync
from tests.integration.crmsync.sync_support import Customers

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("work_redis")]
WAITING, QUEUED, RETRY, CONFIRMED, DEAD, DISMISSED = Record.State


@pytest.fixture
def customers(tmp_path: Path) -> Customers:
    return Customers(tmp_path)


class TestConfirmed:
    def test_an_order_becomes_rows_of_the_crm_and_confirmed_records(
        self, customers: Customers
    ) -> None:
        policy = sync.policy(customers.crm())
        queued = sync.queued(policy, sync.requests("abc"))
        sync.handled(queued)
        assert customers.rows() == {key: (f"name {key}", 1) for key in "abc"}
        assert queued.states() == dict.fromkeys("abc", CONFIRMED)
        assert queued.counts() == (3, 0, 0, 1)
        record, item = queued.record("a"), Item.objects.filter(operation_id=queued.operation.pk)[0]
        assert (record.sent_version, record.remote_id, record.next_at) == (1, "a", None)
        assert record.sent_digest == record.digest
        assert (record.claimed_by, record.sending_operation) == ("", 0)
        assert (item.outcome, item.attempt, item.version) == ("ok", 1, 1)
