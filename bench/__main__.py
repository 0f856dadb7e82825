"""One bench in a process of its own: `python -m bench NAME --seconds 10 --runs 3`.

`manage.py bench` starts it. The environment is made here, before Django reads it; the result is
one JSON object on standard output, progress goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

from bench.ground import DATABASES, Ground
from msgplatform.core.errors import PlatformError


def main() -> None:
    parser = argparse.ArgumentParser(description="Run one bench.")
    parser.add_argument("name")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--database", choices=DATABASES, default=DATABASES[0])
    options = parser.parse_args()
    with Ground(options.database) as ground:
        os.environ.clear()
        os.environ.update(ground.environment, LOG_LEVEL="WARNING")
        _prepare_django()
        from bench.interleave import run_bench

        result = run_bench(options.name, ground, options.seconds, options.runs)
    json.dump(result, sys.stdout)


def _prepare_django() -> None:
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0, interactive=False)


if __name__ == "__main__":
    try:
        main()
    except PlatformError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
