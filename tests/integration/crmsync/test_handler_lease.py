"""The lease of an order that a handler has in hand."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import redis
from django.conf import settings

from crmsync.handler.hand import Hand
from crmsync.models import Record
from crmsync.queues import MainQueue
from tests.integration.crmsync.sync_support import Customers, policy, queued, requests

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def hand(work_redis: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hand:
    """An order of three records, of whose lease little is left by the process' own clock."""
    queued(policy(Customers(tmp_path).crm()), requests(["1", "2", "3"]))
    claimed = MainQueue("sales").claim()
    assert claimed is not None
    hand = Hand(claimed)
    assert len(hand.check()[0]) == 3
    later = time.monotonic() + settings.CRM_LEASE_SECONDS * 0.9
    monkeypatch.setattr("crmsync.handler.hand.time", SimpleNamespace(monotonic=lambda: later))
    assert hand.is_lost
    return hand


def test_it_is_renewed(hand: Hand) -> None:
    hand.renew_if_due()
    assert not hand.is_lost


def test_records_of_which_another_process_has_one_are_not_sent(hand: Hand) -> None:
    Record.objects.filter(key="2").update(claimed_by="another")
    hand.renew_if_due()
    assert hand.is_lost
