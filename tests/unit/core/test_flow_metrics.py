"""Metrics are declared once, and a sample is of one that was declared."""

import pytest

from msgplatform.core import flows
from msgplatform.core.flows.contract import Flow
from msgplatform.core.flows.metric import Metric, Metrics
from scripts.reference.metrics import by_owner

FLOWS = flows.all()


@pytest.mark.parametrize("name", ["", "Waiting", "1st", "waiting-now", "waiting_total", "msg:rate"])
def test_a_wrong_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not a valid name"):
        Metric(name, "What waits")


def test_none_without_help() -> None:
    with pytest.raises(ValueError, match="no help"):
        Metrics().gauge("waiting", "")


def test_none_twice() -> None:
    some = Metrics()
    some.gauge("waiting", "What waits")
    with pytest.raises(ValueError, match="twice"):
        some.counter("waiting", "What waited")


@pytest.mark.parametrize("labels", [{}, {"kind": "big", "of": "us"}, {"of": "us"}])
def test_a_sample_has_the_labels_of_its_metric(labels: dict[str, str]) -> None:
    with pytest.raises(TypeError, match="kind"):
        Metric("waiting", "What waits", ("kind",)).of(1, **labels)


def test_prometheus_sees_the_full_name() -> None:
    some = Metrics()
    made = [some.gauge("a", "A"), some.counter("b", "B"), some.histogram("c", "C")]
    assert [metric.full_name for metric in made] == [
        "msgplatform_a", "msgplatform_b_total", "msgplatform_c",
    ]  # fmt: skip
    assert list(some) == made


def test_no_name_belongs_to_two() -> None:
    names = [metric.full_name for _, group in by_owner() for metric in group]
    assert len(names) == len(set(names)) > 50


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
def test_those_of_a_flow_begin_with_its_name(flow: Flow) -> None:
    assert list(flow.health.declared_metrics)
    assert all(metric.name.startswith(f"{flow.name}_") for metric in flow.health.declared_metrics)
