"""`manage.py bench`, as a user calls it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

from msgplatform.env import BASE_DIR


def bench(
    *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", "bench", *arguments],
        cwd=BASE_DIR, capture_output=True, text=True, timeout=900, check=False,
        env=environment,
    )  # fmt: skip
