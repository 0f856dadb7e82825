"""One of everything that the console of CRM sync shows, with whatever is long, in trouble or empty.

Run inside the platform: `make(folder)` returns the ids by name.
"""

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from crmsync import orders, presence
from crmsync.models import (
    Crm,
    ExceptionEntry,
    Item,
    LandingPage,
    Lead,
    Operation,
    Policy,
    Record,
    RecoveryEntry,
    Run,
    Source,
    Watermark,
)
from crmsync.models.sources import HIVE_COLUMNS
from crmsync.orders import Request
from msgplatform.core.data import ids, sql
from msgplatform.core.rates.breaker import State
from msgplatform.models import Biz

SECRET = "hush-this-is-a-password"
LONG = "a reason that goes on and on, as those of some CRMs do, with a wöörd-that-has-no-end-" * 4
PHONE, EMAIL, NAME = "13812345678", "wang.xiaoming@example.com", "王小明"
MAPPING = """name = name
phone = phone
email = extra.email
company = extra.company or "-"
city = extra.city or null"""
TABLE = (
    "CREATE TABLE customer (id VARCHAR(40) PRIMARY KEY, name VARCHAR(60) NOT NULL, "
    "phone VARCHAR(40), email VARCHAR(100), company VARCHAR(100), city VARCHAR(60), "
    "version BIGINT NOT NULL DEFAULT 0)"
)


def new_id() -> int:
    return ids.reserve(1).ids([0])[0]


def customers(path: Path) -> str:
    """A CRM's own table in a SQLite file; its URL."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(TABLE.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS"))
        connection.commit()
    return f"sqlite:///{path}"


def sql_crm(name: str, url: str, **fields: Any) -> Crm:
    return Crm.objects.create(
        name=name, adapter="sql", settings={"table": "customer"}, credentials={"url": url}, **fields
    )


def hive() -> Source:
    """As the migration makes it; a test that empties tables empties its too."""
    return Source.objects.get_or_create(
        name="hive",
        defaults={
            "table": "lead", "time_column": "UpdateTime", "deleted_column": "IsDelete",
            "version_column": "version", "value_columns": list(HIVE_COLUMNS),
        },
    )[0]  # fmt: skip


def lead(biz: Biz, **fields: Any) -> Lead:
    given = {"appkey": "spring", "name": NAME, "phone": PHONE, "extra": {"email": EMAIL}, **fields}
    return Lead.objects.create(id=new_id(), biz=biz, **given)


def policy(crm: Crm, source: Source | None = None, **fields: Any) -> Policy:
    return Policy.objects.create(source=source or hive(), crm=crm, **{"mapping": MAPPING, **fields})


def run(policy: Policy, **fields: Any) -> Run:
    given = {"kind": "changes", "state": Run.State.READ, "started_at": sql.now(), **fields}
    return Run.objects.create(id=new_id(), policy_id=policy.pk, **given)


def operation(policy: Policy, requests: list[Request], **fields: Any) -> Operation:
    start = int(sql.now().timestamp() * 1000)
    given = {"start_at": start, "records": len(requests), **fields}
    return Operation.objects.create(
        id=new_id(), data=orders.dump(requests), policy_id=policy.pk, **given
    )


def record(policy: Policy, operation: Operation, key: str, **fields: Any) -> Record:
    given = {
        "version": 1, "digest": "0" * 32, "state": Record.State.CONFIRMED, "sent_version": 1,
        "remote_id": key, "updated_at": sql.now(), **fields,
    }  # fmt: skip
    return Record.objects.create(
        id=new_id(), policy_id=policy.pk, operation_id=operation.pk, key=key, **given
    )


def dead(policy: Policy, key: str, fields: dict[str, Any], **entry: Any) -> RecoveryEntry:
    """A record that its CRM refused, with its operation and what it said."""
    request = Request(policy.key_prefix + key, 1, fields)
    sent = operation(policy, [request], dead=1, result=0, end_at=int(sql.now().timestamp() * 1000))
    row = record(policy, sent, key, state=Record.State.DEAD, sent_version=0, remote_id="",
                 error_class="invalid", attempt=1)  # fmt: skip
    given = {"error_class": "invalid", "field": "phone", "attempts": 1,
             "reason": f"{PHONE} is no telephone number of this country", **entry}  # fmt: skip
    Item.objects.create(
        id=new_id(), operation_id=sent.pk, record_id=row.pk, crm_id=policy.crm_id, version=1,
        attempt=1, outcome="invalid", field=given["field"], message=given["reason"], at=sql.now(),
        milliseconds=87,
    )  # fmt: skip
    return RecoveryEntry.objects.create(
        policy_id=policy.pk, crm_id=policy.crm_id, operation_id=sent.pk, record_id=row.pk, key=key,
        version=1, request=msgspec.json.encode(request), created_at=sql.now(), **given,
    )  # fmt: skip


def make(folder: str) -> dict[str, Any]:
    now = sql.now()
    biz, _ = Biz.objects.get_or_create(name="cars", defaults={"title": "汽车之家 · Car dealers"})
    LandingPage.objects.get_or_create(appkey="spring", defaults={"biz": biz, "title": "试驾"})
    url = customers(Path(folder) / "customers.db")
    extra = {"email": EMAIL, "company": "一家名字很长很长的公司", "city": "上海"}
    leads = [lead(biz, name=f"{NAME}{n}", phone=f"138{n:08d}", extra=extra) for n in range(12)]
    with closing(sqlite3.connect(Path(folder) / "customers.db")) as connection:
        connection.executemany(
            "INSERT OR REPLACE INTO customer VALUES (?, ?, ?, ?, ?, ?, 1)",
            [(str(each.pk), each.name, each.phone, EMAIL, "ACME" if n < 2 else extra["company"],
              "上海") for n, each in enumerate(leads[:6])],
        )  # fmt: skip
        connection.commit()
    sales = sql_crm("sales", url)
    refused = sql_crm(
        "a-crm-whose-name-is-as-long-as-it-can-be", f"mysql://crm:{SECRET}@127.0.0.1:1/crm",
        paused_at=now - timedelta(hours=3), paused_because="The database refuses the "
        "credentials: Access denied for user 'crm'@'10.0.0.7' (using password: YES)",
    )  # fmt: skip
    http = Crm.objects.create(
        name="wecom", adapter="http", settings={"url": "https://crm.example.com/contacts"},
        credentials={"token": SECRET}, enabled=False,
    )  # fmt: skip
    broken = sql_crm("east", url, concurrency=4)
    other = Source.objects.create(
        name="the orders of the old shop", database=f"mysql://reader:{SECRET}@127.0.0.1:1/shop",
        table="customer", time_column="changed_at", value_columns=["name", "mobile"],
        zone="Asia/Shanghai",
    )  # fmt: skip
    first = policy(sales, hours="08:00-20:00")
    second = policy(refused, cron="*/5 8-20 * * 1-5")
    third = policy(broken, other, mapping="name = name\nphone = mobile", key_prefix="shop-",
                   sweep_cron="")  # fmt: skip
    policy(http, enabled=False)
    requests = [
        Request(str(each.pk), 1, {"name": each.name, "phone": each.phone, "email": EMAIL})
        for each in leads
    ]
    ended = run(first, kind="full", requested_by="admin", read=12, unchanged=2,
                read_at=now, started_at=now - timedelta(minutes=4))  # fmt: skip
    end_at = int(now.timestamp() * 1000)
    sent = operation(first, requests, run_id=ended.pk, confirmed=11, dead=1, result=0,
                     end_at=end_at)  # fmt: skip
    for each in leads[:10]:
        row = record(first, sent, str(each.pk))
        Item.objects.create(
            id=new_id(), operation_id=sent.pk, record_id=row.pk, crm_id=sales.pk, version=1,
            attempt=1, outcome="ok", remote_id=row.key, at=now, milliseconds=12,
        )  # fmt: skip
    record(first, sent, str(leads[10].pk), state=Record.State.RETRY, error_class="retry", attempt=2,
           sent_version=0, remote_id="", next_at=now + timedelta(minutes=5), version=3)  # fmt: skip
    entry = dead(first, str(leads[11].pk), {
        "name": NAME, "phone": "12", "email": EMAIL, "age": 41, "note": LONG}, reason="Data too "
        "long for column 'phone' at row 1: 13812345678, wang.xiaoming@example.com")  # fmt: skip
    dead(second, "shop-77", {"name": NAME}, field="LastName", reason=LONG[:500],
         error_class="invalid")  # fmt: skip
    dead(third, "A-1", {}, field="phone", error_class="mapping",
         reason="mobile: the value is binary, not text")  # fmt: skip
    going = run(first, kind="sweep", state=Run.State.READING, read=4000, unread=10_000,
                unchanged=3000, started_at=now - timedelta(seconds=50))  # fmt: skip
    operation(first, requests, run_id=going.pk, records=1000, confirmed=700)
    failed = run(third, state=Run.State.FAILED, problem=LONG[:300], read_at=now)
    Watermark.objects.create(policy=first, update_time="2026-11-22 09:41:07.123456",
                             key=leads[-1].pk, moved_at=now - timedelta(seconds=70))  # fmt: skip
    for n in range(3):
        ExceptionEntry.objects.create(
            id=new_id(), policy_id=first.pk, crm_id=sales.pk, operation_id=sent.pk, kind="retry",
            message=f"The database cannot be reached: {LONG[:150 * n]}", records=500, at=now,
        )  # fmt: skip
    report(sales, broken, first, third)
    return {
        "sales": str(sales.pk), "refused": str(refused.pk), "http": str(http.pk),
        "policy": str(first.pk), "second": str(second.pk), "third": str(third.pk),
        "source": str(other.pk), "hive": str(hive().pk), "run": str(ended.pk),
        "going": str(going.pk), "failed": str(failed.pk), "operation": str(sent.pk),
        "entry": str(entry.pk), "lead": str(leads[0].pk), "url": url,
    }  # fmt: skip


def report(sales: Crm, broken: Crm, first: Policy, third: Policy) -> None:
    """As handlers and pollers do; it is forgotten within seconds."""
    presence.crms.report({
        sales.pk: presence.LiveCrm(3, 0.082, 412.0),
        broken.pk: presence.LiveCrm(0, 2.4, 0.0, State.OPEN, 42.0),
    })  # fmt: skip
    problem = "the source's server does not answer (Can't connect to server on '127.0.0.1')"
    presence.policies.report({
        first.pk: presence.PolicyFacts(2.1, 3),
        third.pk: presence.PolicyFacts(problem=problem, problem_for=700.0),
    })  # fmt: skip
