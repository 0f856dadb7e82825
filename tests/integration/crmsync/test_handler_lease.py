"""The lease of an order that a worker has claimed."""

import threading
from pathlib import Path
from typing import Any

import pytest
import redis
from django.conf import settings
from django.db import connection

from crmsync.adapters.outcomes import Ok, Retry
from crmsync.directory import crm_from_row
from crmsync.handler.call_limits import CallLimits
from crmsync.handler.claimed_order import ClaimedOrder
from crmsync.handler.crm_worker import CrmWorkers
from crmsync.handler.delivery import Delivery
from crmsync.models import Crm, Record
from crmsync.orders import MainQueue
from msgplatform.core.rates import breaker
from tests.integration.crmsync.sync_support import (
    Customers,
    Store,
    http_crm,
    policy,
    queued,
    requests,
)
from tests.support.json_stub import Answer, Asked, serving
from tests.support.suspension import suspend

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def order(work_redis: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClaimedOrder:
    """An order of three records, of whose lease little is left by the process' own clock."""
    queued(policy(Customers(tmp_path).crm()), requests(["1", "2", "3"]))
    job = MainQueue("sales").claim()
    assert job is not None
    order = ClaimedOrder(job)
    assert len(order.check().to_send) == 3
    suspend(monkeypatch, settings.CRM_LEASE_SECONDS * 0.9)
    assert order.is_lost
    return order


def test_it_is_renewed(order: ClaimedOrder) -> None:
    order.renew_if_due()
    assert not order.is_lost


def test_a_machine_that_was_suspended_claims_no_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crm = crm_from_row(Customers(tmp_path).crm())
    workers = CrmWorkers(crm, breaker.Policy(), None, lambda _records: None)
    workers.own(300.0)
    assert workers.is_owned()
    suspend(monkeypatch, 301.0)
    assert not workers.is_owned()


def test_a_process_that_was_stopped_sends_no_further_request(
    work_redis: redis.Redis, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """Also within one call of the adapter, which may take several."""
    settings.OUTBOUND_ALLOW = ["127.0.0.0/8"]
    store = Store(is_upsert=True)

    def stopped_meanwhile(request: Asked) -> Answer:
        suspend(monkeypatch, settings.CRM_LEASE_SECONDS)
        return store(request)

    with serving(stopped_meanwhile) as server:
        limits = {"concurrency": 1, "batch_size": 3}
        crm = crm_from_row(http_crm(server, store, settings=limits))
        queued(policy(Crm.objects.get()), requests(["1", "2", "3"]))
        job = MainQueue(crm.name).claim()
        assert job is not None
        order, adapter = ClaimedOrder(job), crm.open()
        limits_of_crm = CallLimits(crm.id, breaker.Policy())
        result = Delivery(adapter, limits_of_crm, order, threading.Event()).run(order.check())
        adapter.close()
    assert store.changed == ["1"]
    assert [type(answer.outcome) for answer in result.answers] == [Ok, Retry, Retry]


def test_records_of_which_another_process_has_one_are_not_sent(order: ClaimedOrder) -> None:
    Record.objects.filter(key="2").update(claimed_by="another")
    order.renew_if_due()
    assert order.is_lost


@pytest.mark.parametrize("is_whole", [True, False])
def test_it_is_not_longer_because_the_database_answers_late(
    work_redis: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_whole: bool
) -> None:
    queued(policy(Customers(tmp_path).crm()), requests(["1", "2", "3"]))
    if not is_whole:
        Record.objects.filter(key="2").update(claimed_by="another")
    job = MainQueue("sales").claim()
    assert job is not None
    order = ClaimedOrder(job)

    def answer_late(execute: Any, *arguments: Any) -> Any:
        answer = execute(*arguments)
        suspend(monkeypatch, settings.CRM_LEASE_SECONDS)
        return answer

    with connection.execute_wrapper(answer_late):
        assert len(order.check().to_send) == (3 if is_whole else 2)
    assert order.is_lost
