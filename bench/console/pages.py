"""Every page of the console and every list of the API beside a million messages."""

import json
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.test import Client

from bench.console import addresses, volumes
from bench.harness.ground import Ground
from bench.harness.measure import Side
from bench.harness.processes import BenchFailed, Crew, Program
from bench.harness.programs.progress import Progress
from msgplatform.core.connections import work_redis

NAME = "pages"
ORDER = 150
UNIT = "pages/s"
ABOUT = (
    "An administrator opens every page of the console, one after another, through the real web "
    "server: the side bar, each list with its filters and searches, searches by field and through "
    "texts, messages, statistics of every period, previews of bulk jobs; then the lists of the "
    "API and /metrics. The hot tables of Notify hold 1,000,000 messages and its archive as many, "
    "SMS and CRM sync 300,000 each, timelines 1,000,000 entries. The reference is the same with "
    "1,000 messages, in another database of the same server, in turns: a page that takes many "
    "times as long beside the larger tables grows with them. Each page is opened twice or more in "
    "a run, and the first round, which fills caches, does not count. The p95 of a page that was "
    "opened fewer than 20 times is its longest time."
)
_ROUNDS = 2  # at least, the first of which fills caches
_FEW_ROWS = 10_000  # beside fewer, as tests have them, one round shows that each page opens
_SHOWN = 40  # pages of the document, the slowest ones
_LOOK_SECONDS = 0.2
_MAX_SECONDS = 1800.0
_times: dict[str, dict[str, list[float]]] = {}


class Pages(Side):
    """Beside 1,000,000 messages."""

    database = volumes.LARGE

    def prepare(self) -> None:
        volumes.fill(self.ground, self.database)
        self.ground.use(self.database)
        work_redis().flushall()
        user, _ = get_user_model().objects.get_or_create(
            username="administrator", is_staff=True, is_superuser=True
        )
        browser = Client()
        browser.force_login(user)
        cookie = browser.cookies[settings.SESSION_COOKIE_NAME]
        self._pages = addresses.every(user)
        self._visit = self.ground.file(f"{self.stretch}.visit")
        visit = {"cookie": f"{cookie.key}={cookie.value}", "pages": self._pages}
        self._visit.write_text(json.dumps(visit))
        self._progress = Progress(self.ground.file(f"{self.stretch}.progress"))
        self._rounds = 1 if self.ground.rows[0] < _FEW_ROWS else _ROUNDS

    def programs(self) -> Sequence[Program]:
        web = self.ground.web()
        visitor = self.ground.module(
            "load", "bench.console.visitor", *("--port", self.ground.web_port),
            *("--progress", self._progress.file, "--visit", self._visit),
            *("--unmeasured", self._rounds - 1), load=True,
        )  # fmt: skip
        # One key asks for all lists of its system.
        return [replace(web, environment={**web.environment, "API_RATE_READ": "off"}), visitor]

    def count(self) -> int:
        return self._progress.count

    def finish(self, crew: Crew) -> None:
        """Until every page was opened often enough."""
        deadline = time.monotonic() + _MAX_SECONDS
        while self.count() < self._rounds * len(self._pages):
            crew.check()
            if time.monotonic() > deadline:
                raise BenchFailed(f"{self.name}: the pages take too long\n{crew.output()}")
            time.sleep(_LOOK_SECONDS)

    def check(self, crew: Crew) -> None:
        """The visitor ends when an answer is no page; here its times are kept for `facts`."""
        found = _times.setdefault(self.database, defaultdict(list))
        for page, times in crew.printed("load")["pages"].items():
            found[page] += times


class SmallPages(Pages):
    """The same pages beside 1,000 messages."""

    name = "at-1k-messages"
    database = volumes.SMALL


def sides() -> list[type[Side]]:
    return [Pages, SmallPages]


def facts(ground: Ground) -> dict[str, Any]:
    """After all runs: the sizes, and each page with its times in milliseconds, the slowest first.

    `grows` is the median beside the larger tables, divided by that beside the smaller ones.
    """
    small, large = _times[volumes.SMALL], _times[volumes.LARGE]
    found: list[dict[str, Any]] = []
    for name, times in large.items():
        p50, other = statistics.median(times), statistics.median(small[name])
        found.append(
            {"page": name, "p50_ms": round(p50, 2), "p95_ms": round(_p95(times), 2),
             "small_p50_ms": round(other, 2), "grows": round(p50 / other, 2)}
        )  # fmt: skip
    found.sort(key=lambda page: -page["p95_ms"])
    rows = volumes.rows(ground)
    return {
        "rows": {SmallPages.name: rows[volumes.SMALL], "ours": rows[volumes.LARGE]},
        "pages": found,
    }


def details(result: Mapping[str, Any]) -> list[str]:
    """The slowest pages as a table of the document."""
    pages = result["pages"]
    shown = pages[:_SHOWN]
    most = max(pages, key=lambda page: page["grows"])
    head = (
        f"{len(pages)} pages, the {len(shown)} slowest of them. Of all, "
        f"{sum(page['p95_ms'] <= 300 for page in pages)} took at most 300 ms (p95); "
        f"“{most['page']}” grows most with the tables, {most['grows']:g} ×."
    )
    lines = [
        f"| {page['page']} | {page['p50_ms']:,.0f} ms | {page['p95_ms']:,.0f} ms "
        f"| {page['small_p50_ms']:,.0f} ms | {page['grows']:g} × |"
        for page in shown
    ]
    return [
        "", head, "", "| page | p50 | p95 | p50 beside 1,000 | grows |",
        "|---|---:|---:|---:|---:|", *lines,
    ]  # fmt: skip


def _p95(times: Sequence[float]) -> float:
    return sorted(times)[min(len(times) - 1, len(times) * 95 // 100)]
