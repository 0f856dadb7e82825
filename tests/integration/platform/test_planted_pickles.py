"""Somebody who can write into the work Redis must not run code in the web process."""

import json
import os
import pickle
import time
import zlib
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
import redis
from django.core.cache import cache
from django.test import Client
from django_rq.urls import get_admin_urlpatterns

from msgplatform.core.queues import jobs, recovery
from notify.orders import MARKER_QUEUE as MARKER

pytestmark = pytest.mark.django_db
WORKER = "rq:worker:planted"
CALLBACK = f"{__name__}.spring"
JOBS = ("queued", "dead", "failed", "done", "later", "waits")
"""A queued job, and one of each registry."""


class Planted:
    """Creates a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple:
        return Path.touch, (self.file,)


def spring(*_args: object) -> None:
    """A callback that a job may name."""
    Path(os.environ["TRAP"]).touch()


@pytest.fixture
def trap(work_redis: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that must never be there; pickles that make it are in every place."""
    trap = tmp_path / "trap"
    monkeypatch.setenv("TRAP", str(trap))
    planted = pickle.dumps(Planted(trap))
    pickle.loads(planted)
    assert trap.exists(), "it would work"
    trap.unlink()
    jobs.put(MARKER, [{"n": 1}], ttl=None)
    now = time.time()
    for name in JOBS:
        work_redis.hset(
            f"rq:job:{name}",
            mapping={
                "data": planted, "meta": planted, "result": planted,
                "origin": MARKER, "status": "failed", "failure_callback_name": CALLBACK,
                "created_at": "2026-01-01T00:00:00Z", "enqueued_at": "2026-01-01T00:00:00Z",
                "worker_name": "planted",
            },
        )  # fmt: skip
        value = b64encode(planted).decode()
        work_redis.xadd(f"rq:results:{name}", {"type": 1, "return_value": value}, id="1-1")
    work_redis.rpush(f"rq:queue:{MARKER}", "queued")
    work_redis.zadd(f"rq:wip:{MARKER}", {"dead:execution": now - 60})
    work_redis.hset(
        "rq:execution:dead:execution", mapping={"created_at": now, "last_heartbeat": now}
    )
    for registry, name in (("failed", "failed"), ("finished", "done"), ("scheduled", "later"),
                           ("deferred", "waits")):  # fmt: skip
        work_redis.zadd(f"rq:{registry}:{MARKER}", {name: now + 600})
    work_redis.hset(
        WORKER,
        mapping={
            "birth": "2026-01-01T00:00:00Z", "last_heartbeat": "2026-01-01T00:00:00Z",
            "queues": MARKER, "state": "busy", "current_job": "dead", "hostname": planted,
            "data": planted,
        },
    )  # fmt: skip
    for name in ("rq:workers", f"rq:workers:{MARKER}"):
        work_redis.sadd(name, WORKER)
    cron = {"func_name": "os.mkdir", "queue_name": MARKER, "args": [str(trap)]}
    work_redis.zadd("rq:cron_schedulers", {"planted": now})
    work_redis.hset(
        "rq:cron_scheduler:planted",
        mapping={"name": "planted", "pid": 1, "created_at": "2026-01-01T00:00:00Z",
                 "cron_jobs": json.dumps([cron])},
    )  # fmt: skip
    for name in (":1:planted", "cache:1:planted"):
        work_redis.set(name, planted)
    work_redis.set("cache:1:packed", zlib.compress(planted))
    return trap


def addresses() -> list[str]:
    """Every address that django-rq knows, of everything that is planted."""
    found = ["stats.json", "stats.json/token", "metrics", "metrics/"]
    for pattern in get_admin_urlpatterns():
        for place in ("0", "1", "999"):
            for job in JOBS:
                values = {
                    "int:queue_index": place, "int:scheduler_index": place,
                    "int:connection_index": place, "str:job_id": job, "str:key": WORKER,
                    "str:result_id": "1-1", "str:scheduler_name": "planted",
                    "path:cron_job_name": "os.mkdir",
                }  # fmt: skip
                route = str(pattern.pattern)
                for part, value in values.items():
                    route = route.replace(f"<{part}>", value)
                assert "<" not in route
                found.append(route)
    return list(dict.fromkeys(found))


def test_no_page_runs_what_is_planted(trap: Path, admin_client: Client) -> None:
    answers = {}
    for path in addresses():
        answers[path] = admin_client.get(f"/django-rq/{path}").status_code
        assert answers[path] in (200, 302, 403, 404), path
        assert not trap.exists(), path
    assert answers[""] == answers["queues/0/"] == 200
    assert admin_client.get("/admin/django_rq/dashboard/").status_code == 404
    for path, status in answers.items():
        if path.startswith(("workers/", "cron-schedulers/", "schedulers/", "stats", "metrics")):
            assert status == 404, path


def test_other_orders_are_still_shown(
    trap: Path, work_redis: redis.Redis, admin_client: Client
) -> None:
    job_id = work_redis.lindex(f"rq:queue:{MARKER}", 0).decode()
    listed = admin_client.get("/django-rq/queues/0/").content.decode()
    assert job_id in listed
    assert admin_client.get("/django-rq/queues/0/details/", follow=True).status_code == 200
    page = admin_client.get(f"/django-rq/queues/0/{job_id}/")
    assert page.status_code == 200
    assert "&#x27;n&#x27;: 1" in page.content.decode()
    home = admin_client.get("/django-rq/").content.decode()
    assert '<a href="/django-rq/queues/0/">notify-marker</a></td><td class="num">2</td>' in home


def test_cleaning_up_runs_nothing(trap: Path, work_redis: redis.Redis) -> None:
    recovery.recover(lambda name: True)
    recovery.recover(lambda name: False)
    while jobs.claim_all([MARKER], 30, dict)[0]:
        pass
    assert not trap.exists()


def test_the_cache_runs_nothing(trap: Path, work_redis: redis.Redis) -> None:
    for name in ("planted", "packed"):
        assert work_redis.exists(f"cache:1:{name}")
        with pytest.raises(ValueError, match=r"codec|Expecting"):
            cache.get(name)
    assert not trap.exists()


def test_the_cache_keeps_what_is_put(work_redis: redis.Redis) -> None:
    values = {"text": "小米", "number": 7, "times": [1.5, 2.5], "flags": {"on": True, "off": None}}
    cache.set_many(values, 60)
    assert cache.get_many(values) == values
    assert cache.incr("number") == 8
    cached: Any = work_redis.get("cache:1:text")
    assert json.loads(cached) == "小米"
