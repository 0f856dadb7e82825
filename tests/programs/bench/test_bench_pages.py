"""The bench of the console's pages, beside as many messages as a test has time for."""

from typing import Any

import pytest

from tests.programs.bench.bench_command import bench

ROWS = 1_500
# Pages of each kind that must be among those that are measured.
SOME = (
    "Overview", "Failures", "Search for nothing", "Texts of Notify", "Find in sms: a reference",
    "Message of CRM sync", "Statistics of 365d", "Bulk notify resend, preview",
    "Find in crmsync: a CRM, dead", "audit log: for nothing", "Row of subscriptions",
    "API: messages", "/metrics",
)  # fmt: skip


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    return bench("pages", "--seconds", "0.02", environment={"BENCH_ROWS": f"{ROWS},{ROWS}"})


@pytest.mark.full
class TestPages:
    def test_both_sizes_are_measured(self, result: dict[str, Any]) -> None:
        assert result["rows"] == {"at-1k-messages": 1000, "ours": ROWS}
        assert result["rate"] > 0
        assert result["against"]["at-1k-messages"] > 0

    def test_every_kind_of_page_is_opened(self, result: dict[str, Any]) -> None:
        names = [page["page"] for page in result["pages"]]
        assert len(names) == len(set(names)) > 200
        assert [name for name in SOME if name not in names] == []

    def test_the_slowest_pages_come_first(self, result: dict[str, Any]) -> None:
        pages = result["pages"]
        assert pages == sorted(pages, key=lambda page: -page["p95_ms"])
        for page in pages:
            assert 0 < page["p50_ms"] <= page["p95_ms"]
            ratio = page["p50_ms"] / page["small_p50_ms"]
            assert page["grows"] == pytest.approx(ratio, rel=0.1, abs=0.02)
