"""`manage.py bench`, as a user calls it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from msgplatform.env import BASE_DIR


def bench(
    *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", "bench", *arguments],
        cwd=BASE_DIR, capture_output=True, text=True, timeout=900, check=False,
        env=environment,
    )  # fmt: skip


def measured_or_left_out(result: Mapping[str, Any]) -> set[str]:
    """The references of a result. Only what cannot be installed, as without a network, may be left
    out, and the result says so."""
    left_out: dict[str, str] = result.get("left_out", {})
    assert all("installed" in reason for reason in left_out.values()), left_out
    return {*result["against"], *left_out}
