"""The numbers of a chart."""

import json
from datetime import UTC, datetime, timedelta

from django.utils import timezone, translation

from msgplatform.doors.admin.chart import Chart, Line, labels

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def test_what_the_script_draws_and_what_a_reader_hears() -> None:
    lines = [Line("delivered", [3, 0, 1200]), Line("failures", [None, 2, None], "lost", True)]
    chart = Chart("n", "Counts per minute", ["12:00", "12:01", "12:02"], lines)
    drawn = json.loads(chart.data)
    assert drawn["times"] == ["12:00", "12:01", "12:02"]
    assert [line["values"] for line in drawn["lines"]] == [[3, 0, 1200], [None, 2, None]]
    assert [line["bars"] for line in drawn["lines"]] == [False, True]
    assert chart.summary == (
        "Counts per minute. delivered: highest 1,200, last 1,200. failures: highest 2, last 0"
    )
    assert not chart.is_empty


def test_nothing_happened_or_nothing_is_known() -> None:
    assert Chart("n", "t", ["12:00"], [Line("a", [0]), Line("b", [None])]).is_empty
    assert Chart("n", "t", [], []).is_empty
    assert Chart("n", "t", ["12:00"], [Line("b", [None])]).summary == "t"
    quiet = Chart("n", "t", ["12:00"], [Line("b", [None], "lost", as_bars=True)])
    assert quiet.summary == "t. b: highest 0, last 0"


def test_times_are_the_readers_and_days_are_not_moved() -> None:
    hours = [NOON, NOON + timedelta(hours=1)]
    days = [NOON.replace(hour=0), NOON.replace(hour=0) + timedelta(days=1)]
    with timezone.override("Asia/Shanghai"):
        assert labels(hours) == ["20:00", "21:00"]
        assert labels([NOON, NOON + timedelta(hours=5)]) == ["11-22 20:00", "11-23 01:00"]
    with timezone.override("America/New_York"):
        assert labels(days, by_day=True) == ["2026-11-22", "2026-11-23"]


def test_units_are_the_readers() -> None:
    with translation.override("zh-hans"):
        units = json.loads(Chart("n", "t", [], [], "seconds").data)["units"]
    assert [text for _seconds, text in units] == ["%d 天", "%d 小时", "%d 分钟", "%d 秒", "%d 毫秒"]
    assert [seconds for seconds, _text in units] == [86400, 3600, 60, 1, 0.001]
