"""Exemplars of histograms: the last traced observation of each bucket. The work Redis keeps them,
and may lose them."""

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from msgplatform.core.connections import RedisError, work_redis
from msgplatform.core.tracing.context import is_on

_EXEMPLARS = "platform:exemplars"
# Prometheus takes an exemplar with the scrape; an old exemplar leads to a deleted trace.
MAX_EXEMPLAR_SECONDS = 3600.0


class Exemplar(NamedTuple):
    """A traced observation of a histogram; `at` in unix seconds."""

    trace_id: str
    value: float
    at: float


class Observation(NamedTuple):
    """A traced observation of a histogram. `metric` is its name without the prefix, `labels` the
    values of its labels, `bound` the upper bound of the bucket."""

    metric: str
    labels: tuple[str, ...]
    bound: str
    value: float
    trace_id: str


Key = tuple[str, tuple[str, ...], str]  # metric, values of its labels, bound


def note(observations: Sequence[Observation]) -> None:
    """Keep the last exemplar of each bucket, if Redis answers."""
    now = time.time()
    fields: dict[Any, Any] = {
        "\x1f".join((observation.metric, *observation.labels, observation.bound)): (
            f"{observation.trace_id} {observation.value:.6g} {now:.3f}"
        )
        for observation in observations
    }
    if fields:
        with suppress(RedisError):
            work_redis().hset(_EXEMPLARS, mapping=fields)


def read() -> dict[Key, Exemplar]:
    """The last exemplar of each bucket."""
    if not is_on():
        return {}
    try:
        rows: Any = work_redis().hgetall(_EXEMPLARS)
    except RedisError:
        return {}
    exemplars, now = {}, time.time()
    for field, row in rows.items():
        with suppress(ValueError):  # a field of another program must not hide ours
            metric, *labels, bound = field.decode().split("\x1f")
            trace_id, value, at = row.decode().split(" ")
            if now - float(at) < MAX_EXEMPLAR_SECONDS:
                exemplars[metric, tuple(labels), bound] = Exemplar(
                    trace_id, float(value), float(at)
                )
    return exemplars
