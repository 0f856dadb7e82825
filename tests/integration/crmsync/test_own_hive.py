"""The platform's own hive as a source, on both databases."""

import pytest
from django.db import transaction

from crmsync.models import Lead
from crmsync.poller.reading.increment import Row
from crmsync.poller.reading.source import Source
from msgplatform.core.data import ids
from msgplatform.models import Biz
from tests.support.lead_tables import LEADS
from tests.support.sources import Follower


@pytest.mark.django_db(transaction=True)
def test_it_is_read_on_and_on() -> None:
    """Its UpdateTime is in UTC, whatever the server's zone: triggers write it."""
    biz = Biz.objects.create(name="ads")
    follower = Follower(Source("lead", LEADS, zone="UTC"))
    lead = Lead.objects.create(id=ids.new(0), biz=biz, appkey="k", uid="a")
    follower.until("a")
    Lead.objects.filter(pk=lead.pk).update(uid="b")
    follower.until("b")
    Lead.objects.filter(pk=lead.pk).update(is_delete=True)
    rows: list[Row] = []
    while not any(row.deleted for row in rows):
        rows += follower.read()
    assert [row.key for row in rows if row.deleted] == [lead.pk]
    versions = [row.version or 0 for row in rows]
    assert versions == sorted(versions)
    with transaction.atomic(), pytest.raises(RuntimeError, match="outside any transaction"):
        follower.read()
