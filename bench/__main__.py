"""One bench in a process of its own: `python -m bench NAME --seconds 10 --runs 3`.

`manage.py bench` starts it. `--rows` and `--plans` can also be given as BENCH_ROWS and BENCH_PLANS,
which it passes on. The environment is made here, before Django reads it. The result is one JSON
object on standard output; progress goes to standard error. Benches at scale write the plans of
their statements into a file of `var/bench`.
"""

import argparse
import json
import os
import sys
from functools import partial
from pathlib import Path

from bench.harness import migrated, processes
from bench.harness.ground import DATABASES, ROOT, Ground


def main() -> None:
    parser = argparse.ArgumentParser(description="Run one bench.")
    parser.add_argument("name")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--database", choices=DATABASES, default=DATABASES[0])
    parser.add_argument("--against", default="", help="sides beside ours, comma-separated")
    rows = os.environ.get("BENCH_ROWS", "1000000,10000000")
    parser.add_argument(
        "--rows", type=_rows, default=rows, help="of the two databases of notify-at-scale"
    )
    file = os.environ.get("BENCH_PLANS") or None
    parser.add_argument("--plans", type=Path, default=file, help="the file of its query plans")
    options = parser.parse_args()
    plans = options.plans or ROOT / "var" / "bench" / f"{options.name}-query-plans.md"
    with Ground(options.database, options.rows, plans) as ground:
        os.environ.clear()
        os.environ.update(ground.environment, LOG_LEVEL="WARNING")
        import django
        from django.core.management import call_command

        django.setup()
        from bench.harness.interleave import run_bench

        migrate = partial(call_command, "migrate", verbosity=0, interactive=False)
        migrated.fill(ground.environment["DATABASE_URL"], migrate, "everything")

        against = options.against.split(",") if options.against else []
        result = run_bench(options.name, ground, options.seconds, options.runs, against)
    json.dump(result, sys.stdout)


def _rows(text: str) -> tuple[int, int]:
    small, large = map(int, text.split(","))
    return small, large


if __name__ == "__main__":
    processes.exit_after(main)
