"""A source that is emptied, with the programs killed between the stop and the decision: the CRM
keeps everything until a person has confirmed, and then loses what was confirmed."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cluster import WEB, Cluster
from tests.flows.test_crm_crash import HANDLER, POLLER, cluster

__all__ = ["cluster"]  # a fixture

LEADS, DELETED = 60, 40
MAKE = """
import json
from crmsync.intake import intake
from crmsync.models import Crm, LandingPage, Policy, Source
from msgplatform.models import Biz
biz = Biz.objects.create(name="cars")
crm = Crm.objects.create(name="sales", adapter="sql", settings={{"table": "customer"}},
                         credentials={{"url": "sqlite:///{path}"}})
policy = Policy.objects.create(source=Source.hive(), crm=crm, mapping="name = name",
                               interval_seconds=1, sweep_cron="", guard_records=10)
page = LandingPage(appkey="ad-1", biz=biz)
names = [f"name {{n}}" for n in range({leads})]
intake.add_many([intake.make_lead(page, {{"name": name}}, "", None) for name in names])
print(json.dumps(policy.pk))
"""
DELETE = """
import json
from crmsync.models import Lead
ids = list(Lead.objects.order_by("id").values_list("id", flat=True)[:{count}])
print(json.dumps(Lead.objects.filter(id__in=ids).update(is_delete=True)))
"""
STOP = """
import json
from crmsync.models import Policy
row = Policy.objects.get()
print(json.dumps([row.stopped_removals, row.stopped_records] if row.stopped_at else None))
"""
CONFIRM = """
import json
from crmsync.models import Policy
from crmsync.policies import run_requests
run_requests.decide(Policy.objects.get(), Policy.Decision.CONFIRMED, {count}, "li")
print(json.dumps(True))
"""
OPEN = """
import json
from crmsync.models import Operation, Record
print(json.dumps([Record.objects.exclude(state=Record.State.CONFIRMED).count(),
                  Operation.objects.filter(end_at=None).count()]))
"""


@pytest.mark.parametrize("cluster", ["mariadb"], indirect=True)
def test_killed_between_the_stop_and_the_decision(cluster: Cluster, tmp_path: Path) -> None:
    database = tmp_path / "crm.db"
    with closing(sqlite3.connect(database)) as crm:
        crm.execute("CREATE TABLE customer (id VARCHAR(40) PRIMARY KEY, name TEXT, version BIGINT)")
        crm.commit()

    def customers() -> int:
        with closing(sqlite3.connect(database, timeout=30)) as crm:
            return int(crm.execute("SELECT COUNT(*) FROM customer").fetchone()[0])

    def kill(*names: str) -> None:
        for name in names:
            cluster.restart(name)

    cluster.script(MAKE.format(path=database, leads=LEADS))
    cluster.wait_until(lambda: customers() == LEADS, "every lead in the CRM")
    cluster.script(DELETE.format(count=DELETED))
    cluster.wait_until(lambda: cluster.script(STOP), "the guard to stop")
    kill(POLLER, HANDLER, WEB)
    cluster.redis.flushall()
    kill(POLLER)
    assert cluster.script(STOP) == [DELETED, LEADS]
    assert customers() == LEADS
    cluster.script(CONFIRM.format(count=DELETED))
    kill(POLLER, HANDLER)
    cluster.wait_until(lambda: customers() == LEADS - DELETED, "what was confirmed")
    cluster.wait_until(lambda: cluster.script(OPEN) == [0, 0], "every record to be confirmed")
    assert cluster.script(STOP) is None
