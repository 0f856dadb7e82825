"""Quantiles of times, in milliseconds, as each load generator prints them."""

from collections.abc import Collection

# With the fewest times that say something about it: 1 / (1 - part).
_PARTS = (
    ("p50", 0.5, 2), ("p95", 0.95, 20), ("p99", 0.99, 100), ("p999", 0.999, 1000), ("max", 1.0, 0),
)  # fmt: skip
NAMES = tuple(f"{name}_ms" for name, _part, _fewest in _PARTS)
# Counted from the moment for which a request was drawn: what an open load measures.
DUE = "due_"
DUE_NAMES = tuple(f"{DUE}{name}" for name in NAMES)


def report(seconds: Collection[float], prefix: str = "") -> dict[str, float]:
    """p50_ms, p95_ms, p99_ms, p999_ms, each only if there are enough times for it, and max_ms,
    which is 0 without any time."""
    times = sorted(seconds) or [0.0]
    last = len(times) - 1
    return {
        f"{prefix}{name}_ms": round(times[min(last, int(len(times) * part))] * 1000, 2)
        for name, part, fewest in _PARTS
        if len(seconds) >= fewest
    }
